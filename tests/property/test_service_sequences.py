"""
A thousand random lives of the whole service: people submit, cancel, hold, drain, requeue; agents crash, machines reboot, the wire loses,
doubles and reorders; the control plane itself dies between two steps. Never, at any step: a device in two hands, two attempts of a job at
once, something held by what has ended, a live picture that is not the store. And in the end, once the faults stop, every job ends
exactly once, as it should.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serving import ANNA, SYSTEM, Service, spec_of
from shoal.base.errors import Conflict
from shoal.control import jobs, nodes, queues
from shoal.model.attempt import HOLDING
from shoal.model.event import JobEnded, RequeueRequested
from shoal.model.job import CancelMode, Dependency, Job, JobState, OnDisconnect, Retry
from shoal.model.queue import QueueSpec, Quota
from shoal.model.values import ArrayList, Duration
from shoal.model.wire import JobPatch
from shoal.testing.agents import Faults

SEQUENCES = int(os.environ.get("SHOAL_TEST_SEQUENCES", "1000"))
SHRINK = os.environ.get("SHOAL_TEST_SHRINK", "") == "1"
"""Looks for the smallest failing sequence, which takes minutes; without, the first one found is told."""
NODES = ("n1", "n2", "n3")
GPUS = 2
SMALL_GPUS = 3
"""Quota of the queue `small`, which may not borrow."""
REASONABLE_MS = 240_000
"""Virtual time in which everything must have ended once the faults have stopped: back-offs, fencing and the queue in front."""
PICK = st.integers(0, 31)


@dataclass
class Expected:
    """What may become of a job, as far as its owner has said."""

    ends: set[JobState]
    cancelled: bool = False


class ServiceLives(RuleBasedStateMachine):
    """See module."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.service = Service(seed=seed)
        self.expected: dict[str, Expected] = {}
        self.jobs: list[Job] = []
        self.boots = 1
        spec = QueueSpec(quotas={"gpu": Quota(nominal=SMALL_GPUS * 1_000, borrowing_limit=0)})
        self.service.settle(queues.set_queue(self.service.plane, SYSTEM, "small", spec))
        for name in NODES:
            self.service.add_node(name, GPUS)
        self.service.run(200)

    # --- people ------------------------------------------------------------------------------------------------------------
    @rule(
        size=st.sampled_from([(1, 0), (1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]),
        run_ms=st.sampled_from([0, 200, 1_000, 4_000]),
        kind=st.sampled_from(["good", "good", "good", "bad", "again", "long", "broken", "stubborn", "slow"]),
        depends=st.one_of(st.none(), PICK),
        queue=st.sampled_from([None, "small"]),
    )
    def submit(self, size: tuple[int, int], run_ms: int, kind: str, depends: int | None, queue: str | None) -> None:
        fields: dict[str, Any] = {"labels": {}, "on_disconnect": OnDisconnect(stop_after=Duration(4_000))}
        if size[0] * size[1] <= SMALL_GPUS:
            fields["queue"] = queue
        ends = {JobState.SUCCEEDED}
        if kind == "bad":
            fields["labels"], ends = {"exit": "3"}, {JobState.FAILED}
        elif kind == "again":
            fields["labels"], ends = {"exit": "3"}, {JobState.FAILED}
            fields["retry"] = Retry(limit=1, backoff=Duration(500))
        elif kind == "long":
            run_ms, fields["time"], ends = 60_000, Duration(1_500), {JobState.TIMEOUT}
        elif kind == "broken":
            fields["labels"], ends = {"prepare": "fatal"}, {JobState.FAILED}
        elif kind == "stubborn":
            fields["labels"] = {"ignores": "term"}
        elif kind == "slow":
            fields["labels"] = {"prepare_ms": "700"}
        if depends is not None and self.jobs:
            fields["depends_on"] = (Dependency(job=self.jobs[depends % len(self.jobs)].id, condition="afterany"),)
        job = self.service.submit(spec_of(nodes=size[0], gpus=size[1], run_ms=run_ms, **fields))
        self._expect(job, ends)

    @rule(count=st.integers(2, 5), at_once=st.integers(1, 2), code=st.sampled_from([0, 0, 4]))
    def submit_array(self, count: int, at_once: int, code: int) -> None:
        array = ArrayList.parse(f"0-{count - 1}%{at_once}")
        stop_after = OnDisconnect(stop_after=Duration(4_000))
        spec = spec_of(run_ms=200, array=array, labels={"exit": str(code)}, on_disconnect=stop_after)
        parent = self.service.submit(spec)
        self._expect(parent, {JobState.FAILED if code else JobState.SUCCEEDED})

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, mode=st.sampled_from([CancelMode.GRACEFUL, CancelMode.FORCE]))
    def cancel(self, pick: int, mode: CancelMode) -> None:
        job = self._pick(pick)
        self.service.cancel(job, mode)
        self.expected[job.id].cancelled = True

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, verb=st.sampled_from(["hold", "release", "requeue", "priority", "time", "queue"]))
    def ask(self, pick: int, verb: str) -> None:
        """What a person may ask of a job at any time; a state that does not allow it is a Conflict and no change."""
        job, plane = self._pick(pick), self.service.plane
        if job.is_array and verb != "requeue":
            return  # The plane does it in steps; see `tests/unit/control`.
        verbs = {
            "hold": partial(jobs.hold_job, plane, ANNA, "default", job.id),
            "release": partial(jobs.release_job, plane, ANNA, "default", job.id),
            "requeue": partial(jobs.requeue_job, plane, ANNA, "default", job.id),
            "priority": partial(jobs.update_job, plane, ANNA, "default", job.id, JobPatch(priority=pick)),
            "time": partial(jobs.update_job, plane, ANNA, "default", job.id, JobPatch(time="100s")),
        }
        if verb == "queue":
            small = sum(n.high * (job.spec.gpus.count if job.spec.gpus else 0) for n in (job.spec.nodes,) if n) <= SMALL_GPUS
            patch = JobPatch(queue="small" if small and pick % 2 else "default")
            verbs["queue"] = partial(jobs.update_job, plane, ANNA, "default", job.id, patch)
        before = self.service.job(job)
        try:
            self.service.settle(verbs[verb]())
        except Conflict:
            assert self.service.job(job) == before
            return
        if verb == "time" and JobState.TIMEOUT in self.expected[job.id].ends:
            self.expected[job.id].ends.add(JobState.SUCCEEDED)

    @rule(name=st.sampled_from(NODES), verb=st.sampled_from([nodes.drain_node, nodes.cordon_node, nodes.resume_node]))
    def ask_node(self, name: str, verb: Any) -> None:
        self.service.settle(verb(self.service.plane, SYSTEM, name, "by the test"))

    # --- faults ------------------------------------------------------------------------------------------------------------
    @rule(name=st.sampled_from(NODES))
    def crash_agent(self, name: str) -> None:
        self.service.fleet.crash(name)

    @rule(name=st.sampled_from(NODES))
    def start_agent(self, name: str) -> None:
        self.service.fleet.start(name)

    @rule(name=st.sampled_from(NODES))
    def reboot(self, name: str) -> None:
        self.boots += 1
        self.service.fleet.reboot(name, f"boot-{self.boots}")

    @rule(name=st.sampled_from(NODES))
    def cut(self, name: str) -> None:
        self.service.wire.cut[name] = None

    @rule(name=st.sampled_from(NODES))
    def mend(self, name: str) -> None:
        self.service.wire.cut.pop(name, None)

    @rule(request=st.sampled_from([0, 10, 40]), reply=st.sampled_from([0, 10, 40]), repeat=st.sampled_from([0, 30]))
    def weather(self, request: int, reply: int, repeat: int) -> None:
        self.service.wire.faults = Faults(lose_request=request, lose_reply=reply, repeat=repeat)

    @rule()
    def restart_control_plane(self) -> None:
        self.service.restart()

    @rule(done=st.integers(1, 4))
    def die_between_steps(self, done: int) -> None:
        """Some of a round's steps are done, the rest never."""
        for step in self.service.plane.steps()[:done]:
            step.step(self.service.clock.now_ms())
        self.service.restart()

    # --- time --------------------------------------------------------------------------------------------------------------
    @rule(ticks=st.sampled_from([1, 1, 3, 10]))
    def go_on(self, ticks: int) -> None:
        for _ in range(ticks):
            self.service.round()
            self.service.clock.advance(100)

    @rule(for_ms=st.sampled_from([2_000, 5_000, 12_000]))
    def long_pause(self, for_ms: int) -> None:
        self.service.run(for_ms, tick_ms=500)

    # --- what must hold ----------------------------------------------------------------------------------------------------
    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "service"):
            self.service.check()
            held = [a for a in self.service.plane.world.allocations.values() if a.state in HOLDING and a.queue == "small"]
            assert sum(len(a.devices) for a in held) <= SMALL_GPUS, "the queue `small` holds more than its quota"

    def teardown(self) -> None:
        if not hasattr(self, "service"):
            return
        try:
            self._all_faults_stop()
            self._everything_ends()
            self._ends_are_right()
        finally:
            self.service.close()

    def _all_faults_stop(self) -> None:
        self.service.wire.faults = Faults()
        self.service.wire.cut.clear()
        for name in NODES:
            self.service.fleet.start(name)
            self.service.settle(nodes.resume_node(self.service.plane, SYSTEM, name))
        for job in self.jobs:
            if self.service.job(job).state is JobState.HELD and not job.is_array:
                self.service.settle(jobs.release_job(self.service.plane, ANNA, "default", job.id))

    def _everything_ends(self) -> None:
        end_ms = self.service.clock.now_ms() + REASONABLE_MS
        while not self.service.have_ended():
            assert self.service.clock.now_ms() < end_ms, self.service.live()
            self.service.round()
            self.service.clock.advance(500)
        self.service.run(1_000, tick_ms=500)
        self.service.check()
        assert self.service.free_gpus() == len(NODES) * GPUS
        assert not any(machine.running() for machine in self.service.fleet.machines.values())

    def _ends_are_right(self) -> None:
        for job in self.jobs:
            wanted, found = self.expected[job.id], self.service.job(job)
            allowed = wanted.ends | ({JobState.CANCELLED} if wanted.cancelled else set())
            assert found.state in allowed, f"{found.address} ended as {found.state}, expected {allowed}: {found.reason}"
            self._ended_once(job)
        for machine in self.service.fleet.machines.values():
            twice = [run for run, count in Counter(machine.ran).items() if count > 1]
            assert not twice, f"{machine.name} started {twice} twice"

    def _ended_once(self, job: Job) -> None:
        """One end for each life: a person may ask for another one after the end, nobody else."""
        lives, over = 1, 0
        for row in self.service.store.events_after("default", 0, 1_000, subject=job.id):
            if isinstance(row.body, JobEnded):
                over += 1
                assert over <= lives, f"{job.address} ended {over} times in {lives} lives"
            elif isinstance(row.body, RequeueRequested) and over == lives:
                lives += 1
        assert over == lives or job.is_array, f"{job.address} ended {over} times in {lives} lives"

    def _expect(self, job: Job, ends: set[JobState]) -> None:
        self.jobs.append(job)
        self.expected[job.id] = Expected(ends)

    def _pick(self, pick: int) -> Job:
        return self.jobs[pick % len(self.jobs)]


ServiceLives.TestCase.settings = settings(
    max_examples=SEQUENCES,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=(Phase.generate, Phase.shrink) if SHRINK else (Phase.generate,),
)
TestServiceLives = pytest.mark.timeout(600)(ServiceLives.TestCase)
