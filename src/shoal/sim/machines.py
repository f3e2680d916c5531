"""
What machines do with commands in a replay: prepare, start, work for as long as the trace says, stop when told.

`answer` takes commands and gives back the reports that will come, each with its time; it is the agents' side of the outbox, and knows
of jobs only how long they run. A report about work that was stopped in the meantime is dropped when its time comes (`still_true`).
Members of a gang speak in reverse order of rank: whoever asks "are all ready?" after each then sees the first, who is not, at once.
A silent machine goes on with its work, hears nothing and tells nothing; what it would have told waits until it is back (`come_back`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shoal.formats.workload import TraceJob
from shoal.model.command import Command, CommandRow, Commit, Prepare, Save, Stop
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationStarted, Checkpointed, Report, TaskExited
from shoal.model.job import CancelMode

PORT = 29_500
"""The rendezvous port of every gang; nothing listens there."""
_KILLED = {CancelMode.GRACEFUL: 15, CancelMode.FORCE: 9}


class Reports(NamedTuple):
    """What the machines of one gang will say at `at_ms`. `ends`: the work's own end, void if it was stopped before."""

    at_ms: int
    job: str
    reports: tuple[Report, ...]
    ends: bool = False


class _Work(NamedTuple):
    """An allocation on a machine."""

    node: str
    ranks: tuple[int, ...]


class Machines:
    """See module. `told` has how each live job behaves, by job id; whoever submits a job puts it there."""

    def __init__(self) -> None:
        self.told: dict[str, TraceJob] = {}
        self.silent: dict[str, int] = {}
        """Silent machines, with since when."""
        self._work: dict[str, _Work] = {}
        """Allocations that are on a machine and have not been told to stop."""
        self._started: set[str] = set()
        self._nodes: dict[str, str] = {}
        """Where an allocation is, until it is released."""
        self._end_ms: dict[tuple[str, int], int] = {}
        """When the work of an elastic job's attempt that has started ends, by job and attempt."""
        self._begun_ms: dict[str, int] = {}
        """Since when the work that is not saved has been done, of jobs that can save, by job."""
        self._saved_ms: dict[str, int] = {}
        """How long the work took that such a job has saved: its next attempt goes on from there."""
        self._unread: dict[str, list[CommandRow]] = {}
        self._unsaid: dict[str, list[Report]] = {}

    def answer(self, rows: Iterable[CommandRow], now_ms: int) -> tuple[Reports, ...]:
        """The reports that these commands of one job lead to, soonest first. Commands to silent machines wait."""
        prepares: list[Prepare] = []
        commits: list[Command] = []
        stops: list[Stop] = []
        saves: list[Save] = []
        for row in rows:
            if row.node in self.silent:
                self._unread.setdefault(row.node, []).append(row)
            elif isinstance(row.body, Prepare):
                prepares.append(row.body)
            elif isinstance(row.body, Stop):
                stops.append(row.body)
            elif isinstance(row.body, Save):
                saves.append(row.body)
            else:
                commits.append(row.body)
        answers = (*self._prepare(prepares, now_ms), *self._commit(commits, now_ms), *self._stop(stops, now_ms))
        return (*answers, *self._save(saves, now_ms)) if saves else answers

    def _prepare(self, prepares: list[Prepare], now_ms: int) -> tuple[Reports, ...]:
        if not prepares:
            return ()
        job = prepares[0].job
        at_ms = now_ms + self.told[job].prepare_ms
        reports: list[Report] = []
        alone: list[str] = []
        for order in reversed(prepares):
            ids = {"allocation": order.allocation, "attempt": order.attempt}
            node = order.claim.node
            self._work[order.allocation] = _Work(node, tuple([task.rank for task in order.claim.tasks]))
            self._nodes[order.allocation] = node
            reports.append(AllocationPrepared(**ids, address=node, port=PORT))  # type: ignore[arg-type]
            if order.commit_at_once:
                reports.append(AllocationStarted(**ids, at_ms=at_ms))  # type: ignore[arg-type]
                alone.append(order.allocation)
        answers = Reports(at_ms, job, tuple(reports))
        return (answers, *self._ends(job, prepares[0].attempt, alone, at_ms))

    def _commit(self, commits: list[Command], now_ms: int) -> tuple[Reports, ...]:
        """Also a machine that hears of it late, or a second time, starts once."""
        fresh = [order for order in commits if isinstance(order, Commit) and order.allocation in self._work]
        fresh = [order for order in fresh if order.allocation not in self._started]
        if not fresh:
            return ()
        job, attempt = fresh[0].job, fresh[0].attempt
        starts = tuple(AllocationStarted(allocation=order.allocation, attempt=order.attempt, at_ms=now_ms) for order in reversed(fresh))
        return (Reports(now_ms, job, starts), *self._ends(job, attempt, [order.allocation for order in fresh], now_ms))

    def _ends(self, job: str, attempt: int, allocations: list[str], start_ms: int) -> tuple[Reports, ...]:
        self._started.update(allocations)
        told = self.told[job]
        if told.run_ms is None or not allocations:
            return ()
        at_ms = start_ms + told.run_ms
        if told.save_ms is not None:
            at_ms = max(start_ms, at_ms - self._saved_ms.get(job, 0))
            self._begun_ms[job] = start_ms
        if told.spec.elastic is not None:
            # Whoever joins later ends with the gang: how much faster more members are, a trace does not say.
            at_ms = max(start_ms, self._end_ms.setdefault((job, attempt), at_ms))
        reports: list[Report] = []
        for allocation in reversed(allocations):
            for rank in self._work[allocation].ranks:
                reports.append(TaskExited(allocation=allocation, attempt=attempt, rank=rank, exit_code=told.exit_code, at_ms=at_ms))
            reports.append(AllocationReleased(allocation=allocation, attempt=attempt, at_ms=at_ms))
        return (Reports(at_ms, job, tuple(reports), True),)

    def _stop(self, stops: list[Stop], now_ms: int) -> tuple[Reports, ...]:
        """At once for a kill, else after the time that the job takes, but no later than its grace."""
        by_time: dict[int, list[Report]] = {}
        for order in stops:
            if order.allocation not in self._nodes:
                continue
            wait_ms = 0 if order.mode is CancelMode.FORCE else min(self.told[order.job].stop_ms, order.grace_ms)
            work = self._work.pop(order.allocation, None)
            ranks = work.ranks if work is not None and order.allocation in self._started else ()
            signal = _KILLED[order.mode]
            mine = by_time.setdefault(now_ms + wait_ms, [])
            mine += _stopped(order.allocation, order.attempt, ranks, signal, now_ms + wait_ms)
        return tuple(Reports(at_ms, stops[0].job, tuple(reports)) for at_ms, reports in sorted(by_time.items()))

    def _save(self, saves: list[Save], now_ms: int) -> tuple[Reports, ...]:
        """One of a gang says it for all; who cannot save says nothing, and is stopped when its time is over."""
        asked = [order for order in saves if order.allocation in self._started and order.allocation in self._work]
        took_ms = self.told[saves[0].job].save_ms
        if took_ms is None or not asked:
            return ()
        first, at_ms = asked[0], now_ms + took_ms
        said = Checkpointed(allocation=first.allocation, attempt=first.attempt, at_ms=at_ms, answers=True)
        return (Reports(at_ms, first.job, (said,)),)

    def stop_itself(self, allocation: str, job: str, attempt: int, now_ms: int) -> tuple[Reports, ...]:
        """A machine out of touch has come to the end of its lease: its supervisor stops the work."""
        work = self._work.pop(allocation, None)
        if work is None:
            return ()
        at_ms = now_ms + self.told[job].stop_ms
        return (Reports(at_ms, job, tuple(_stopped(allocation, attempt, work.ranks, 15, at_ms))),)

    def still_true(self, coming: Reports) -> tuple[Report, ...]:
        """What is said now of what was to be said: not of work that was stopped before, and nothing by a silent machine."""
        said: list[Report] = []
        released: list[str] = []
        for report in coming.reports:
            node = self._nodes.get(report.allocation)
            of_end = isinstance(report, TaskExited | AllocationReleased)
            stopped = report.allocation not in self._work and (coming.ends or not of_end)
            if node is None or stopped:
                continue
            if node in self.silent:
                self._unsaid.setdefault(node, []).append(report)
            else:
                said.append(report)
            if isinstance(report, Checkpointed):
                self._keep_saved(coming.job, report.at_ms)
            if isinstance(report, AllocationReleased):
                released.append(report.allocation)
        for allocation in released:
            self._let_go(allocation)
        return tuple(said)

    def _keep_saved(self, job: str, at_ms: int) -> None:
        begun_ms = self._begun_ms.get(job, at_ms)
        self._saved_ms[job] = self._saved_ms.get(job, 0) + at_ms - begun_ms
        self._begun_ms[job] = at_ms

    def is_void(self, coming: Reports) -> bool:
        """Whether nothing of it can be true any more: all of it was the end of work that was stopped before."""
        return coming.ends and not any(report.allocation in self._work for report in coming.reports)

    def _let_go(self, allocation: str) -> None:
        self._work.pop(allocation, None)
        self._nodes.pop(allocation, None)
        self._started.discard(allocation)

    def fall_silent(self, node: str, now_ms: int) -> None:
        self.silent.setdefault(node, now_ms)

    def come_back(self, node: str) -> tuple[tuple[CommandRow, ...], tuple[Report, ...]]:
        """The commands that it finds and the reports that it has, in order."""
        self.silent.pop(node, None)
        return tuple(self._unread.pop(node, ())), tuple(self._unsaid.pop(node, ()))

    def reboot(self, node: str) -> None:
        """All that ran there is gone, and nobody tells how it ended; commands wait no more."""
        self.come_back(node)
        for allocation in [held for held, where in self._nodes.items() if where == node]:
            self._let_go(allocation)


def _stopped(allocation: str, attempt: int, ranks: tuple[int, ...], signal: int, at_ms: int) -> list[Report]:
    ids = {"allocation": allocation, "attempt": attempt}
    exits: list[Report] = [
        TaskExited(**ids, rank=rank, exit_code=128 + signal, signal=signal, at_ms=at_ms, stopped=True)  # type: ignore[arg-type]
        for rank in ranks
    ]
    return [*exits, AllocationReleased(**ids, at_ms=at_ms)]  # type: ignore[arg-type]
