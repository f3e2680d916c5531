"""
Which allocation holds which GPU on this node, or which part of one. Whole GPUs and MIG instances are held by one; a shared GPU by several.
"""

from __future__ import annotations

from shoal.agent.unprepared import Unprepared
from shoal.model.command import Prepare
from shoal.model.part import DevicePart


def instance_key(part: DevicePart) -> str:
    """Names a MIG instance of this node by its place."""
    return f"{part.device}@{part.start}"


class DeviceTable:
    """Only the engine's thread changes it; readers of `holder` may be anywhere."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, ...]] = {}
        """By GPU and by instance."""
        self._whole: dict[str, str] = {}

    def lock(self, order: Prepare) -> None:
        """The allocation's devices are its own. Raises Unprepared naming who else has one."""
        claim = order.claim
        for uuid in claim.devices:
            self._refuse(uuid, self._others(uuid, order.allocation))
        for part in claim.parts:
            owner = self._whole.get(part.device, order.allocation)
            self._refuse(part.device, () if owner == order.allocation else (owner,))
            if part.mode == "mig":
                self._refuse(instance_key(part), self._others(instance_key(part), order.allocation))
        for uuid in claim.devices:
            self._whole[uuid] = order.allocation
        for key in _keys(order):
            self._holders[key] = tuple(dict.fromkeys((*self._holders.get(key, ()), order.allocation)))

    def unlock(self, order: Prepare) -> None:
        for uuid in order.claim.devices:
            if self._whole.get(uuid) == order.allocation:
                del self._whole[uuid]
        for key in _keys(order):
            left = self._others(key, order.allocation)
            if left:
                self._holders[key] = left
            else:
                self._holders.pop(key, None)

    def holders(self, uuid: str) -> tuple[str, ...]:
        """Who has the GPU, or a part of it; for the key of an instance, who has that."""
        return self._holders.get(uuid, ())

    def held(self) -> tuple[str, ...]:
        """Every GPU of which somebody holds something."""
        return tuple(sorted(key for key in self._holders if "@" not in key))

    def _others(self, key: str, allocation: str) -> tuple[str, ...]:
        return tuple(name for name in self._holders.get(key, ()) if name != allocation)

    def _refuse(self, key: str, others: tuple[str, ...]) -> None:
        if others:
            raise Unprepared(f"GPU {key} is still held by allocation {others[0]} on this node", of_node=True)


def _keys(order: Prepare) -> tuple[str, ...]:
    instances = tuple(instance_key(part) for part in order.claim.parts if part.mode == "mig")
    return (*order.claim.gpus_touched, *instances)
