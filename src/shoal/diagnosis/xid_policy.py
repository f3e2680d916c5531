"""
What to do about an Xid: one table keyed by code, architecture and repetition, under the driver's own verdict (Xid 154).

Order of authority: what Xid 154 or the recovery action of the GPU says; then the catalogue (`facts.xid`); then repetition, which turns
the catalogue's first action into its second. Other tools decide otherwise on the same code; their choices can be taken by name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from shoal.facts.xid import XIDS, Action, Origin

REPEATS: Final = 2
"""A code that came back so often on one GPU, after its first action was done, is not answered by that action again."""


class Policy(StrEnum):
    """Whose way of answering an Xid."""

    SHOAL = "shoal"
    DEVICE_PLUGIN = "device-plugin"
    """NVIDIA's Kubernetes device plugin: every code but a few takes the device away until the plugin restarts."""
    GPUD = "gpud"
    """gpud: reboots, and asks for hardware inspection after two; a contained error never escalates."""


class Step(StrEnum):
    """What Shoal does with the device and its node."""

    LEAVE = "leave"
    NOTE = "note"
    HOLD_DEVICE = "hold-device"
    """No new work on the GPU; back after a quiet period and a self-test."""
    DRAIN_NODE = "drain-node"
    CORDON_NODE = "cordon-node"


class Decision(NamedTuple):
    action: Action
    step: Step
    why: str


_RECOVERY: Final[tuple[tuple[str, Action], ...]] = (
    ("drain and reset", Action.DRAIN_AND_RESET),
    ("drain p2p", Action.DRAIN_AND_RESET),
    ("reboot", Action.REBOOT),
    ("reset", Action.RESET),
    ("none", Action.NOTHING),
)
"""Words of Xid 154 and of `GPU Recovery Action`; the first that is in the text counts."""

_STEPS: Final[dict[Action, Step]] = {
    Action.NOTHING: Step.NOTE,
    Action.RESTART_APPLICATION: Step.NOTE,
    Action.RESET: Step.HOLD_DEVICE,
    Action.DRAIN_AND_RESET: Step.HOLD_DEVICE,
    Action.REBOOT: Step.DRAIN_NODE,
    Action.INSPECT: Step.HOLD_DEVICE,
    Action.REPLACE: Step.CORDON_NODE,
}

PLUGIN_IGNORES: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Codes that NVIDIA's device plugin does not take a device away for (its source, 2026)."""

_AMPERE_RESETS: Final = frozenset({94})
"""Before Ampere there is no containment: what Hopper reports as contained needs a reset there."""
_UNCONTAINED_ARCHITECTURES: Final = frozenset({"kepler", "maxwell", "pascal", "volta", "turing"})


def decide_xid(code: int, *, architecture: str = "", times: int = 1, recovery: str = "", policy: Policy = Policy.SHOAL) -> Decision:
    """
    The decision on `code`, seen `times` times on one GPU, with what the driver's recovery action says (`recovery`, empty if unknown).

    An unknown code holds the device: unknown is not harmless.
    """
    said = next((action for words, action in _RECOVERY if words in recovery.lower()), None)
    if said is not None and policy is Policy.SHOAL:
        return Decision(said, _STEPS[said], f"the driver asks for it: {recovery}")
    row = XIDS.get(code)
    if policy is Policy.DEVICE_PLUGIN:
        ignored = code in PLUGIN_IGNORES
        return Decision(Action.NOTHING, Step.LEAVE if ignored else Step.HOLD_DEVICE, "as NVIDIA's device plugin")
    if row is None:
        return Decision(Action.INSPECT, Step.HOLD_DEVICE, f"Xid {code} is not in the catalogue")
    action = row.first
    if times >= REPEATS and not (policy is Policy.GPUD and row.origin is Origin.CONTAINED):
        action = row.repeated
    elif code in _AMPERE_RESETS and architecture.lower() in _UNCONTAINED_ARCHITECTURES:
        action = Action.DRAIN_AND_RESET
    if policy is Policy.GPUD and action in (Action.RESET, Action.DRAIN_AND_RESET):
        action = Action.REBOOT
    return Decision(action, _STEPS[action], row.meaning if times < REPEATS else f"{row.meaning}, {times} times on one GPU")
