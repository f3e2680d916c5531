"""
Xid codes as NVIDIA's catalogue tells them: what each means, where it comes from, what to do at once and what if it comes again.

Source: NVIDIA's Xid catalogue, October 2025, through public copies read in 2026; catalogue rows differ by architecture, and where they
do the row here is the one for Hopper and later, with the difference in `note`. What Shoal does about a code is `diagnosis.xid_policy`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Origin(StrEnum):
    """Where a code comes from as a rule, most likely first where the catalogue names several."""

    APPLICATION = "application"
    HARDWARE = "hardware"
    DRIVER = "driver"
    LINK = "link"
    CONTAINED = "contained"
    """A memory error that hardware kept to one program."""
    PENDING = "pending"
    """Handled already; takes effect at the next reset."""
    CONSEQUENCE = "consequence"
    """Follows another code: that one is the cause."""
    NOTICE = "notice"


class Action(StrEnum):
    """What to do, gentlest first."""

    NOTHING = "nothing"
    RESTART_APPLICATION = "restart-application"
    RESET = "reset-gpu"
    DRAIN_AND_RESET = "drain-and-reset"
    REBOOT = "reboot"
    INSPECT = "inspect"
    """A person looks: cables, seats, fans, power, vendor diagnostics."""
    REPLACE = "replace"


class Xid(NamedTuple):
    """One code: `first` is what to do at once, `repeated` what if it returns on the same GPU."""

    code: int
    meaning: str
    origin: Origin
    first: Action
    repeated: Action
    note: str = ""


_A, _H, _D, _L = Origin.APPLICATION, Origin.HARDWARE, Origin.DRIVER, Origin.LINK
_APP, _RESET, _NONE = Action.RESTART_APPLICATION, Action.RESET, Action.NOTHING
_LOOK, _SWAP, _BOOT, _DRAIN = Action.INSPECT, Action.REPLACE, Action.REBOOT, Action.DRAIN_AND_RESET

_SINGLE: Final[tuple[Xid, ...]] = (
    Xid(8, "GPU stopped processing", _A, _APP, _LOOK),
    Xid(13, "graphics engine exception", _A, _APP, _LOOK, "hardware where it repeats on one GPU with programs that run elsewhere"),
    Xid(31, "MMU page fault", _A, _APP, _LOOK, "an illegal address of the program; rarely hardware"),
    Xid(37, "firmware method error", _D, _NONE, _LOOK),
    Xid(38, "firmware watchdog", _D, _APP, _LOOK),
    Xid(43, "GPU stopped processing after a fault of the program", _A, _NONE, _APP),
    Xid(44, "fault during a context switch", _D, _NONE, _LOOK),
    Xid(
        45,
        "preemptive cleanup after another error",
        Origin.CONSEQUENCE,
        _NONE,
        _NONE,
        "alone: look at the fabric manager and at killed programs",
    ),
    Xid(46, "GPU timeout", _H, _RESET, _LOOK),
    Xid(48, "double-bit ECC error", _H, _DRAIN, _SWAP, "with 63 or 94 follow those"),
    Xid(54, "auxiliary power not connected", _H, _LOOK, _LOOK),
    Xid(60, "video processor exception", _A, _APP, _LOOK),
    Xid(62, "PMU halt", _H, _RESET, _LOOK),
    Xid(63, "row remap or page retirement recorded", Origin.PENDING, _NONE, _RESET, "a reset at the next drain makes it take effect"),
    Xid(64, "row remap or page retirement failed", _H, _DRAIN, _SWAP),
    Xid(66, "illegal access by the driver", _D, _NONE, _LOOK),
    Xid(67, "illegal access by the driver", _D, _NONE, _LOOK),
    Xid(74, "NVLink error", _L, _RESET, _LOOK, "repeated on one link: reseat, then replace"),
    Xid(78, "vGPU start error", _D, _LOOK, _LOOK, "update the vGPU software"),
    Xid(79, "GPU has fallen off the bus", _H, _BOOT, _SWAP, "power, PCIe seat, heat"),
    Xid(92, "high rate of single-bit ECC errors", _H, _NONE, _LOOK),
    Xid(93, "InfoROM wear", Origin.NOTICE, _NONE, _NONE),
    Xid(94, "contained memory error", Origin.CONTAINED, _APP, _LOOK, "only the program that met it is lost; no reason to replace"),
    Xid(95, "uncontained memory error", _H, _DRAIN, _SWAP, "programs on other MIG instances of the GPU are lost too"),
    Xid(106, "SMBPBI test message", Origin.NOTICE, _NONE, _NONE),
    Xid(107, "SMBPBI test message", Origin.NOTICE, _NONE, _NONE),
    Xid(109, "context switch timeout", _A, _RESET, _LOOK, "application or driver; some tools ignore it although the catalogue says reset"),
    Xid(110, "security fault", _D, _RESET, _LOOK),
    Xid(119, "GSP RPC timeout", _D, _RESET, _LOOK, "update the driver; nvidia-smi hangs meanwhile"),
    Xid(120, "GSP error", _D, _RESET, _LOOK, "update the driver"),
    Xid(121, "chip-to-chip link error", _L, _NONE, _LOOK),
    Xid(136, "link training failed", _L, _RESET, _LOOK),
    Xid(137, "NVLink privilege error", _A, _NONE, _LOOK),
    Xid(140, "unrecovered ECC error", _H, _DRAIN, _SWAP),
    Xid(141, "fast path error", _A, _NONE, _NONE),
    Xid(142, "NVENC3 error", _D, _LOOK, _LOOK),
    Xid(143, "GPU initialisation error", _H, _RESET, _SWAP),
    Xid(151, "key rotation error", _D, _BOOT, _LOOK, "restart the virtual machine"),
    Xid(154, "recovery action changed", Origin.NOTICE, _NONE, _NONE, "do what it says: the driver's own verdict"),
    Xid(155, "NVLink software-defined error", _D, _RESET, _LOOK),
    Xid(156, "resource retirement event", Origin.PENDING, _RESET, _RESET),
    Xid(157, "resource retirement failed", _H, _NONE, _SWAP),
    Xid(158, "fatal timeout", _H, _RESET, _LOOK),
    Xid(159, "CHI error, not data", _H, _LOOK, _LOOK),
    Xid(160, "channel retirement event", Origin.PENDING, _NONE, _RESET),
    Xid(161, "channel retirement failed", _H, _NONE, _LOOK),
    Xid(167, "fatal PCIe timeout", _H, _BOOT, _LOOK, "no action published yet"),
    Xid(168, "reduced memory", _H, _LOOK, _LOOK, "no action published yet"),
    Xid(171, "DRAM detail of 48", _H, _DRAIN, _SWAP, "no action published yet; as 48"),
    Xid(172, "SRAM detail of 48", _H, _DRAIN, _SWAP, "no action published yet; as 48"),
)

_GROUPS: Final[tuple[tuple[tuple[int, ...], str, Origin, Action, Action], ...]] = (
    ((11, 25, 32, 69, 80), "bad commands or data sent to the GPU", _A, _APP, _LOOK),
    ((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), "copy engine error", _H, _APP, _LOOK),
    ((68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139), "video, JPEG or optical flow engine error", _A, _APP, _LOOK),
    (tuple(range(144, 151)), "NVLink 5 error", _L, _RESET, _LOOK),
    ((152, 153), "DLA error", _D, _NONE, _NONE),
    ((162, 163, 164, 165, 166, 169, 170), "power smoothing and security processor", Origin.NOTICE, _NONE, _LOOK),
)

XIDS: Final[dict[int, Xid]] = {
    row.code: row
    for row in sorted(
        [*_SINGLE, *(Xid(code, meaning, origin, first, repeated) for codes, meaning, origin, first, repeated in _GROUPS for code in codes)]
    )
}
