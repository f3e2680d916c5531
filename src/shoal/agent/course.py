"""
The course of an allocation on this node: from Prepare to its last word, one short method per thing that happens.

Everything is called from the engine's thread. Orders to the supervisor are collected (`order`) and given together by the engine; whatever
they say can be derived again from the holds and the supervisor's list, so that a lost supervisor or a killed agent costs no state
(`takeup.py`). Doing anything twice equals doing it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shoal.agent.checkpoints import Checkpoints
from shoal.agent.devices import DeviceTable
from shoal.agent.holds import Asked, Began, Ended, Hold, HoldJournal, Made, Over, Phase, Regrouped, Told, stronger
from shoal.agent.mail import LogsOf, Mail
from shoal.agent.parts import drop_parts, find_part, make_parts
from shoal.agent.ports import Ports, hold_port
from shoal.agent.probe.protocol import DeviceGone, Probe
from shoal.agent.runtimes.host import SETUP_RANK, HostRuntime, Ready, signal_number
from shoal.agent.supervisor import wire
from shoal.agent.unprepared import Unprepared, from_os_error
from shoal.agent.use import Meter
from shoal.base import limits
from shoal.base.clock import Clock
from shoal.base.rng import Rng
from shoal.model.command import Commit, Member, Prepare, Regroup, Save, Stop
from shoal.model.event import (
    AllocationPrepared,
    AllocationReleased,
    AllocationStarted,
    AllocationUnkillable,
    PrepareFailed,
    TaskExited,
)
from shoal.model.job import CancelMode, Usage
from shoal.model.part import DevicePart
from shoal.model.reason import Reason, ReasonCode
from shoal.model.wire import LeaseTerms

log = logging.getLogger(__name__)

ASK_AGAIN_MS = 500
QUICK_CHECK_MS = 50
QUICK_CHECKS = 10
"""A driver lists a process for some milliseconds after its end; only what stays longer makes a device DIRTY."""

Answer = Callable[[wire.Result], None]


@dataclass(slots=True)
class Course:
    """See module. `aside` runs slow work elsewhere; `address` is where peers reach this node."""

    journal: HoldJournal
    mail: Mail
    runtime: HostRuntime
    probe: Probe
    meter: Meter
    clock: Clock
    rng: Rng
    address: str
    prepare_aside: Callable[[Prepare], None]
    aside: Callable[[Callable[[], None]], None]
    ports: Ports = hold_port
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    holds: dict[str, Hold] = field(default_factory=dict)
    devices: DeviceTable = field(default_factory=DeviceTable)
    orders: list[tuple[wire.Order, Answer | None]] = field(default_factory=list)
    checkpoints: Checkpoints = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(self.clock, self.runtime.private, self.mail.report)

    # --- commands -------------------------------------------------------------------------------------------------------
    def prepare(self, order: Prepare) -> None:
        """Takes the allocation. A Prepare that was seen before, or is of a lower attempt than one that is held, is dropped."""
        if order.allocation in self.holds:
            return
        if any(hold.order.job == order.job and hold.order.attempt > order.attempt for hold in self.holds.values()):
            log.warning("dropped Prepare of %s: a later attempt is held", order.allocation)
            return
        try:
            self.devices.lock(order)
            hold = self.journal.take(order)
        except Unprepared as unprepared:
            self.mail.report(_prepare_failed(order, unprepared))
            return
        except OSError as error:
            self.devices.unlock(order)
            self.mail.report(_prepare_failed(order, from_os_error(error, "taking the job")))
            return
        self.holds[hold.id] = hold
        self.make(hold)

    def make(self, hold: Hold) -> None:
        """Directories, files, secrets: at once, or aside where they must be fetched."""
        if not self.runtime.is_light(hold.order):
            self.prepare_aside(hold.order)
            return
        outcome: Ready | Unprepared
        try:
            outcome = self.runtime.prepare(hold.order)
        except Unprepared as unprepared:
            outcome = unprepared
        self.prepared(hold.id, outcome)

    def prepared(self, allocation: str, outcome: Ready | Unprepared) -> None:
        hold = self.holds.get(allocation)
        if hold is None or hold.phase is not Phase.PREPARING:
            return
        if hold.stop is not None:
            self.release(hold)
            return
        try:
            if isinstance(outcome, Unprepared):
                raise outcome
            hold.ready = replace(outcome, seen=make_parts(self.probe, hold.order))
            if hold.order.claim.node_rank == 0:
                hold.port = self.ports(self.rng, hold.port_number)
        except Unprepared as unprepared:
            self.fail(hold, unprepared)
            return
        hold.write(Made(port=hold.port.port if hold.port is not None else 0))
        self.mail.report(AllocationPrepared(allocation=hold.id, attempt=hold.order.attempt, address=self.address, port=hold.port_number))
        if hold.order.commit_at_once:
            self.commit_alone(hold)

    def fail(self, hold: Hold, unprepared: Unprepared) -> None:
        """Nothing is held any more, and it never ran."""
        log.warning("cannot run %s: %s", hold.id, unprepared)
        self.mail.report(_prepare_failed(hold.order, unprepared))
        self._let_go(hold, None)

    def commit(self, commit: Commit) -> None:
        """All members are prepared: start."""
        hold = self.holds.get(commit.allocation)
        if hold is None:
            self._say_gone(commit.allocation, commit.attempt, "the agent does not have it any more")
        elif hold.phase is Phase.PREPARED:
            hold.write(Began(commit=commit, at_ms=self.clock.now_ms()))
            self.begin(hold)

    def commit_alone(self, hold: Hold) -> None:
        """A gang of one node needs nobody's consent."""
        order = hold.order
        members = (Member(node=order.claim.node, tasks=len(order.claim.tasks), address=self.address),)
        ids = {"allocation": hold.id, "job": order.job, "attempt": order.attempt}
        self.commit(Commit(**ids, master_address=self.address, master_port=hold.port_number, members=members))  # type: ignore[arg-type]

    def regroup(self, order: Regroup) -> None:
        """The gang has other members: the hostfile says so, then the tasks are told. One that ends needs not know."""
        hold = self.holds.get(order.allocation)
        if hold is None or hold.phase is not Phase.STARTED or hold.stop is not None or hold.order.attempt != order.attempt:
            return
        hold.write(Regrouped(members=order.members))
        try:
            self.runtime.write_hostfile(hold.order, hold.meeting)
        except OSError as error:
            log.error("the hostfile of %s could not be written, so its tasks are not told of their new peers: %s", hold.id, error)
            return
        if order.signal is not None:
            hold.regroup_signals = dict.fromkeys(hold.ranks, order.signal)
            self.press_signals(hold)

    def save(self, order: Save) -> None:
        """The tasks are told to save; that they have is looked for from now on."""
        hold = self.holds.get(order.allocation)
        if hold is None or hold.phase is not Phase.STARTED or hold.stop is not None or hold.asked is not None:
            return
        hold.write(Asked(save=order, mark_ns=self.checkpoints.mark(hold.id)))
        self.press_signals(hold)

    def press_signals(self, hold: Hold) -> None:
        """
        Gives the signals that tell something to each rank that has not had them: a second one could begin the saving anew.

        A program that is still loading is not ready for it; then it is tried again until it is, or the job is stopped.
        """
        hold.ask_again_ms = None
        asked = hold.asked
        for rank in [rank for rank in hold.ranks if rank not in hold.exits and hold.stop is None]:
            if rank in hold.regroup_signals:
                order = wire.Signal(hold.id, signal_number(hold.regroup_signals[rank]), rank)
                self.orders.append((order, lambda result, rank=rank: self._regrouped(hold, rank, result)))  # type: ignore[misc]
            if asked is not None and asked.save.signal is not None and rank not in asked.given and not hold.answered:
                order = wire.Signal(hold.id, signal_number(asked.save.signal), rank)
                self.orders.append((order, lambda result, rank=rank: self._asked(hold, rank, result)))  # type: ignore[misc]

    def _regrouped(self, hold: Hold, rank: int, result: wire.Result) -> None:
        if isinstance(result, wire.Failed):
            hold.ask_again_ms = self.clock.monotonic_ms() + ASK_AGAIN_MS
        else:
            hold.regroup_signals.pop(rank, None)

    def _asked(self, hold: Hold, rank: int, result: wire.Result) -> None:
        if isinstance(result, wire.Failed):
            hold.ask_again_ms = self.clock.monotonic_ms() + ASK_AGAIN_MS
        elif hold.asked is not None:
            hold.write(Asked(save=hold.asked.save, mark_ns=hold.asked.mark_ns, given=(*hold.asked.given, rank)))

    def stop(self, stop: Stop) -> None:
        """The stop ladder, or at once where nothing runs."""
        hold = self.holds.get(stop.allocation)
        if hold is None:
            self._say_gone(stop.allocation, stop.attempt, "")
        elif hold.phase in (Phase.PREPARING, Phase.PREPARED, Phase.STARTED) and stronger(stop.mode, hold.stop_mode):
            hold.write(Told(stop=stop))
            if hold.phase is Phase.PREPARED:
                self.release(hold)
            elif hold.phase is Phase.STARTED:
                self.press_stop(hold)

    def kill(self, allocation: str) -> None:
        """The control plane says that this is not ours to run."""
        hold = self.holds.get(allocation)
        if hold is None:
            return
        if hold.phase is Phase.RELEASED:
            self.forget(allocation)
        else:
            log.warning("told to kill %s", allocation)
            ids = {"allocation": hold.id, "job": hold.order.job, "attempt": hold.order.attempt}
            self.stop(Stop(**ids, mode=CancelMode.FORCE, signal="KILL", grace_ms=0))  # type: ignore[arg-type]

    def forget(self, allocation: str) -> None:
        """The control plane has recorded its end: journal and logs go."""
        hold = self.holds.get(allocation)
        if hold is None or hold.phase is not Phase.RELEASED:
            return
        del self.holds[allocation]
        self.journal.drop(hold)
        self.mail.forget(logs_of(hold))
        self.aside(lambda: self.runtime.drop_logs(*logs_of(hold)))
        if hold.order.spec.workdir is not None:
            keep = {other.order.spec.workdir.blob or "" for other in self.holds.values() if other.order.spec.workdir is not None}
            self.aside(lambda: self.runtime.trim_blobs(keep))

    # --- the start ------------------------------------------------------------------------------------------------------
    def begin(self, hold: Hold) -> None:
        """Gives up the port, then starts the setup script or the tasks."""
        assert hold.ready is not None
        if hold.port is not None:
            hold.port.release()
            hold.port = None
        try:
            self.runtime.write_hostfile(hold.order, hold.meeting)
        except OSError as error:
            self.fail(hold, from_os_error(error, "writing the hostfile"))
            return
        self.mail.follow(logs_of(hold))
        self.orders.append((self.runtime.opening(hold.order, self.terms), None))
        if hold.order.spec.setup is not None:
            spawn = self.runtime.setup(hold.order, hold.ready, hold.meeting)
            self.orders.append((spawn, lambda result: self._spawned(hold, result)))
        else:
            self.spawn_tasks(hold)

    def spawn_tasks(self, hold: Hold) -> None:
        assert hold.ready is not None
        for task in hold.order.claim.tasks:
            spawn = self.runtime.task(hold.order, hold.ready, hold.meeting, task)
            self.orders.append((spawn, lambda result: self._spawned(hold, result)))

    def _spawned(self, hold: Hold, result: wire.Result) -> None:
        if hold.phase is not Phase.STARTED:
            return
        if not isinstance(result, wire.Failed):
            self.tell_started(hold)
            return
        if result.kind == "late":
            hold.reason = _lease_reason(hold)
        elif result.kind != "busy":
            hold.reason = Reason(code=ReasonCode.PREPARE_FAILED, message=f"the job could not be started: {result.message}")
        self.end_by_force(hold)

    def end_by_force(self, hold: Hold) -> None:
        """Ends what runs of it, and the hold also if nothing does."""
        self.orders.append((wire.Stop(hold.id, force=True), lambda stopped: self._never_ran(hold, stopped)))

    def _never_ran(self, hold: Hold, stopped: wire.Result) -> None:
        """What could not be started and has nothing running that a Stopped event would tell of."""
        if isinstance(stopped, wire.Failed) and hold.phase is Phase.STARTED:
            self.empty(hold, 0, 0)

    def tell_started(self, hold: Hold) -> None:
        """Once per agent; said twice it is no news."""
        if not hold.told_started:
            hold.told_started = True
            self.meter.begin(hold.id)
            self.mail.report(AllocationStarted(allocation=hold.id, attempt=hold.order.attempt, at_ms=self.clock.now_ms()))

    # --- ends -----------------------------------------------------------------------------------------------------------
    def exited(self, event: wire.Exited) -> None:
        """A task ended. After the last one what is left in the group goes too, as at the end of a container."""
        hold = self.holds.get(event.allocation)
        if hold is None or hold.phase is not Phase.STARTED:
            return
        self.end_task(hold, event.task)
        if event.task.rank == SETUP_RANK and event.task.exit_code == 0 and hold.stop is None:
            self.spawn_tasks(hold)
        self.after_ends(hold, event.alive, event.cpu_ms, event.memory_bytes_max)

    def end_task(self, hold: Hold, task: wire.TaskLook) -> None:
        if task.rank in hold.exits or task.exit_code is None:
            return
        self.checkpoints.look_last(hold)
        report = TaskExited(
            allocation=hold.id,
            attempt=hold.order.attempt,
            rank=task.rank,
            exit_code=task.exit_code,
            signal=task.signal,
            oom=task.oom,
            at_ms=task.at_ms,
            stopped=task.stopped,
        )
        hold.write(Ended(report=report))
        self.mail.report(report)

    def after_ends(self, hold: Hold, alive: bool, cpu_ms: int, memory_bytes_max: int) -> None:
        """Looks whether the allocation is through."""
        if not hold.all_exited and not (hold.stop is not None and not alive):
            return
        if alive:
            self.orders.append((wire.Stop(hold.id, force=True), None))
        else:
            self.empty(hold, cpu_ms, memory_bytes_max)

    def stopped(self, event: wire.Stopped) -> None:
        """A stop is through: nothing of it is left."""
        hold = self.holds.get(event.allocation)
        if hold is None or hold.phase is Phase.RELEASED:
            self.orders.append((wire.Forget(event.allocation), None))
        elif hold.phase is Phase.STARTED:
            hold.reason = hold.reason or why_stopped(hold, event.why)
            self.empty(hold, event.cpu_ms, event.memory_bytes_max)

    def unkillable(self, event: wire.Unkillable) -> None:
        hold = self.holds.get(event.allocation)
        if hold is not None:
            self.mail.report(AllocationUnkillable(allocation=hold.id, attempt=hold.order.attempt, pids=event.pids))
            hold.device_checks = QUICK_CHECKS
            self._tell_dirty()

    def press_stop(self, hold: Hold) -> None:
        """Tells the supervisor the strongest stop so far."""
        stop = hold.stop
        if stop is not None and stronger(stop.mode, hold.stop_given):
            hold.stop_given = stop.mode
            order = wire.Stop(hold.id, signal_number(stop.signal), stop.grace_ms, stop.mode is CancelMode.FORCE)
            self.orders.append((order, lambda result: self._never_ran(hold, result)))

    def lose_devices(self, uuids: tuple[str, ...]) -> None:
        """GPUs fell off: whoever has one cannot go on."""
        for hold in tuple(self.holds.values()):
            gone = [uuid for uuid in hold.order.claim.gpus_touched if uuid in uuids]
            if gone and hold.phase in (Phase.PREPARED, Phase.STARTED) and hold.reason is None:
                hold.reason = Reason(code=ReasonCode.DEVICE_LOST, message=f"GPU {gone[0]} is gone")
                if hold.phase is Phase.PREPARED:
                    self.release(hold)
                else:
                    self.end_by_force(hold)

    # --- giving back ----------------------------------------------------------------------------------------------------
    def empty(self, hold: Hold, cpu_ms: int, memory_bytes_max: int) -> None:
        """No process is left. Its devices are looked at before anybody else gets them."""
        self.checkpoints.look_last(hold)
        hold.phase = Phase.EMPTY
        hold.usage = self.meter.usage(hold.id, cpu_ms, memory_bytes_max)
        self.check_devices(hold)

    def check_devices(self, hold: Hold) -> None:
        """Releases the hold once nothing has its devices open; until then they are DIRTY."""
        claim = hold.order.claim
        if any(self._is_open(uuid) for uuid in claim.devices) or any(self._is_part_open(part, hold) for part in claim.parts):
            hold.device_checks += 1
            slow = hold.device_checks > QUICK_CHECKS
            hold.next_check_ms = self.clock.monotonic_ms() + (limits.LOST_DEVICE_CHECK_MS if slow else QUICK_CHECK_MS)
            self._tell_dirty()
            return
        hold.device_checks = 0
        self.release(hold)
        self._tell_dirty()

    def tick(self) -> int | None:
        """Looks again at devices that were busy, and for checkpoints; the monotonic instant of the next look."""
        now_ms = self.clock.monotonic_ms()
        for hold in tuple(self.holds.values()):
            if hold.phase is Phase.EMPTY and hold.next_check_ms <= now_ms:
                self.check_devices(hold)
            if hold.ask_again_ms is not None and hold.ask_again_ms <= now_ms:
                self.press_signals(hold)
        next_ms = [hold.next_check_ms for hold in self.holds.values() if hold.phase is Phase.EMPTY]
        next_ms += [hold.ask_again_ms for hold in self.holds.values() if hold.ask_again_ms is not None]
        look_ms = self.checkpoints.look(self.holds)
        return min([*next_ms, *([] if look_ms is None else [look_ms])], default=None)

    def _is_open(self, uuid: str) -> bool:
        try:
            return bool(self.probe.processes(uuid))
        except DeviceGone:
            return False  # the group is empty; that the device is broken is told by the health look

    def _is_part_open(self, part: DevicePart, hold: Hold) -> bool:
        """An instance like a GPU; a shared GPU is open while a process has it that belongs to none of its other holders."""
        uuid = find_part(self.probe, part)
        if uuid is None:
            return False  # no instance, no process in it
        if part.mode == "mig":
            return self._is_open(uuid)
        others = {pid for name in self.devices.holders(uuid) if name != hold.id for pid in self.meter.pids(name)}
        try:
            return not others.issuperset(self.probe.processes(uuid))
        except DeviceGone:
            return False

    def _tell_dirty(self) -> None:
        dirty = [hold for hold in self.holds.values() if hold.device_checks >= QUICK_CHECKS]
        self.mail.set_dirty(tuple(sorted({uuid for hold in dirty for uuid in hold.order.claim.gpus_touched})))

    def release(self, hold: Hold) -> None:
        """Gives everything back; the last word follows the last bytes of the logs."""
        if hold.commit is not None:
            self.orders.append((wire.Forget(hold.id), None))
        reason = hold.reason
        if reason is not None and reason.code is ReasonCode.PREPARE_FAILED and not hold.told_started:
            self.fail(hold, Unprepared(reason.message))
            return
        report = AllocationReleased(
            allocation=hold.id, attempt=hold.order.attempt, at_ms=self.clock.now_ms(), usage=hold.usage, reason=reason
        )
        self._let_go(hold, report)
        self.mail.last_word(report, logs_of(hold))

    def _let_go(self, hold: Hold, report: AllocationReleased | None) -> None:
        self.runtime.wipe_secrets(hold.id)
        if hold.port is not None:
            hold.port.release()
            hold.port = None
        drop_parts(self.probe, hold.order)
        self.devices.unlock(hold.order)
        hold.write(Over(report=report))
        self.aside(lambda: self.runtime.clean(hold.id))

    def _say_gone(self, allocation: str, attempt: int, why: str) -> None:
        reason = Reason(code=ReasonCode.SUPERVISOR_LOST, message=why) if why else None
        self.mail.report(
            AllocationReleased(allocation=allocation, attempt=attempt, at_ms=self.clock.now_ms(), usage=Usage(), reason=reason)
        )


def _prepare_failed(order: Prepare, unprepared: Unprepared) -> PrepareFailed:
    ids = {"allocation": order.allocation, "attempt": order.attempt}
    return PrepareFailed(**ids, reason=unprepared.reason, fatal=unprepared.fatal, of_node=unprepared.of_node)  # type: ignore[arg-type]


def logs_of(hold: Hold) -> LogsOf:
    return hold.order.job, hold.order.attempt, hold.log_ranks


def why_stopped(hold: Hold, why: str) -> Reason | None:
    """The reason for a stop that the supervisor made by itself; None for one that was asked for."""
    if why == "lease":
        return _lease_reason(hold)
    if why == "supervisor-lost":
        message = "the node's supervisor was killed while the job ran, so its work was killed too"
        return Reason(code=ReasonCode.SUPERVISOR_LOST, message=message)
    if why == "shutdown" and hold.stop is None:
        return Reason(code=ReasonCode.NODE_LOST, message="the node was shut down")
    return None


def _lease_reason(hold: Hold) -> Reason:
    seconds = hold.order.spec.on_disconnect.stop_after.ms // 1000
    return Reason(code=ReasonCode.NODE_LOST, message=f"no contact with the control plane for {seconds} s: the node stopped its work")
