"""
Scenario files played and judged: `play` runs one for a seed, and `Verdict` says where it did not come out as the file says.

Every write is checked for INV, whatever the file expects. Expectations are looked at when all of a moment has happened. A verdict that
is not good carries the differences as "is, wanted", with why a job waits, and the story up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from shoal.base.errors import Invalid, InvariantViolated
from shoal.formats.scenario import Scenario, Span, reservation_of
from shoal.formats.scenario_sheet import Expectation, Facts, JobWant, NodeWant, QueueWant
from shoal.lifecycle.array import counted
from shoal.lifecycle.spec_rules import check_spec
from shoal.model.array import element_of, next_unborn
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.change import ChangeSet
from shoal.model.event import EventRow
from shoal.model.job import WAITING, Job
from shoal.scheduling.explain import explain_job
from shoal.scheduling.views import queue_views
from shoal.sim.audit import Audit, Played, Watch, audit
from shoal.sim.bars import Bar, bars_of
from shoal.sim.deeds import deed_of, nothing
from shoal.sim.policies import policy_of
from shoal.sim.replay import BASE_MS, ID_PREFIX, Course, Replay
from shoal.sim.series import Series

FAULTS_MAX = 12
"""Differences told: one screen."""
STORY_LINES_MAX = 24


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How one play of a scenario came out. `faults` is empty when it is as the file says; `story` is what happened, in order."""

    name: str
    seed: int
    faults: tuple[str, ...] = ()
    story: tuple[str, ...] = ()
    cycles: int = 0
    """Cycles that had something to judge."""
    series: Series | None = None
    """Over time, where a picture was asked for."""
    bars: tuple[Bar, ...] = ()
    audit: Audit | None = None
    """Whether guarantees were kept, where that was asked for."""

    @property
    def good(self) -> bool:
        return not self.faults and (self.audit is None or self.audit.kept)


def verdicts(scenario: Scenario, *, audited: bool = False) -> Iterator[Verdict]:
    """A play for each of its interleavings; the first is in the order of the file."""
    for seed in range(scenario.interleavings):
        yield play(scenario, seed, audited=audited)


def play(scenario: Scenario, seed: int = 0, *, chart: bool = False, audited: bool = False) -> Verdict:
    """
    One play. Seed 0 keeps the order of the file; others draw the order of what happens at one moment. Without an expectation `always`
    or at the `end` it stops after the last moment that is looked at. `chart`: keep what a picture needs. `audited`: guarantees are held
    against what each queue has alone.

    Raises: Invalid for a job that could not be submitted in life either.
    """
    _check_specs(scenario)
    course = Course(policy=policy_of(scenario.policy), seed=seed, shuffle=seed > 0, check=True, keep_ended=True)
    replay = Replay(scenario.nodes, scenario.queues, scenario.jobs, course)
    replay.write(ChangeSet(put=tuple(reservation_of(entry, BASE_MS) for entry in scenario.reservations)))
    if chart:
        replay.record.where = []
    judge = _Judge(scenario, replay)
    watch = Watch(replay, scenario.jobs) if audited else None
    for event in scenario.events:
        replay.plan_deed(event.at.ms, deed_of(event, judge.refused))
    moments = sorted({ms for span, _ in scenario.expect for ms in (span.first_ms, span.last_ms) if ms is not None})
    for moment in moments:
        replay.plan_deed(moment, nothing)
    to_the_end = any(span.last_ms is None for span, _ in scenario.expect)
    try:
        replay.run(None if to_the_end or not moments else moments[-1])
        judge.at_end()
    except InvariantViolated as error:
        judge.faults.append(f"broken invariant {error.message}")
    faults = tuple(judge.faults[:FAULTS_MAX])
    found = audit(Played(scenario.jobs, scenario.nodes, scenario.queues, course, watch.waits())) if watch is not None else None
    return Verdict(
        name=scenario.name,
        seed=seed,
        faults=faults,
        story=tuple(judge.story),
        cycles=replay.cycles,
        series=replay.record.over_time.series() if chart else None,
        audit=found,
        bars=bars_of(replay, judge.names()),
    )


def difference(verdict: Verdict) -> str:
    """A verdict that is not good as people read it: what differs, then how it came to that."""
    story = verdict.story[-STORY_LINES_MAX:]
    cut = [f"    ... {len(verdict.story) - len(story)} lines before"] if len(story) < len(verdict.story) else []
    faults = (f"  - {fault}" for fault in verdict.faults)
    return "\n".join([_head(verdict), *faults, "  what happened:", *cut, *(f"    {line}" for line in story)])


def whole_story(verdict: Verdict) -> str:
    """Everything that happened, and then what differs."""
    faults = [f"  - {fault}" for fault in verdict.faults]
    return "\n".join([_head(verdict), *(f"    {line}" for line in verdict.story), *faults])


def _head(verdict: Verdict) -> str:
    return verdict.name + (f" (interleaving {verdict.seed})" if verdict.seed else "")


def _check_specs(scenario: Scenario) -> None:
    for job in scenario.jobs:
        faults = check_spec(replace(job.spec, depends_on=()))  # a file names jobs, and its reader has looked for them
        if faults:
            raise Invalid(f"{scenario.source}: job {job.spec.name}: {faults[0].message}", faults)


class _Judge:
    """Listens to a replay and compares it with what the file expects."""

    def __init__(self, scenario: Scenario, replay: Replay) -> None:
        self.faults: list[str] = []
        self.story: list[str] = []
        self._scenario = scenario
        self._replay = replay
        self._names = {job.spec.name: job for job in scenario.jobs}
        replay.at_rest = self._at_rest
        replay.world.listeners.append(self._hear)

    def refused(self, at_ms: int, why: str) -> None:
        self.story.append(f"{told(at_ms):>8}  refused: {why}")

    def _hear(self, row: EventRow) -> None:
        job = self._replay.world.jobs.get(row.subject) or self._replay.world.ended.get(row.subject)
        subject = row.subject if job is None else self._name_of(job)
        what = row.body.__struct_config__.tag
        more = [f"{name} {_short(value)}" for name, value in msgspec.structs.asdict(row.body).items() if name in _TOLD and value]
        self.story.append(f"{told(row.at_ms - BASE_MS):>8}  {subject}  {what}" + (f"  ({', '.join(more)})" if more else ""))

    def _name_of(self, job: Job) -> str:
        return f"{job.spec.name}_{job.array.index}" if job.array is not None else job.spec.name

    def names(self) -> dict[int, str]:
        """Names of all jobs by their numbers."""
        return {job.number: self._name_of(job) for job in self._all()}

    # --- when ----------------------------------------------------------------------------------------------------------------
    def _at_rest(self, replay: Replay) -> None:
        for span, wanted in self._scenario.expect:
            if _covers(span, replay.time_ms):
                self._compare(wanted)

    def at_end(self) -> None:
        """Nothing is left to happen."""
        for span, wanted in self._scenario.expect:
            if span.first_ms is None:
                self._compare(wanted)

    def _compare(self, wanted: Expectation) -> None:
        if len(self.faults) >= FAULTS_MAX:
            return
        when = f"at {told(self._replay.time_ms)}: "
        found = list(self._facts(wanted))
        if wanted.any_of:
            alternatives = [list(self._facts(facts)) for facts in wanted.any_of]
            if all(alternatives):
                found.append("none of any_of holds: " + " | ".join("; ".join(faults) for faults in alternatives))
        self.faults += [when + fault for fault in found if when + fault not in self.faults]

    # --- what ----------------------------------------------------------------------------------------------------------------
    def _facts(self, wanted: Facts) -> Iterator[str]:
        for pattern, of_job in wanted.jobs.items():
            yield from self._jobs(pattern, of_job)
        for name, of_queue in wanted.queues.items():
            yield from self._queue(name, of_queue)
        for name, of_node in wanted.nodes.items():
            yield from self._node(name, of_node)
        record = self._replay.record
        idle_s = (record.owned_gpu_us - record.held_gpu_us) // 1_000_000
        yield from _differs("GPUs held", self._replay.world.gpu_milli_held / 1_000, wanted.gpus_held)
        yield from _differs("evictions", self._replay.evictions, wanted.evictions)
        yield from _differs("moves", self._replay.moves, wanted.moves)
        if wanted.idle_gpu_seconds_most is not None and idle_s > wanted.idle_gpu_seconds_most:
            yield f"{idle_s} GPU-seconds have been idle, wanted at most {wanted.idle_gpu_seconds_most}"

    def _jobs(self, pattern: str, wanted: JobWant) -> Iterator[str]:
        names = [name for name in self._known() if fnmatchcase(name, pattern)]
        if not names:
            yield f"no job of this file is named {pattern!r}"
        found = {name: list(self._job(name, wanted)) for name in names}
        if wanted.count is None:
            for faults in found.values():
                yield from faults
            return
        right = [name for name, faults in found.items() if not faults]
        if len(right) != wanted.count:
            listed = ", ".join(right[:8]) or "none"
            yield f"jobs {pattern}: {len(right)} of {len(names)} are so ({listed}), wanted {wanted.count}"

    def _known(self) -> list[str]:
        """Every job of the file, and elements of arrays as `name_3`."""
        elements = [self._name_of(job) for job in self._all() if job.array is not None]
        return [*self._names, *sorted(elements)]

    def _all(self) -> Iterable[Job]:
        world = self._replay.world
        known = (*world.jobs.values(), *world.ended.values())
        return (*known, *(element for parent in known for element in _unborn(parent)))

    def _find(self, name: str) -> Job | None:
        world = self._replay.world
        job_id = self._replay.ids.get(name)
        if job_id is not None:
            return world.jobs.get(job_id) or world.ended.get(job_id)
        return next((job for job in self._all() if job.array is not None and self._name_of(job) == name), None)

    def _job(self, name: str, wanted: JobWant) -> Iterator[str]:
        job = self._find(name)
        what = f"job {name}: "
        state = "ABSENT" if job is None else str(job.state)
        if wanted.state is not None and state != wanted.state:
            yield f"{what}is {state}, wanted {wanted.state}{self._why(job)}"
        members = [] if job is None else list(self._replay.world.members.get(job.id, {}).values())
        held = sorted((a for a in members if a.state in HOLDING), key=lambda a: a.node_rank)
        where = sorted({allocation.node for allocation in held})
        yield from _differs(f"{what}GPUs", sum(a.gpu_milli for a in held) / 1_000, wanted.gpus)
        yield from _differs(f"{what}parts", _parts(held), None if wanted.parts is None else sorted(map(str, wanted.parts)))
        yield from _differs(f"{what}nodes", where, None if wanted.nodes is None else sorted(wanted.nodes))
        if wanted.nodes_one_of is not None and where not in [sorted(one) for one in wanted.nodes_one_of]:
            yield f"{what}nodes are {_short(where)}, wanted one of {[list(one) for one in wanted.nodes_one_of]}"
        yield from _differs(f"{what}attempt", 0 if job is None else job.attempt, wanted.attempt)
        yield from _differs(f"{what}started", _moment(job.started_ms if job else None), wanted.started and told(wanted.started.ms))
        yield from _differs(f"{what}ended", _moment(job.ended_ms if job else None), wanted.ended and told(wanted.ended.ms))
        code = job.outcome.exit_code if job is not None and job.outcome is not None else None
        yield from _differs(f"{what}exit code", code, wanted.exit_code)
        yield from self._told_why(job, what, wanted)

    def _told_why(self, job: Job | None, what: str, wanted: JobWant) -> Iterator[str]:
        if wanted.reason is None and wanted.says is None:
            return
        codes, text = self._reasons(job)
        if wanted.reason is not None and wanted.reason not in codes and not (wanted.reason == "none" and not codes):
            yield f"{what}reasons are {_short(codes) or 'none'}, wanted {wanted.reason}"
        if wanted.says is not None and wanted.says not in text:
            yield f"{what}says {text!r}, wanted it to say {wanted.says!r}"

    def _reasons(self, job: Job | None) -> tuple[list[str], str]:
        """Codes of what `shoal why` would tell of a job, and all its words."""
        if job is None:
            return [], ""
        jobs, asked = self._replay.world.jobs, job.id
        if asked not in jobs and job.array is not None and job.state in WAITING:
            asked = job.array.array_id  # It has no record yet, and waits for what its array waits for.
        if asked not in jobs:
            return ([str(job.reason.code)], job.reason.message) if job.reason else ([], "")
        answer = explain_job(self._replay.world.board, self._replay.course.policy, asked, self._replay.now_ms)
        words = [answer.headline, *(word for r in answer.reasons for word in (r.message, *r.hints, *r.blockers)), *answer.hints]
        return [str(reason.code) for reason in answer.reasons], self._with_names(" | ".join(dict.fromkeys(words)))

    def _with_names(self, text: str) -> str:
        """Jobs that have ended are told by their ids: a file knows them by names."""
        for name, job_id in self._replay.ids.items() if ID_PREFIX in text else ():
            text = text.replace(job_id, name)
        return text

    def _why(self, job: Job | None) -> str:
        if job is None or job.id not in self._replay.world.jobs:
            return ""
        return f" ({self._reasons(job)[1].partition(' | ')[0]})"

    def _queue(self, name: str, wanted: QueueWant) -> Iterator[str]:
        view = next((view for view in queue_views(self._replay.world.board) if view.name == name), None)
        if view is None:
            yield f"there is no queue {name!r}"
            return
        yield from _differs(f"queue {name}: GPUs", view.used.get("gpu", 0) / 1_000, wanted.gpus)
        yield from _differs(f"queue {name}: pending", view.pending_jobs, wanted.pending)

    def _node(self, name: str, wanted: NodeWant) -> Iterator[str]:
        node = self._replay.world.nodes.get(name)
        if node is None:
            yield f"there is no node {name!r}"
            return
        board = self._replay.world.board
        held = sum(board.allocations[one].gpu_milli for one in board.held_on.get(name, ())) / 1_000
        yield from _differs(f"node {name}: state", str(node.state), wanted.state)
        yield from _differs(f"node {name}: GPUs held", held, wanted.gpus_held)


_TOLD = ("attempt", "nodes", "node", "state", "exit_code", "after", "mode", "how", "reason", "changed", "allocation")


def _unborn(parent: Job) -> Iterator[Job]:
    """The elements of an array that have no record: as their parent has them."""
    position = next_unborn(parent)
    while position is not None:
        (state,) = counted(replace(parent, unborn=((position, position + 1),)), {})
        yield replace(element_of(parent, position), state=state)
        position = next_unborn(parent, position)


def told(at_ms: int) -> str:
    """A moment of a replay: `0s`, `1m40s`, `1.5s`."""
    if at_ms % 1_000:
        return f"{at_ms / 1_000:g}s"
    seconds = at_ms // 1_000
    parts = ((seconds // 3_600, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _parts(members: Iterable[Allocation]) -> list[str]:
    """The parts of GPUs that somebody holds, as a file names them."""
    parts = [part for member in members for part in member.parts]
    return sorted(f"{part.profile}@{part.start}" if part.mode == "mig" else str(part.thousandths) for part in parts)


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else told(at_ms - BASE_MS)


def _covers(span: Span, at_ms: int) -> bool:
    return span.first_ms is not None and span.first_ms <= at_ms and (span.last_ms is None or at_ms <= span.last_ms)


def _differs(what: str, actual: object, wanted: object) -> Iterator[str]:
    if wanted is not None and actual != wanted:
        yield f"{what} is {_short(actual)}, wanted {_short(wanted)}"


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    message = getattr(value, "message", None)
    return str(message if message is not None else value)
