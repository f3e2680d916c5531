"""Who ran where and when, for a picture: a bar per job that has ended or runs, from a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from shoal.model.attempt import HOLDING
from shoal.sim.replay import BASE_MS, Replay

BARS_MAX = 5_000
"""Jobs in a picture: more are a solid block."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A job on its nodes, in seconds from the start of the trace; `start_s` of the attempt that ended it."""

    number: int
    start_s: float
    end_s: float
    gpus: float
    name: str
    """As a file names it; empty for a trace."""
    nodes: tuple[str, ...]


def bars_of(replay: Replay, names: Mapping[int, str] | None = None) -> tuple[Bar, ...]:
    """
    The first BARS_MAX jobs that ended, and of those that run now what they have run; `names` by number. None where the record did not keep
    where they were.
    """
    record = replay.record
    if record.where is None:
        return ()
    ran = ((at, record.start[at], record.end[at]) for at in range(min(len(record), BARS_MAX)) if record.start[at] >= 0)
    ended = tuple(
        Bar(
            number=record.number[at],
            start_s=(start - BASE_MS) / 1_000,
            end_s=(end - BASE_MS) / 1_000,
            gpus=record.gpu_milli[at] / 1_000,
            name=(names or {}).get(record.number[at], ""),
            nodes=record.where[at],
        )
        for at, start, end in ran
    )
    return (*ended, *_running(replay, names or {}))


def _running(replay: Replay, names: Mapping[int, str]) -> Iterator[Bar]:
    for _, job in sorted(replay.world.jobs.items())[:BARS_MAX]:
        members = [member for member in replay.world.members.get(job.id, {}).values() if member.state in HOLDING]
        if members and job.started_ms is not None:
            yield Bar(
                number=job.number,
                start_s=(job.started_ms - BASE_MS) / 1_000,
                end_s=replay.time_ms / 1_000,
                gpus=sum(member.gpu_milli for member in members) / 1_000,
                name=names.get(job.number, ""),
                nodes=tuple(sorted(member.node for member in members)),
            )
