"""The course of an allocation, step by step: commands and events in, orders to the supervisor and reports out. No process is started."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from orders import GPUS, JOB, members, prepare

from shoal.agent.course import Course
from shoal.agent.devices import instance_key
from shoal.agent.engine import Engine
from shoal.agent.holds import HoldJournal, Phase
from shoal.agent.home import make_home
from shoal.agent.keeper import Keeper
from shoal.agent.lease import Lease
from shoal.agent.mail import Mail
from shoal.agent.messages import Came, Message
from shoal.agent.outbox import Outbox
from shoal.agent.probe.protocol import DeviceGone, DeviceUse, PartFailed
from shoal.agent.runtimes.host import HostRuntime
from shoal.agent.supervisor import wire
from shoal.agent.takeup import go_on, reconcile, restore
from shoal.agent.unprepared import Unprepared
from shoal.agent.use import Meter
from shoal.base.errors import NotFound
from shoal.base.rng import Rng
from shoal.model.command import Command, CommandRow, Commit, Prepare, Regroup, Stop
from shoal.model.event import Report
from shoal.model.job import CancelMode, Elastic, JobSpec, WorkDir
from shoal.model.node import Device
from shoal.model.part import DevicePart
from shoal.model.reason import ReasonCode
from shoal.model.values import CountRange
from shoal.model.wire import LeaseTerms
from shoal.testing.clock import SimulatedClock

ALLOCATION = f"{JOB}.1.0"


class Shelf:
    def fetch_blob(self, sha256: str, target: Path) -> None:
        raise NotFound("none")

    def secrets(self, allocation: str) -> dict[str, bytes]:
        return {}


@dataclass
class Bench:
    """Devices on which tests put processes by hand."""

    pretended: bool = True
    open_by: dict[str, tuple[int, ...]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)
    refuse: str = ""

    def devices(self) -> tuple[Device, ...]:
        return ()

    def driver(self) -> str | None:
        return None

    def use(self, uuids: tuple[str, ...]) -> dict[str, DeviceUse]:
        return {}

    def processes(self, uuid: str) -> tuple[int, ...]:
        if uuid in self.gone:
            raise DeviceGone(uuid)
        return self.open_by.get(uuid, ())

    def part_uuid(self, part: DevicePart) -> str | None:
        key = instance_key(part)
        return part.device if part.mode != "mig" else f"MIG-{part.start}" if key in self.made else None

    def make_part(self, part: DevicePart) -> str:
        if self.refuse:
            raise PartFailed(self.refuse)
        if part.mode == "mig" and instance_key(part) not in self.made:
            self.made.append(instance_key(part))
        return self.part_uuid(part) or ""

    def drop_part(self, part: DevicePart) -> None:
        if instance_key(part) in self.made:
            self.made.remove(instance_key(part))


class Node:
    """A course with everything around it; `again` is the next agent on the same state."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self.directory = directory
        self.seed = seed
        self.clock = SimulatedClock()
        self.bench = Bench()
        self.aside: list[Prepare] = []
        home = make_home(directory / "node", directory / "work")
        self.mail = Mail(home, Outbox(home.outbox))
        self.course = Course(
            journal=HoldJournal(home.holds),
            mail=self.mail,
            runtime=HostRuntime(home, Shelf(), {}),
            probe=self.bench,
            meter=Meter(self.bench, self.clock),
            clock=self.clock,
            rng=Rng(seed),
            address="10.0.0.1",
            prepare_aside=self.aside.append,
            aside=lambda work: work(),
        )

    def again(self, listing: wire.Listing, rebooted: bool = False) -> Node:
        for hold in self.course.holds.values():
            if hold.port is not None:
                hold.port.release()  # as the end of the process does
        node = Node(self.directory, self.seed + 1)
        restore(node.course)
        go_on(node.course, rebooted)
        node.course.orders = []
        reconcile(node.course, listing, rebooted)
        return node

    def reports(self) -> list[Report]:
        """Everything that was said so far; a last word when it may be."""
        self.mail.load()
        return list(self.mail.outbox.waiting())

    def kinds(self) -> list[str]:
        return [type(report).__name__ for report in self.reports()]

    def give(self, answer: Callable[[wire.Order], wire.Result] | None = None) -> list[wire.Order]:
        """Carries out the collected orders with the given answers (all Done by default) and returns them."""
        given: list[wire.Order] = []
        while self.course.orders:
            orders, self.course.orders = self.course.orders, []
            for order, then in orders:
                given.append(order)
                if then is not None:
                    then(answer(order) if answer is not None else wire.Done())
        return given

    def exit(self, rank: int, code: int = 0, *, alive: bool = False, stopped: bool = False) -> None:
        look = wire.TaskLook(rank, 100 + rank, code, None, False, stopped, 5)
        self.course.exited(wire.Exited(ALLOCATION, 1, look, alive, 70, 1_000))

    def stop(self, mode: CancelMode) -> None:
        self.course.stop(Stop(allocation=ALLOCATION, job=JOB, attempt=1, mode=mode, signal="USR1", grace_ms=7_000))

    @property
    def phase(self) -> Phase:
        return self.course.holds[ALLOCATION].phase


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def looked(*tasks: wire.TaskLook, alive: bool, stopping: bool = False, why: str = "") -> wire.Listing:
    return wire.Listing((wire.AllocationLook(ALLOCATION, 1, tasks, alive, stopping, why),), 1)


NOTHING = wire.Listing((), 1)


# --- the usual way --------------------------------------------------------------------------------------------------------
def test_a_job_of_one_node_goes_its_whole_way(node: Node) -> None:
    node.course.prepare(prepare(tasks=2, gpus=2))
    assert [type(order).__name__ for order in node.give()] == ["Open", "Spawn", "Spawn"]
    assert node.kinds() == ["AllocationPrepared", "AllocationStarted"]
    node.exit(0, alive=True)
    assert node.phase is Phase.STARTED
    node.exit(1, 3)
    assert node.phase is Phase.RELEASED
    assert [type(order).__name__ for order in node.give()] == ["Forget"]
    assert node.kinds()[2:] == ["TaskExited", "TaskExited", "AllocationReleased"]
    assert node.reports()[-1].usage.cpu_ms == 70  # type: ignore[union-attr]
    node.course.forget(ALLOCATION)
    assert node.course.holds == {}


def test_a_gang_waits_for_its_commit_and_the_port_is_held_until_then(node: Node) -> None:
    order = prepare(nodes=2)
    node.course.prepare(order)
    assert node.phase is Phase.PREPARED
    assert node.give() == []
    port = node.course.holds[ALLOCATION].port
    assert port is not None
    assert node.reports()[0].port == port.port  # type: ignore[union-attr]
    commit = Commit(allocation=ALLOCATION, job=JOB, attempt=1, master_address="10.0.0.1", master_port=port.port, members=members(2, 1))
    node.course.commit(commit)
    node.course.commit(commit)
    assert [type(order).__name__ for order in node.give()] == ["Open", "Spawn"]
    assert node.course.holds[ALLOCATION].port is None


def test_setup_comes_first_and_what_it_left_behind_lives_as_long_as_the_tasks(node: Node) -> None:
    node.course.prepare(prepare(JobSpec(run="true", setup="true")))
    spawned = [order.rank for order in node.give() if isinstance(order, wire.Spawn)]
    assert spawned == [-1]
    node.exit(-1, alive=True)
    assert [order.rank for order in node.give() if isinstance(order, wire.Spawn)] == [0]
    node.exit(0, alive=True)
    assert node.give() == [wire.Stop(ALLOCATION, force=True)]
    assert node.phase is Phase.STARTED
    node.course.stopped(wire.Stopped(ALLOCATION, 1, "asked"))
    assert node.phase is Phase.RELEASED
    assert node.reports()[-1].reason is None  # type: ignore[union-attr]


def test_a_failed_setup_starts_no_task(node: Node) -> None:
    node.course.prepare(prepare(JobSpec(run="true", setup="false")))
    node.give()
    node.exit(-1, 1)
    assert node.phase is Phase.RELEASED
    assert not any(isinstance(order, wire.Spawn) for order in node.give())


# --- twice, late, unknown -------------------------------------------------------------------------------------------------
def test_every_command_may_come_twice(node: Node) -> None:
    for _ in range(2):
        node.course.prepare(prepare())
    assert len([order for order in node.give() if isinstance(order, wire.Spawn)]) == 1
    for _ in range(2):
        node.stop(CancelMode.GRACEFUL)
    assert len(node.give()) == 1
    node.exit(0, 143, stopped=True)
    node.exit(0, 143, stopped=True)
    node.stop(CancelMode.FORCE)
    assert node.kinds() == ["AllocationPrepared", "AllocationStarted", "TaskExited", "AllocationReleased"]


def test_a_gang_that_is_regrouped_finds_its_members_in_the_hostfile_and_then_gets_the_signal(node: Node) -> None:
    spec = JobSpec(run="true", nodes=CountRange(1, 4), elastic=Elastic(how="in_place", signal="USR1"))
    node.course.prepare(replace(prepare(), spec=spec, commit_at_once=True))
    (spawn,) = [order for order in node.give() if isinstance(order, wire.Spawn)]
    regroup = Regroup(allocation=ALLOCATION, job=JOB, attempt=1, signal="USR1", members=members(2, 1))
    node.course.regroup(regroup)
    assert node.give() == [wire.Signal(ALLOCATION, 10, 0)]
    assert len(Path(spawn.env["SHOAL_HOSTFILE"]).read_text().splitlines()) == 2
    assert len(node.course.holds[ALLOCATION].meeting.members) == 2
    node.stop(CancelMode.GRACEFUL)
    node.give()
    node.course.regroup(regroup)
    assert node.give() == []


def test_a_lower_attempt_is_dropped(node: Node) -> None:
    later = replace(prepare(), attempt=2, allocation=f"{JOB}.2.0")
    node.course.prepare(later)
    node.course.prepare(prepare())
    assert set(node.course.holds) == {later.allocation}


def test_commands_for_what_is_not_here_are_answered_with_gone(node: Node) -> None:
    node.stop(CancelMode.GRACEFUL)
    node.course.commit(Commit(allocation=ALLOCATION, job=JOB, attempt=1, master_address="", master_port=0, members=()))
    assert node.kinds() == ["AllocationReleased", "AllocationReleased"]
    assert [report.reason is None for report in node.reports()] == [True, False]  # type: ignore[union-attr]


def test_a_commit_after_a_stop_starts_nothing(node: Node) -> None:
    order = prepare(nodes=2)
    node.course.prepare(order)
    node.stop(CancelMode.GRACEFUL)
    node.course.commit(Commit(allocation=ALLOCATION, job=JOB, attempt=1, master_address="a", master_port=1, members=members(2, 1)))
    assert node.give() == []
    assert node.kinds() == ["AllocationPrepared", "AllocationReleased"]


def test_a_stop_that_comes_while_files_are_fetched_counts_when_they_are_there(node: Node) -> None:
    node.course.prepare(prepare(JobSpec(run="true", workdir=WorkDir(blob="ab" * 32))))
    assert len(node.aside) == 1
    node.stop(CancelMode.GRACEFUL)
    assert node.phase is Phase.PREPARING
    node.course.prepared(ALLOCATION, Unprepared("not to be had"))
    assert node.kinds() == ["AllocationReleased"]


# --- stops ----------------------------------------------------------------------------------------------------------------
def test_a_stronger_stop_goes_through_and_a_weaker_one_does_not(node: Node) -> None:
    node.course.prepare(prepare())
    node.give()
    node.stop(CancelMode.GRACEFUL)
    assert node.give() == [wire.Stop(ALLOCATION, 10, 7_000, False)]
    node.stop(CancelMode.FORCE)
    node.stop(CancelMode.GRACEFUL)
    assert node.give() == [wire.Stop(ALLOCATION, 10, 7_000, True)]


def test_the_end_of_the_lease_is_the_reason(node: Node) -> None:
    node.course.prepare(prepare())
    node.give()
    node.exit(0, 143, alive=True, stopped=True)
    node.course.stopped(wire.Stopped(ALLOCATION, 1, "lease"))
    reason = node.reports()[-1].reason  # type: ignore[union-attr]
    assert reason is not None
    assert reason.code is ReasonCode.NODE_LOST
    assert "300 s" in reason.message


def test_what_the_control_plane_disowns_is_killed(node: Node) -> None:
    """Platform case 13: a record was purged, the agent still holds the job."""
    node.course.prepare(prepare(gpus=1))
    node.give()
    node.course.kill(ALLOCATION)
    assert [order.force for order in node.give() if isinstance(order, wire.Stop)] == [True]
    node.course.stopped(wire.Stopped(ALLOCATION, 1, "asked"))
    assert node.course.devices.held() == ()
    node.course.kill(ALLOCATION)
    assert node.course.holds == {}


# --- refusals -------------------------------------------------------------------------------------------------------------
def test_a_held_device_is_refused_with_its_holder_and_free_again_after_the_release(node: Node) -> None:
    node.course.prepare(prepare(gpus=1))
    node.give()
    other = replace(prepare(gpus=1), allocation="other.1.0", job="other")
    node.course.prepare(other)
    failed = node.reports()[-1]
    assert type(failed).__name__ == "PrepareFailed"
    assert ALLOCATION in failed.reason.message  # type: ignore[union-attr]
    assert (failed.fatal, failed.of_node) == (False, True)  # type: ignore[union-attr]
    node.exit(0)
    node.course.prepare(other)
    assert node.course.devices.holders(GPUS[0]) == ("other.1.0",)


def test_what_cannot_be_started_is_a_failed_prepare_and_frees_the_devices(node: Node) -> None:
    node.course.prepare(prepare(gpus=1))
    node.give(lambda order: wire.Done() if isinstance(order, wire.Forget) else wire.Failed("system", "No space left on device"))
    assert node.kinds()[-1] == "PrepareFailed"
    assert "No space left" in node.reports()[-1].reason.message  # type: ignore[union-attr]
    assert node.course.devices.held() == ()


def test_a_commit_that_comes_after_the_lease_starts_nothing(node: Node) -> None:
    def answer(order: wire.Order) -> wire.Result:
        return wire.Failed("late", "too late") if isinstance(order, wire.Spawn) else wire.Done()

    node.course.prepare(prepare())
    node.give(answer)
    node.course.stopped(wire.Stopped(ALLOCATION, 1, "asked"))
    assert node.kinds() == ["AllocationPrepared", "AllocationReleased"]
    assert node.reports()[-1].reason.code is ReasonCode.NODE_LOST  # type: ignore[union-attr]


# --- devices --------------------------------------------------------------------------------------------------------------
def test_a_device_that_is_still_open_is_dirty_and_nobody_else_s(node: Node) -> None:
    """
    1. the group is empty, but the driver still lists a process on the GPU
    2. for some looks that is patience, then the device is told as DIRTY; nothing is released
    3. the process is gone: released, clean
    """
    node.course.prepare(prepare(gpus=2))
    node.give()
    node.bench.open_by[GPUS[1]] = (4711,)
    node.exit(0)
    assert node.phase is Phase.EMPTY
    assert node.mail.load().dirty == ()
    for _ in range(12):
        node.clock.advance(1_000)
        node.course.tick()
    assert node.phase is Phase.EMPTY
    assert node.mail.load().dirty == GPUS[:2]
    assert "AllocationReleased" not in node.kinds()
    node.bench.open_by.clear()
    node.clock.advance(1_000)
    node.course.tick()
    assert node.phase is Phase.RELEASED
    assert node.mail.load().dirty == ()


def test_a_gpu_that_falls_off_ends_who_has_it(node: Node) -> None:
    node.course.prepare(prepare(gpus=1))
    node.give()
    node.bench.gone.add(GPUS[0])
    node.course.lose_devices((GPUS[0],))
    assert node.give() == [wire.Stop(ALLOCATION, force=True)]
    node.course.stopped(wire.Stopped(ALLOCATION, 1, "asked"))
    assert node.reports()[-1].reason.code is ReasonCode.DEVICE_LOST  # type: ignore[union-attr]


def test_the_unkillable_are_told_and_their_devices_are_dirty(node: Node) -> None:
    node.course.prepare(prepare(gpus=1))
    node.give()
    node.course.unkillable(wire.Unkillable(ALLOCATION, 1, (7,)))
    assert node.kinds()[-1] == "AllocationUnkillable"
    assert node.mail.load().dirty == GPUS[:1]


# --- parts of GPUs --------------------------------------------------------------------------------------------------------
OTHER = "0198c0de-0000-7000-8000-000000000002"


def slices(*starts: int) -> tuple[DevicePart, ...]:
    return tuple(DevicePart(device=GPUS[0], mode="mig", profile="1g.10gb", start=start) for start in starts)


def share(thousandths: int = 250) -> tuple[DevicePart, ...]:
    return (DevicePart(device=GPUS[0], mode="mps", thousandths=thousandths, capped=True),)


def test_instances_are_there_from_the_preparation_to_the_end_and_others_lie_beside_them(node: Node) -> None:
    """
    1. a job has two instances: they are made, and its task sees them
    2. another one lies beside them on the same GPU; one over them is refused, as is the whole GPU
    3. the first job ends: its two go, the other one stays; now the place is free
    """
    node.course.prepare(prepare(parts=slices(5, 6)))
    assert node.bench.made == [f"{GPUS[0]}@5", f"{GPUS[0]}@6"]
    spawned = [order for order in node.give() if isinstance(order, wire.Spawn)]
    assert spawned[0].env["CUDA_VISIBLE_DEVICES"] == "MIG-5,MIG-6"
    node.course.prepare(prepare(job=OTHER, parts=slices(4)))
    node.course.prepare(prepare(job="third", parts=slices(5)))
    node.course.prepare(prepare(job="fourth", gpus=1))
    refused = [report.reason.message for report in node.reports() if type(report).__name__ == "PrepareFailed"]  # type: ignore[union-attr]
    assert refused == [
        f"GPU {GPUS[0]}@5 is still held by allocation {ALLOCATION} on this node",
        f"GPU {GPUS[0]} is still held by allocation {ALLOCATION} on this node",
    ]
    node.exit(0)
    assert node.phase is Phase.RELEASED
    assert node.bench.made == [f"{GPUS[0]}@4"]
    node.course.prepare(prepare(job="third", parts=slices(5)))
    assert node.course.devices.holders(GPUS[0]) == (f"{OTHER}.1.0", "third.1.0")
    assert node.course.devices.held() == GPUS[:1]


def test_an_instance_that_cannot_be_made_is_the_node_s_fault_and_leaves_nothing(node: Node) -> None:
    node.bench.refuse = "no room"
    node.course.prepare(prepare(parts=slices(5)))
    failed = node.reports()[-1]
    assert (type(failed).__name__, failed.of_node, failed.reason.message) == ("PrepareFailed", True, "no room")  # type: ignore[union-attr]
    assert node.course.devices.held() == ()


def test_the_next_agent_finds_the_instances_of_what_runs(node: Node) -> None:
    node.course.prepare(prepare(parts=slices(5)))
    node.give()
    later = node.again(looked(wire.TaskLook(0, 100), alive=True))
    assert later.course.holds[ALLOCATION].phase is Phase.STARTED
    assert later.course.holds[ALLOCATION].ready is not None
    assert later.course.devices.holders(f"{GPUS[0]}@5") == (ALLOCATION,)
    later.exit(0)
    assert later.bench.made == []


def test_an_instance_that_is_still_open_is_dirty_and_stays(node: Node) -> None:
    node.course.prepare(prepare(parts=slices(5)))
    node.give()
    node.bench.open_by["MIG-5"] = (4711,)
    node.exit(0)
    for _ in range(12):
        node.clock.advance(1_000)
        node.course.tick()
    assert node.mail.load().dirty == GPUS[:1]
    assert node.bench.made == [f"{GPUS[0]}@5"]
    node.bench.open_by.clear()
    node.clock.advance(1_000)
    node.course.tick()
    assert (node.phase, node.mail.load().dirty, node.bench.made) == (Phase.RELEASED, (), [])


class Counted(Meter):
    """Processes of allocations as the test says."""

    def __init__(self, node: Node, pids: dict[str, tuple[int, ...]]) -> None:
        super().__init__(node.bench, node.clock)
        self.of = pids

    def pids(self, allocation: str) -> tuple[int, ...]:
        return self.of.get(allocation, ())


def test_a_share_ends_clean_while_others_of_the_gpu_run_and_dirty_if_a_process_is_nobody_s(node: Node) -> None:
    """
    1. two jobs share a GPU; the first ends while the other one's process has it open: that is none of the first's
    2. a third one ends, and a process has the GPU open that belongs to no holder: DIRTY until it is gone
    """
    node.course.meter = Counted(node, {f"{OTHER}.1.0": (20, 21)})
    for job in (JOB, OTHER):
        node.course.prepare(prepare(job=job, parts=share()))
    node.give()
    assert node.course.devices.holders(GPUS[0]) == (ALLOCATION, f"{OTHER}.1.0")
    node.bench.open_by[GPUS[0]] = (20,)
    node.exit(0)
    assert node.phase is Phase.RELEASED
    node.course.forget(ALLOCATION)

    node.course.prepare(prepare(parts=share()))
    node.give()
    node.bench.open_by[GPUS[0]] = (20, 4711)
    node.exit(0)
    for _ in range(12):
        node.clock.advance(1_000)
        node.course.tick()
    assert (node.phase, node.mail.load().dirty) == (Phase.EMPTY, GPUS[:1])
    node.bench.open_by[GPUS[0]] = (20, 21)
    node.clock.advance(1_000)
    node.course.tick()
    assert (node.phase, node.mail.load().dirty) == (Phase.RELEASED, ())


# --- the next agent -------------------------------------------------------------------------------------------------------
def test_ends_while_no_agent_was_there_are_told_by_the_next(node: Node) -> None:
    node.course.prepare(prepare(tasks=2))
    node.give()
    after = node.again(looked(wire.TaskLook(0, 1, 5, at_ms=9), wire.TaskLook(1, 2), alive=True))
    exits = [(r.rank, r.exit_code) for r in after.reports() if type(r).__name__ == "TaskExited"]  # type: ignore[union-attr]
    assert exits == [(0, 5)]
    assert after.phase is Phase.STARTED
    after.exit(0, 5, alive=True)
    after.exit(1)
    assert after.phase is Phase.RELEASED
    assert after.kinds().count("TaskExited") == 2


def test_a_start_that_was_decided_and_not_carried_out_is_carried_out(node: Node) -> None:
    node.course.prepare(prepare())
    after = node.again(NOTHING)
    assert [type(order).__name__ for order in after.give()] == ["Open", "Spawn"]


def test_nothing_is_started_again_after_a_reboot(node: Node) -> None:
    node.course.prepare(prepare())
    after = node.again(NOTHING, rebooted=True)
    assert not any(isinstance(order, wire.Spawn) for order in after.give())
    assert after.reports()[-1].reason.code is ReasonCode.NODE_LOST  # type: ignore[union-attr]


def test_a_task_lost_with_its_supervisor_has_no_exit_and_a_reason(node: Node) -> None:
    node.course.prepare(prepare())
    node.give()
    after = node.again(looked(wire.TaskLook(0, 1, 137, 9, lost=True), alive=False, stopping=True, why="supervisor-lost"))
    assert "TaskExited" not in after.kinds()
    assert after.reports()[-1].reason.code is ReasonCode.SUPERVISOR_LOST  # type: ignore[union-attr]


def test_a_stop_that_was_taken_is_pressed_again(node: Node) -> None:
    node.course.prepare(prepare())
    node.give()
    node.stop(CancelMode.FORCE)
    after = node.again(looked(wire.TaskLook(0, 1), alive=True))
    assert wire.Stop(ALLOCATION, 10, 7_000, True) in after.give()


def test_a_last_word_that_was_not_told_is_told_once(node: Node) -> None:
    node.course.prepare(prepare())
    node.give()
    node.exit(0)
    after = node.again(looked(wire.TaskLook(0, 1, 0), alive=False))
    assert after.kinds().count("AllocationReleased") == 1
    assert wire.Forget(ALLOCATION) in after.give()
    assert after.again(NOTHING).kinds().count("AllocationReleased") == 1


def test_what_no_journal_knows_is_ended(node: Node) -> None:
    after = node.again(looked(wire.TaskLook(0, 1), alive=True))
    assert after.give() == [wire.Stop(ALLOCATION, force=True)]
    after.course.stopped(wire.Stopped(ALLOCATION, 1, "asked"))
    assert after.give() == [wire.Forget(ALLOCATION)]


def test_a_prepared_member_waits_on_with_its_port(node: Node) -> None:
    node.course.prepare(prepare(nodes=2))
    port = node.course.holds[ALLOCATION].port_number
    after = node.again(NOTHING)
    held = after.course.holds[ALLOCATION].port
    assert held is not None
    assert held.port == port
    held.release()


# --- the lease --------------------------------------------------------------------------------------------------------------
TERMS = LeaseTerms(renew_every_ms=500, ttl_ms=2_000)


def leased(node: Node) -> tuple[Engine, Lease]:
    """The deciding thread's code around the course, called by hand; no supervisor is there and none is asked."""
    lease, home = Lease(node.clock), make_home(node.directory / "node", node.directory / "work")
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    return Engine(node.course, Keeper(home, "n1", "weak", inbox.put), home, "boot", lease, inbox), lease


def came(asked_ms: int, *bodies: Command) -> Came:
    return Came(tuple(CommandRow(seq=seq, node="n1", backend="agents", body=body) for seq, body in enumerate(bodies, 1)), asked_ms)


def test_commands_asked_for_before_a_break_of_the_lease_start_nothing_and_are_not_confirmed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    engine, lease = leased(node)
    lease.renewed(node.clock.boottime_ms(), TERMS)
    asked_ms = node.clock.boottime_ms()
    node.clock.advance(5_000)  # frozen, while others got its devices
    lease.renewed(node.clock.boottime_ms(), TERMS)
    late = came(asked_ms, prepare())
    engine._handle(late)
    assert node.course.holds == {}
    assert (engine.taken, late.stale.is_set()) == (0, True)
    engine._handle(came(node.clock.boottime_ms(), prepare()))
    assert (list(node.course.holds), engine.taken) == ([ALLOCATION], 1)


def test_without_a_lease_a_stop_is_obeyed_and_nothing_else(tmp_path: Path) -> None:
    node = Node(tmp_path)
    engine, lease = leased(node)
    lease.renewed(node.clock.boottime_ms(), TERMS)
    engine._handle(came(node.clock.boottime_ms(), prepare(nodes=2)))
    node.clock.advance(2_000)
    ids = {"allocation": ALLOCATION, "job": JOB, "attempt": 1}
    engine._handle(
        Came(
            (
                CommandRow(seq=2, node="n1", backend="agents", body=Commit(**ids, master_address="a", master_port=1, members=())),  # type: ignore[arg-type]
                CommandRow(seq=3, node="n1", backend="agents", body=Stop(**ids, mode=CancelMode.FORCE, signal="KILL", grace_ms=0)),  # type: ignore[arg-type]
            ),
            node.clock.boottime_ms(),
        )
    )
    assert (node.phase, engine.taken) == (Phase.RELEASED, 1)


def test_a_lease_holds_from_the_sending_of_an_answered_renewal_and_a_late_answer_mends_no_break() -> None:
    clock = SimulatedClock()
    lease = Lease(clock)
    assert lease.has_run_out()
    assert not lease.covers(clock.boottime_ms())
    first_ms = clock.boottime_ms()
    lease.renewed(first_ms, TERMS)
    clock.advance(1_999)
    assert lease.covers(first_ms)
    second_ms = clock.boottime_ms()
    clock.advance(1)
    assert lease.has_run_out()
    lease.renewed(second_ms, TERMS)  # sent in time, answered too late
    assert not lease.has_run_out()
    assert not lease.covers(first_ms)
    assert lease.covers(second_ms)
