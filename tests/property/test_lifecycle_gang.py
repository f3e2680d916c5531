"""
A gang under everything that goes wrong: nodes that are cut off, reboot or answer twice, people who change their minds, clocks that go on.

The agents here are a small model of what an agent promises (`Agent`); the control plane's side is the real lifecycle. After every step:
the audit of `Gang` holds, and no two attempts of the job have a process alive. At the end everything heals, and the job must come to
an end with nothing held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.base import limits
from shoal.base.errors import Conflict
from shoal.lifecycle.job import time_events
from shoal.lifecycle.lease import gone_by
from shoal.lifecycle.node import register, silence_of
from shoal.lifecycle.orders import is_wanted
from shoal.model.command import Commit, Prepare, Save, Stop
from shoal.model.event import (
    AllocationPrepared,
    AllocationReleased,
    AllocationStarted,
    CancelRequested,
    Checkpointed,
    JobEvicted,
    JobHeld,
    JobUnheld,
    PrepareFailed,
    RequeueRequested,
    TaskExited,
)
from shoal.model.job import ENDED, LIVE, CancelMode, Checkpoint, JobState, Retry, Usage
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration
from shoal.model.wire import Held, Register
from shoal.testing.gangs import TERMS, Gang, a_node, a_reason, a_spec

NODES = ("n0", "n1", "n2")
SAVES = (
    None,
    Checkpoint(signal="USR1"),
    Checkpoint(signal="USR1", takes=Duration(100_000)),
    Checkpoint(every=Duration(40_000), takes=Duration(5_000)),
)
LAG_MS = 3_000
"""How far an agent's clock may be behind: less than the skew that the terms allow, by more than one step of time here."""
STEP_MS = 1_900
assert TERMS.skew_ms > LAG_MS + STEP_MS


@dataclass
class Work:
    """One allocation on a node as its agent has it."""

    prepare: Prepare
    running: bool = False
    over: bool = False
    asked: bool = False
    """To save."""
    fell: bool = False
    """A reboot ended it."""
    exits: dict[int, int] = field(default_factory=dict)

    @property
    def ids(self) -> dict[str, Any]:
        return {"allocation": self.prepare.allocation, "attempt": self.prepare.attempt}


class Agent:
    """Does what it is told once, in order; keeps its reports until they are confirmed; stops by itself when its lease is long gone."""

    def __init__(self, name: str, now_ms: int) -> None:
        self.node = a_node(name)
        self.work: dict[str, Work] = {}
        self.reports: list[Any] = []
        self.connected = True
        self.renewed_ms = now_ms

    def say(self, kind: type, work: Work, **fields: Any) -> None:
        self.reports.append(kind(**work.ids, **fields))

    def obey(self, body: Any, prepares_well: bool, now_ms: int) -> None:
        work = self.work.get(body.allocation)
        if isinstance(body, Prepare) and work is None:
            work = self.work[body.allocation] = Work(body)
            if not prepares_well:
                work.over = True
                self.say(PrepareFailed, work, reason=a_reason())
                return
            self.say(AllocationPrepared, work, address=self.node.id, port=29_500)
            if body.commit_at_once:
                self.start(work, now_ms)
        elif isinstance(body, Commit) and work is not None and not work.over and not work.running:
            self.start(work, now_ms)
        elif isinstance(body, Save):
            assert work is not None, "nobody is asked to save who has not started"
            work.asked = True
        elif isinstance(body, Stop) and (work is None or not work.over):
            if work is None:
                self.reports.append(AllocationReleased(allocation=body.allocation, attempt=body.attempt))
            else:
                self.stop(work, now_ms)

    def start(self, work: Work, now_ms: int) -> None:
        work.running = True
        self.say(AllocationStarted, work, at_ms=now_ms)

    def exit(self, work: Work, rank: int, exit_code: int, now_ms: int, stopped: bool) -> None:
        work.exits[rank] = exit_code
        signal = 15 if stopped and exit_code else None
        self.say(TaskExited, work, rank=rank, exit_code=exit_code, signal=signal, at_ms=now_ms, stopped=stopped)
        if len(work.exits) == len(work.prepare.claim.tasks):
            self.release(work, now_ms)

    def stop(self, work: Work, now_ms: int, why: ReasonCode | None = None) -> None:
        if work.running:
            for task in work.prepare.claim.tasks:
                if task.rank not in work.exits:
                    work.exits[task.rank] = 143
                    self.say(TaskExited, work, rank=task.rank, exit_code=143, signal=15, at_ms=now_ms, stopped=True)
        self.release(work, now_ms, why)

    def release(self, work: Work, now_ms: int, why: ReasonCode | None = None) -> None:
        work.running, work.over = False, True
        reason = a_reason(why, "the lease ran out") if why else None
        self.say(AllocationReleased, work, at_ms=now_ms, usage=Usage(cpu_ms=1), reason=reason)

    def mind_lease(self, now_ms: int) -> None:
        """Rule 3, as late as it may be: the ladder starts at `stop_by`, its last process is gone at `gone_by`."""
        for work in self.work.values():
            if not work.over and now_ms >= gone_by(self.renewed_ms, work.prepare.spec, TERMS):
                self.stop(work, now_ms, ReasonCode.NODE_LOST)

    def reboot(self) -> None:
        self.node = a_node(self.node.id, boot_id=self.node.facts.boot_id + "'")
        for work in self.work.values():
            work.running, work.over, work.fell = False, True, not work.over or work.fell

    @property
    def held(self) -> tuple[Held, ...]:
        unsaid = {report.allocation for report in self.reports}
        return tuple(
            Held(allocation=name, job=w.prepare.job, attempt=w.prepare.attempt, state="STARTED" if w.fell or not w.over else "RELEASED")
            for name, w in self.work.items()
            if not w.over or w.fell or name in unsaid
        )


class GangUnderFire(RuleBasedStateMachine):
    @initialize(
        nodes=st.integers(1, 3), tasks=st.integers(1, 2), retries=st.integers(0, 2), limit=st.booleans(), saves=st.sampled_from(SAVES)
    )
    def begin(self, nodes: int, tasks: int, retries: int, limit: bool, saves: Checkpoint | None) -> None:
        time = Duration(120_000) if limit else None
        self.gang = Gang(a_spec(nodes, tasks_per_node=tasks, retry=Retry(limit=retries), time=time, checkpoint=saves))
        self.agents = {name: Agent(name, self.gang.now_ms) for name in NODES}
        self.mail: dict[str, list[Any]] = {name: [] for name in NODES}
        self.told: list[Any] = []
        self.usage_ms = 0

    # --- both sides ------------------------------------------------------------------------------------------------------
    def post(self) -> None:
        """What the control plane has decided goes into the mailboxes."""
        rows, self.gang.sent = self.gang.sent, []
        for row in rows:
            self.mail[row.node].append(row.body)

    def tell(self, event: Any, by: str = "shoal") -> None:
        self.gang.tell(event, by)
        assert self.gang.tell(event, by).empty, "the same event twice"
        self.post()

    def poll(self, agent: Agent, prepares_well: bool = True) -> None:
        """One command, as the outbox has it; first the lease is renewed."""
        agent.renewed_ms = self.gang.now_ms
        if self.mail[agent.node.id]:
            body = self.mail[agent.node.id].pop(0)
            if is_wanted(body, self.gang.allocations.get(body.allocation)):
                agent.obey(body, prepares_well, self.gang.now_ms)

    def upload(self, agent: Agent) -> None:
        agent.renewed_ms = self.gang.now_ms
        if agent.reports:
            self.told.append(agent.reports[0])
            self.tell(agent.reports.pop(0))

    def registers(self, agent: Agent) -> None:
        known = a_node(agent.node.id, boot_id=self.boots.get(agent.node.id, "boot-1"))
        on_node = [a for a in self.gang.holding if a.node == agent.node.id]
        answer = register(known, Register(facts=agent.node.facts, store_id="s", held=agent.held), on_node, "s", self.gang.now_ms)
        self.boots[agent.node.id] = agent.node.facts.boot_id
        for _, event in answer.events:
            self.tell(event)
        for name in answer.kill:
            if not agent.work[name].over:
                agent.stop(agent.work[name], self.gang.now_ms)

    @property
    def boots(self) -> dict[str, str]:
        return self.__dict__.setdefault("_boots", {})  # type: ignore[no-any-return]

    # --- what may happen -------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.gang.job.state is JobState.QUEUED)
    @rule()
    def place(self) -> None:
        self.gang.place()
        self.post()

    @rule(rounds=st.integers(1, 3), uploads=st.integers(0, 3))
    def things_go_well_for_a_while(self, rounds: int, uploads: int) -> None:
        """Without this most runs would never get a gang to run: it needs a dozen right steps in a row."""
        for _ in range(rounds):
            if self.gang.job.state is JobState.QUEUED:
                self.place()
            for name in NODES:
                self.agent_polls(name, True)
                self.agent_uploads(name, uploads)

    @rule(name=st.sampled_from(NODES), prepares_well=st.sampled_from([True, True, True, False]))
    def agent_polls(self, name: str, prepares_well: bool) -> None:
        if self.agents[name].connected:
            self.poll(self.agents[name], prepares_well)

    @rule(name=st.sampled_from(NODES), count=st.integers(1, 4))
    def agent_uploads(self, name: str, count: int) -> None:
        for _ in range(count if self.agents[name].connected else 0):
            self.upload(self.agents[name])

    @precondition(lambda self: bool(self.told))
    @rule(which=st.integers(0, 1_000))
    def an_old_report_comes_again(self, which: int) -> None:
        before = self.gang.version
        self.gang.tell(self.told[which % len(self.told)])
        assert self.gang.version == before, "a report that was recorded is no news"

    @rule(name=st.sampled_from(NODES), exit_code=st.sampled_from([0, 0, 0, 1]))
    def a_task_ends(self, name: str, exit_code: int) -> None:
        agent = self.agents[name]
        for work in agent.work.values():
            left = [t.rank for t in work.prepare.claim.tasks if t.rank not in work.exits]
            if work.running and left:
                agent.exit(work, left[0], exit_code, self.gang.now_ms, stopped=False)
                return

    @rule(name=st.sampled_from(NODES), off_ms=st.sampled_from([0, 0, -1_000_000, 1_000_000]))
    def the_job_says_that_it_has_saved(self, name: str, off_ms: int) -> None:
        """By a clock that may be far off."""
        agent = self.agents[name]
        for work in agent.work.values():
            if work.running:
                agent.say(Checkpointed, work, at_ms=self.gang.now_ms + off_ms, answers=work.asked)
                return

    @rule(name=st.sampled_from(NODES), really=st.booleans())
    def a_node_is_cut_off(self, name: str, really: bool) -> None:
        self.agents[name].connected = self.agents[name].connected and not really

    @rule(name=st.sampled_from(NODES), rebooted=st.booleans())
    def a_node_comes_back(self, name: str, rebooted: bool) -> None:
        agent = self.agents[name]
        if rebooted:
            agent.reboot()
        if rebooted or not agent.connected:
            agent.connected, agent.renewed_ms = True, self.gang.now_ms
            self.registers(agent)

    @rule(by_ms=st.sampled_from([2_000, 5_000, 20_000, 60_000, 130_000, 299_000, 400_000]))
    def time_passes(self, by_ms: int) -> None:
        cut_off = any(not agent.connected for agent in self.agents.values())
        for _ in range(by_ms // STEP_MS if cut_off else 1):
            self.gang.now_ms += STEP_MS if cut_off else by_ms
            for agent in self.agents.values():
                agent.renewed_ms = self.gang.now_ms if agent.connected else agent.renewed_ms
            self.judge_time()
            self.whatever_runs_is_held()
            for agent in self.agents.values():
                agent.mind_lease(self.gang.now_ms - LAG_MS)

    def judge_time(self) -> None:
        for event in time_events(self.gang.picture, self.gang.now_ms):
            self.tell(event)
        for allocation in self.gang.holding:
            heard_ms = self.agents[allocation.node].renewed_ms
            for event in silence_of(allocation, self.gang.job.spec, heard_ms, self.gang.now_ms, TERMS):
                self.tell(event)

    @rule(mode=st.sampled_from([CancelMode.GRACEFUL, CancelMode.FORCE]), really=st.integers(0, 3))
    def somebody_cancels(self, mode: CancelMode, really: int) -> None:
        if really == 0:
            self.tell(CancelRequested(mode=mode), "user/anna")

    @rule(verb=st.sampled_from([JobHeld(), JobUnheld(), RequeueRequested()]), really=st.integers(0, 2))
    def somebody_asks(self, verb: Any, really: int) -> None:
        before = self.gang.job
        if really and not isinstance(verb, JobUnheld):
            return
        try:
            self.gang.tell(verb, "user/anna")
        except Conflict:
            assert self.gang.job == before
        self.post()

    @rule(really=st.integers(0, 2))
    def room_is_needed_for_another(self, really: int) -> None:
        if really:
            return
        self.gang.tell(JobEvicted(attempt=self.gang.job.attempt, reason=a_reason(ReasonCode.PREEMPTED)))
        self.post()

    @precondition(lambda self: self.gang.job.state is JobState.QUEUED and self.gang.job.spec.checkpoint is not None)
    @rule(by_ms=st.sampled_from([1_000, 30_000, 38_000]))
    def it_runs_and_is_asked_to_save(self, by_ms: int) -> None:
        """All in one, since by chance it hardly ever comes to that."""
        self.things_go_well_for_a_while(2, 3)
        self.time_passes(by_ms)
        if self.gang.job.state is JobState.RUNNING:
            self.gang.tell(JobEvicted(attempt=self.gang.job.attempt, reason=a_reason(ReasonCode.PREEMPTED)))
            self.post()
            for name in NODES:
                self.agent_polls(name, True)

    # --- what must hold --------------------------------------------------------------------------------------------------
    @invariant()
    def nobody_is_left_time_to_save_for_ever_or_beyond_his_time_limit(self) -> None:
        if not hasattr(self, "agents") or self.gang.picture.attempt is None:
            return
        job, by_ms = self.gang.job, self.gang.picture.attempt.save_by_ms
        if by_ms is None or job.state is not JobState.PREEMPTING:
            return
        assert by_ms <= self.gang.now_ms + limits.CHECKPOINT_WAIT_MS_MAX
        assert job.started_ms is not None
        assert job.time_limit_ms is None or by_ms <= job.started_ms + job.time_limit_ms

    @invariant()
    def no_checkpoint_is_of_tomorrow(self) -> None:
        if hasattr(self, "agents") and self.gang.job.checkpointed_ms is not None:
            assert self.gang.job.checkpointed_ms <= self.gang.now_ms

    @invariant()
    def at_most_one_attempt_has_a_process(self) -> None:
        if not hasattr(self, "agents"):
            return
        alive = {w.prepare.attempt for agent in self.agents.values() for w in agent.work.values() if w.running}
        assert len(alive) <= 1, f"attempts {sorted(alive)} run at once"

    @invariant()
    def whatever_runs_is_held(self) -> None:
        if not hasattr(self, "agents"):
            return
        held = {a.id for a in self.gang.holding}
        running = {name for agent in self.agents.values() for name, w in agent.work.items() if w.running}
        assert running <= held

    def teardown(self) -> None:
        """Everything heals; the job must end, and nothing be held or run."""
        if not hasattr(self, "agents"):
            return
        for name in NODES:
            if not self.agents[name].connected:
                self.a_node_comes_back(name, False)
        for _ in range(200):
            self.round()
            if self.gang.job.state in ENDED and not any(self.mail.values()) and not any(a.reports for a in self.agents.values()):
                break
        assert self.gang.job.state in ENDED, f"{self.gang.job.state}: {self.gang.job.reason}"
        assert self.gang.holding == []
        assert not any(w.running for agent in self.agents.values() for w in agent.work.values())
        self.the_books_balance()

    def round(self) -> None:
        if self.gang.job.state is JobState.HELD:
            self.tell(JobUnheld())
        if self.gang.job.state is JobState.QUEUED:
            self.place()
        for agent in self.agents.values():
            self.poll(agent)
            for work in list(agent.work.values()):
                for task in work.prepare.claim.tasks:
                    if work.running and task.rank not in work.exits:
                        agent.exit(work, task.rank, 0, self.gang.now_ms, stopped=False)
            while agent.reports:
                self.upload(agent)
        if self.gang.job.state in LIVE:
            self.time_passes(100_000)

    def the_books_balance(self) -> None:
        released = sum(a.usage.cpu_ms for a in self.gang.allocations.values())
        assert self.gang.job.usage.cpu_ms == released
        assert self.gang.job.outcome is not None
        if self.gang.job.state is JobState.SUCCEEDED:
            exits = [code for a in self.gang.members for code in a.exits.values()]
            assert set(exits) == {0}
        if self.gang.job.state is JobState.FAILED:
            assert self.gang.job.outcome.exit_code != 0


TestGangUnderFire = GangUnderFire.TestCase
TestGangUnderFire.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
