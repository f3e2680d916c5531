"""`shoal why`: one explanation on one screen - the state, each reason with its numbers, the place in line, what would help."""

from __future__ import annotations

from shoal.model.reason import Holder, Reason, ReasonCode
from shoal.model.wire import Explanation
from shoal.render.amounts import bytes_text, thousandths_text
from shoal.render.look import Look, clean, span, wrap

_REASONS_SHOWN_MAX = 5
_HOLDERS_SHOWN_MAX = 4
_HINTS_SHOWN_MAX = 8
_NAMES_SHOWN_MAX = 8


def explanation_screen(why: Explanation, look: Look) -> list[str]:
    """The whole answer, for a terminal of 24 lines where the reasons are few."""
    colour = "green" if why.state in ("RUNNING", "SUCCEEDED") else "yellow"
    lines = [f"Job {look.paint(clean(why.job), 'bold')} is {look.paint(clean(why.state), colour)}"]
    lines += wrap(why.headline, look, "  ", "  ")
    for reason in why.reasons[:_REASONS_SHOWN_MAX]:
        lines += ["", *_reason(reason, why, look)]
    if len(why.reasons) > _REASONS_SHOWN_MAX:
        lines.append(f"  ... and {len(why.reasons) - _REASONS_SHOWN_MAX} more reasons (--json shows all)")
    return lines + _standing(why, look) + _hints(why, look)


def _reason(reason: Reason, why: Explanation, look: Look) -> list[str]:
    bullet = look.pick("•", "*")
    since = f" (for {look.since(reason.since_ms)})" if reason.since_ms else ""
    said = "" if reason.message in why.headline else reason.message
    numbers = reason_numbers(reason)
    if not said and not since:  # The headline has said it: its numbers stand in its place.
        said, numbers = ", ".join(numbers) or "as above", []
    lines = wrap(f"{said}{since}", look, "    ", f"  {bullet} {look.paint(str(reason.code), 'cyan')}: ")
    if numbers:
        lines += wrap(", ".join(numbers), look, "      ", "      ")
    if reason.holders:
        lines += wrap("held by " + "; ".join(_holder(holder) for holder in reason.holders[:_HOLDERS_SHOWN_MAX]), look, "      ", "      ")
    if reason.code is ReasonCode.EXPECTED:  # It names who ends, and the line of the earliest start says when.
        return lines
    if reason.blockers:
        label = "free on" if reason.code is ReasonCode.FRAGMENTATION else "in the way"
        lines += wrap(f"{label}: {_names(reason.blockers)}", look, "      ", "      ")
    if reason.until_ms:
        lines.append(f"      until {look.clock(reason.until_ms)} ({look.ago(reason.until_ms)})")
    return lines


def reason_numbers(reason: Reason) -> list[str]:
    """The numbers of a reason, each with its word; those that do not apply are left out."""
    named = f" {reason.resource}" if reason.resource else ""
    numbers = []
    if reason.asked is not None:
        where = f" on {_nodes(reason.nodes_asked)}" if reason.nodes_asked is not None else ""
        numbers.append(f"asks for {_count(reason.resource, reason.asked)}{named}{where}")
    if reason.free is not None:
        of_all = f" of {_count(reason.resource, reason.capacity)}" if reason.capacity is not None else ""
        numbers.append(f"free {_count(reason.resource, reason.free)}{of_all}")
    elif reason.capacity is not None:
        numbers.append(f"there are {_count(reason.resource, reason.capacity)}{'' if reason.asked is not None else named} in all")
    if reason.quota_short_by is not None:
        numbers.append(f"short by {_count(reason.resource, reason.quota_short_by)}")
    if reason.nodes_asked is not None and reason.nodes_fitting is not None:
        now = "" if reason.code is ReasonCode.FLEET_NEVER else " now"
        numbers.append(f"{_nodes(reason.nodes_fitting)} could take one part{now}")
    if reason.largest_domain is not None:
        numbers.append(f"largest room: {reason.largest_domain} with {_nodes(reason.largest_free or 0)}")
    return numbers


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _count(resource: str | None, value: int) -> str:
    if resource in ("memory", "gpu_memory"):
        return bytes_text(value)
    return thousandths_text(value) if resource == "cpu" else str(value)


def _holder(holder: Holder) -> str:
    who = holder.project if holder.project == holder.queue else f"{holder.project}/{holder.queue}"
    return f"{clean(who)}: {holder.jobs} job{'s' if holder.jobs != 1 else ''}, {holder.gpus} GPU{'s' if holder.gpus != 1 else ''}"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(clean(name) for name in names[:_NAMES_SHOWN_MAX])
    return shown + (f" and {len(names) - _NAMES_SHOWN_MAX} more" if len(names) > _NAMES_SHOWN_MAX else "")


def _standing(why: Explanation, look: Look) -> list[str]:
    lines: list[str] = []
    if why.position is not None:
        ahead = f", after {_names(why.ahead)}" if why.ahead else ", next in line"
        lines += wrap(
            f"Position {why.position} in queue {why.queue}{ahead if why.position > 1 or why.ahead else ', next in line'}", look, "  ", ""
        )
    if why.earliest_start_ms is not None:
        lines.append(f"Earliest start: {look.clock(why.earliest_start_ms)} ({look.ago(why.earliest_start_ms)})")
        if why.forecast_within_ms is not None:
            lines += wrap(
                f"of the last {why.forecasts} such forecasts here, four in five were right within {_width(why)}", look, "  ", "  "
            )
    return ["", *lines] if lines else []


def _width(why: Explanation) -> str:
    late = why.forecast_late_ms or 0
    usually = "" if abs(late) < 1_000 else f", and half started {span(abs(late))} {'later' if late > 0 else 'earlier'} than told or sooner"
    return f"{span(why.forecast_within_ms or 0)}{usually}"


def _hints(why: Explanation, look: Look) -> list[str]:
    hints = list(dict.fromkeys([*why.hints, *(hint for reason in why.reasons for hint in reason.hints)]))
    if not hints:
        return []
    dash = look.pick("→", "->")
    return ["", "What would help:"] + [line for hint in hints[:_HINTS_SHOWN_MAX] for line in wrap(hint, look, "     ", f"  {dash} ")]
