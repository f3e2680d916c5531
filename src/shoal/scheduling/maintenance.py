"""Why a job does not start though there is room: the nodes are somebody else's before it would end. For the cycle and for `explain`."""

from __future__ import annotations

from shoal.base import limits
from shoal.base.units import format_duration_ms
from shoal.model.reason import Reason, ReasonCode
from shoal.scheduling.board import Board
from shoal.scheduling.options import options_for
from shoal.scheduling.pending import NO_LIMIT, Lane
from shoal.scheduling.policy import Policy
from shoal.scheduling.shortfall import fits_somewhere
from shoal.scheduling.windows import FOREVER, Window


def window_reason(board: Board, policy: Policy, lane: Lane, now_ms: int) -> Reason | None:
    """
    Which reservations keep the jobs of a lane out, from when, and what time limit would fit; None where nodes without them are too few.

    Costs a placement, and one for each window up to limits.HOLDERS_SHOWN_MAX.
    """
    ends_ms = FOREVER if lane.limit_ms >= NO_LIMIT else now_ms + lane.limit_ms
    state, windows = lane.state, board.windows
    if windows.closed(now_ms, ends_ms, state.passes) is None:
        return None
    options = options_for(state.shape, board.columns)
    if not fits_somewhere(board, state.shape, options, policy):
        return None
    meeting = sorted(windows.meeting(now_ms, ends_ms, state.passes), key=lambda found: (found[1], found[0]))
    shown = meeting[: limits.HOLDERS_SHOWN_MAX]
    fitting_ms = _limit_that_fits(board, policy, lane, [window for _, window in shown], now_ms)
    message = f"there is room for it, but {'; '.join(_told(board, name, window, now_ms) for name, window in shown)}"
    hints = (
        () if fitting_ms is None else (f"starts now with a time limit of at most {format_duration_ms(fitting_ms)} (shoal update --time)",)
    )
    until_ms = min(window.end_ms for _, window in meeting)
    return Reason(code=ReasonCode.MAINTENANCE, message=message, until_ms=until_ms, blockers=tuple(name for name, _ in shown), hints=hints)


def _told(board: Board, name: str, window: Window, now_ms: int) -> str:
    spec = board.windows.reservations[name].spec
    count = int(board.windows.rows_of(name).sum())
    nodes = f"{count} node{'' if count == 1 else 's'}"
    why = f" ({spec.reason})" if spec.reason else ""
    end = _in(window.end_ms - now_ms)
    if window.start_ms <= now_ms:
        return f"reservation {name}{why} has {nodes} for {end} more"
    return f"reservation {name}{why} has {nodes} from in {_in(window.start_ms - now_ms)} to in {end}, and it would still run by then"


def _in(length_ms: int) -> str:
    return format_duration_ms(-(-length_ms // 1_000) * 1_000)


def _limit_that_fits(board: Board, policy: Policy, lane: Lane, found: list[Window], now_ms: int) -> int | None:
    """The longest time limit, among those that end with the begin of a window, with which it would start now."""
    options = options_for(lane.state.shape, board.columns)
    for start_ms in sorted({window.start_ms for window in found if window.start_ms > now_ms}, reverse=True):
        with board.rooms.closing(board.windows.closed(now_ms, start_ms, lane.state.passes)):
            if fits_somewhere(board, lane.state.shape, options, policy):
                return start_ms - now_ms
    return None
