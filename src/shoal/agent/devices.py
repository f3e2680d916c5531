"""Which allocation holds which GPU on this node. Shares of one GPU may be held by several; whole GPUs by one."""

from __future__ import annotations

from shoal.agent.unprepared import Unprepared
from shoal.model.command import Prepare


class DeviceTable:
    """Only the engine's thread changes it; readers of `holder` may be anywhere."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, ...]] = {}

    def lock(self, order: Prepare) -> None:
        """The allocation's devices are its own. Raises Unprepared naming who else has one."""
        gpus = order.spec.gpus
        shared = gpus is not None and (gpus.share is not None or gpus.share_memory is not None)
        for uuid in order.claim.devices:
            others = [name for name in self._holders.get(uuid, ()) if name != order.allocation]
            if others and not shared:
                raise Unprepared(f"GPU {uuid} is still held by allocation {others[0]} on this node", of_node=True)
        for uuid in order.claim.devices:
            self._holders[uuid] = tuple(dict.fromkeys((*self._holders.get(uuid, ()), order.allocation)))

    def unlock(self, order: Prepare) -> None:
        for uuid in order.claim.devices:
            left = tuple(name for name in self._holders.get(uuid, ()) if name != order.allocation)
            if left:
                self._holders[uuid] = left
            else:
                self._holders.pop(uuid, None)

    def holders(self, uuid: str) -> tuple[str, ...]:
        return self._holders.get(uuid, ())

    def held(self) -> tuple[str, ...]:
        """Every GPU that somebody holds."""
        return tuple(sorted(self._holders))
