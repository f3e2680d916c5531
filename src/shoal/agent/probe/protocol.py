"""What the agent asks about GPUs. Two implementations: `nvml.NvmlProbe` for real ones, `pretended.PretendedProbe` for drills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.model.node import Device
from shoal.model.part import DevicePart


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One look at one GPU: percent busy since the last look or so, memory in use."""

    utilisation: int
    memory_bytes: int


class Probe(Protocol):
    """The GPUs of one machine. Calls may come from any thread."""

    pretended: bool

    def devices(self) -> tuple[Device, ...]:
        """The GPUs of this machine in index order, with `broken` set on those that are known and do not answer."""
        ...

    def driver(self) -> str | None:
        """The driver's version; None without one."""
        ...

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:
        """How busy the GPUs are; those that do not answer are left out."""
        ...

    def processes(self, uuid: str) -> tuple[int, ...]:
        """Processes that have the GPU, or MIG instance, open for computing. Raises DeviceGone where it does not answer."""
        ...

    def part_uuid(self, part: DevicePart) -> str | None:
        """The UUID by which a task sees a part of a GPU; None for an instance that is not there."""
        ...

    def make_part(self, part: DevicePart) -> str:
        """As `part_uuid`; an instance that is not there is made, idle ones in its way go. Raises PartFailed where that cannot be."""
        ...

    def drop_part(self, part: DevicePart) -> None:
        """An instance that was made for a job goes, where the node makes them; else nothing. Raises PartFailed."""
        ...


class DeviceGone(Exception):
    """The GPU is not there any more or does not answer."""


class PartFailed(Exception):
    """A MIG instance is not there and cannot be made, or does not go."""


class NoProbe:
    """A machine without GPUs."""

    pretended = False

    def devices(self) -> tuple[Device, ...]:
        return ()

    def driver(self) -> str | None:
        return None

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:  # noqa: ARG002
        return {}

    def processes(self, uuid: str) -> tuple[int, ...]:
        raise DeviceGone(f"this machine has no GPU {uuid}")

    def part_uuid(self, part: DevicePart) -> str | None:  # noqa: ARG002
        return None

    def make_part(self, part: DevicePart) -> str:
        raise PartFailed(f"this machine has no GPU {part.device}")

    def drop_part(self, part: DevicePart) -> None: ...
