"""
A node's supervisor as tests want it: tasks that run on virtual time, and the truth about what runs where.

The fake side of `agent.supervisor`. It outlives its agent, keeps every report until it is confirmed, stops work by itself when the lease
formula says so, and drops commands of lower attempts. How a task behaves is read from its job's labels:

    run_ms     how long it runs (0)          exit      its exit code (0)          ignores   "term": only a kill ends it
    prepare    fail, fatal or hang           prepare_ms  how long preparing takes (0)

`Machine` also is the witness: it notes when a device is given to two allocations at once, and which attempts ran when.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.lifecycle import lease
from shoal.model.command import Command, Commit, Prepare, Regroup, Save, Stop
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationStarted, PrepareFailed, Report, TaskExited
from shoal.model.job import CancelMode, Usage
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import Held, LeaseTerms

PORT = 29_500


@dataclass(slots=True)
class Work:
    """One allocation on this machine. `phase`: preparing, prepared, running, over."""

    order: Prepare
    ready_ms: int
    phase: str = "preparing"
    ends_ms: int | None = None
    kill_ms: int | None = None
    signal: int | None = None
    """The stop that has reached it: 15, then 9."""
    lease_over: bool = False

    @property
    def held_state(self) -> str:
        return {"preparing": "CLAIMED", "prepared": "PREPARED", "running": "STARTED", "over": "RELEASED"}[self.phase]

    def label(self, name: str, default: str = "") -> str:
        return self.order.spec.labels.get(name, default)


@dataclass(slots=True)
class Machine:
    """See module. Times are virtual; `advance` does what has come due, commands are obeyed at once."""

    name: str
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    works: dict[str, Work] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    """Not confirmed yet."""
    first_seq: int = 0
    renewed_ms: int | None = None
    """When the last renewal that was answered was sent."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Highest attempt seen, by job: the fencing token at work."""
    violations: list[str] = field(default_factory=list)
    refuses: bool = False
    """Prepares nothing, by its own fault."""
    ran: list[tuple[str, int]] = field(default_factory=list)
    """(job, attempt) of every start."""

    regrouped: list[tuple[str, int]] = field(default_factory=list)
    asked_to_save: list[str] = field(default_factory=list)
    """(allocation, members) of every change of a gang that it was told."""

    # --- obeying -----------------------------------------------------------------------------------------------------------
    def obey(self, command: Command, now_ms: int) -> None:
        """Makes a command true; one that was obeyed before, or of a lower attempt, changes nothing."""
        if command.attempt < self.attempts.get(command.job, 0):
            return
        self.attempts[command.job] = command.attempt
        if isinstance(command, Prepare):
            self._prepare(command, now_ms)
            return
        work = self.works.get(command.allocation)
        if work is None:
            return
        if isinstance(command, Commit):
            self._meet(work, command)
            if work.phase == "prepared":
                self._start(work, now_ms)
        elif isinstance(command, Regroup):
            self.regrouped.append((command.allocation, len(command.members)))
        elif isinstance(command, Save):
            self.asked_to_save.append(command.allocation)
        else:
            self._stop(work, command, now_ms)

    def _prepare(self, order: Prepare, now_ms: int) -> None:
        if order.allocation in self.works:
            return
        taken = {device: w.order.allocation for w in self.works.values() if w.phase != "over" for device in w.order.claim.devices}
        for device in order.claim.devices:
            if device in taken:
                self.violations.append(f"{self.name}: device {device} given to {order.allocation} while {taken[device]} has it")
        work = self.works[order.allocation] = Work(order, ready_ms=now_ms)
        work.ready_ms = now_ms + int(work.label("prepare_ms", "0"))

    def _meet(self, work: Work, commit: Commit) -> None:
        """Notes a gang that is not told whole, with every member's address, in the order of ranks."""
        told, order = commit.members, work.order
        whole = all(member.address for member in told) and self.name in [member.node for member in told]
        if not order.claim.joined:  # A gang that is resized in place may have changed again since this one was told to prepare.
            whole = whole and sum(member.tasks for member in told) == order.world_size and told[order.claim.node_rank].node == self.name
        if not whole:
            self.violations.append(f"{self.name}: {order.allocation} is to start in a gang of {told}")

    def _stop(self, work: Work, stop: Stop, now_ms: int) -> None:
        if work.phase in ("preparing", "prepared"):
            self._release(work, now_ms)
        elif work.phase == "running":
            if stop.mode is CancelMode.FORCE:
                self.kill(work.order.allocation, now_ms)
            else:
                self._signal(work, now_ms, stop.grace_ms)

    def _signal(self, work: Work, now_ms: int, grace_ms: int) -> None:
        kill_ms = now_ms + grace_ms
        work.kill_ms = kill_ms if work.kill_ms is None else min(work.kill_ms, kill_ms)
        if work.label("ignores") != "term" and work.signal is None:
            work.signal, work.ends_ms = 15, now_ms

    def kill(self, allocation: str, now_ms: int) -> None:
        """The end of its whole control group, at once."""
        work = self.works.get(allocation)
        if work is None or work.phase == "over":
            return
        if work.phase == "running":
            work.signal = 9
            self._end(work, now_ms)
        else:
            self._release(work, now_ms)

    # --- time --------------------------------------------------------------------------------------------------------------
    def advance(self, now_ms: int) -> None:
        """What has come due: preparations, ends, the kill after a grace, the stop when the lease has run out."""
        for work in tuple(self.works.values()):
            self._mind_lease(work, now_ms)
            if work.phase == "preparing" and now_ms >= work.ready_ms:
                self._ready(work, now_ms)
            if work.phase == "running":
                if work.kill_ms is not None and now_ms >= work.kill_ms and (work.ends_ms is None or work.ends_ms > now_ms):
                    work.signal, work.ends_ms = 9, now_ms
                if work.ends_ms is not None and now_ms >= work.ends_ms:
                    self._end(work, now_ms)

    def next_ms(self) -> int | None:
        """When `advance` will next have something to do."""
        times: list[int] = []
        for work in self.works.values():
            if work.phase == "preparing" and work.label("prepare") != "hang":
                times.append(work.ready_ms)
            if work.phase == "running":
                times.extend(t for t in (work.ends_ms, work.kill_ms) if t is not None)
            if work.phase != "over" and not work.lease_over and self.renewed_ms is not None:
                times.append(lease.stop_by(self.renewed_ms, work.order.spec, self.terms))
        return min(times, default=None)

    def _mind_lease(self, work: Work, now_ms: int) -> None:
        """The supervisor's own stop: it alone makes sure that nothing runs past its lease."""
        if work.phase == "over" or self.renewed_ms is None or now_ms < lease.stop_by(self.renewed_ms, work.order.spec, self.terms):
            return
        work.lease_over = True
        if work.phase == "running":
            self._signal(work, now_ms, work.order.spec.stop.grace.ms)
        else:
            self._release(work, now_ms)

    def _ready(self, work: Work, now_ms: int) -> None:
        how, order = work.label("prepare"), work.order
        if how == "hang":
            return
        if how in ("fail", "fatal") or self.refuses:
            reason = Reason(code=ReasonCode.PREPARE_FAILED, message="the disk is full" if self.refuses else "as its label says")
            ids = {"allocation": order.allocation, "attempt": order.attempt}
            self._say(PrepareFailed(**ids, reason=reason, fatal=how == "fatal", of_node=self.refuses))  # type: ignore[arg-type]
            work.phase = "over"
            return
        work.phase = "prepared"
        self._say(AllocationPrepared(allocation=order.allocation, attempt=order.attempt, address=self.name, port=PORT))
        if order.commit_at_once:
            self._start(work, now_ms)

    def _start(self, work: Work, now_ms: int) -> None:
        work.phase = "running"
        work.ends_ms = now_ms + int(work.label("run_ms", "0"))
        self.ran.append((work.order.job, work.order.attempt))
        self._say(AllocationStarted(allocation=work.order.allocation, attempt=work.order.attempt, at_ms=now_ms))

    def _end(self, work: Work, now_ms: int) -> None:
        stopped = work.signal is not None
        code = 128 + work.signal if work.signal is not None else int(work.label("exit", "0"))
        for task in work.order.claim.tasks:
            self._say(
                TaskExited(
                    allocation=work.order.allocation,
                    attempt=work.order.attempt,
                    rank=task.rank,
                    exit_code=code,
                    signal=work.signal,
                    at_ms=now_ms,
                    stopped=stopped,
                )
            )
        self._release(work, now_ms)

    def _release(self, work: Work, now_ms: int) -> None:
        work.phase = "over"
        reason = Reason(code=ReasonCode.NODE_LOST, message="the lease ran out") if work.lease_over else None
        self._say(
            AllocationReleased(
                allocation=work.order.allocation, attempt=work.order.attempt, at_ms=now_ms, usage=Usage(cpu_ms=1), reason=reason
            )
        )

    def _say(self, report: Report) -> None:
        self.reports.append(report)

    # --- the agent's side ----------------------------------------------------------------------------------------------------
    def held(self) -> tuple[Held, ...]:
        """What an agent that starts finds here."""
        return tuple(
            Held(allocation=name, job=work.order.job, attempt=work.order.attempt, state=work.held_state)
            for name, work in self.works.items()
        )

    def confirm(self, through_seq: int) -> None:
        """Reports up to this number are recorded."""
        done = min(max(0, through_seq - self.first_seq), len(self.reports))
        del self.reports[:done]
        self.first_seq += done

    def forget(self, allocation: str) -> None:
        """Recorded as ended: what is left of it may go."""
        work = self.works.get(allocation)
        if work is not None and work.phase == "over":
            del self.works[allocation]

    def running(self) -> tuple[tuple[str, int], ...]:
        """(job, attempt) of what has processes now."""
        return tuple((w.order.job, w.order.attempt) for w in self.works.values() if w.phase == "running")
