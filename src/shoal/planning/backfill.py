"""First come first served against EASY backfill on a list of jobs, and which jobs to stop for room at least loss."""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic

T = TypeVar("T", int, float)
JOBS_MAX: Final = 1_000
"""Jobs of one comparison; a trace of more belongs to the simulator, which is built for it."""
VICTIM_STATES_MAX: Final = 200_000


class ListedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the list, as in the standard workload format."""

    job: Annotated[int, Ask("1", "its number")]
    submit: Annotated[float, Ask("s", "when it came")]
    run: Annotated[float, Ask("s", "how long it runs")]
    processors: Annotated[int, Ask("1", "processors", least=1)]
    requested: Annotated[float, Ask("s", "time that it asks for")]


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A machine and the jobs that come to it."""

    processors: Annotated[int, Ask("1", "processors of the machine", least=1)]
    jobs: Annotated[tuple[ListedJob, ...], Ask("swf subset", "jobs as job, submit, run, processors, requested")]
    threshold: Annotated[float, Ask("s", "shortest run time that slowdown counts", above=True)] = assumed("10 s")


class Running(NamedTuple):
    """A job that runs: its end as asked and as it will be."""

    requested_end: float
    end: float
    processors: int


def run_list(processors: int, jobs: tuple[ListedJob, ...], *, easy: bool) -> list[float]:
    """
    The start of each job, in the order of `jobs`.

    At one instant ends come before submits before scheduling. With `easy` the head has a reservation at its shadow time, when enough
    ends by request; a later job may start if it fits now and either ends by its request before the shadow or uses no more than the extra
    processors.
    """
    starts = [math.nan] * len(jobs)
    pending = sorted(range(len(jobs)), key=lambda at: (jobs[at].submit, at))
    queue: list[int] = []
    running: list[Running] = []
    now = 0.0
    while pending or queue:
        now = min([one.end for one in running] + ([jobs[pending[0]].submit] if pending else []))
        running = [one for one in running if one.end > now]
        while pending and jobs[pending[0]].submit <= now:
            queue.append(pending.pop(0))
        # Again after jobs of no length, which are legal: what they held is free at the same instant.
        ended = True
        while ended:
            for at in _startable(processors, jobs, queue, running, now, easy):
                starts[at] = now
                queue.remove(at)
                running.append(_started(jobs[at], now))
            ended = any(one.end <= now for one in running)
            running = [one for one in running if one.end > now]
    return starts


def _started(job: ListedJob, now: float) -> Running:
    return Running(now + job.requested, now + job.run, job.processors)


def _startable(processors: int, jobs: tuple[ListedJob, ...], queue: list[int], running: list[Running], now: float, easy: bool) -> list[int]:
    free = processors - sum(one.processors for one in running)
    active, chosen = list(running), list[int]()
    rest = list(queue)
    while rest and jobs[rest[0]].processors <= free:
        at = rest.pop(0)
        chosen.append(at)
        free -= jobs[at].processors
        active.append(_started(jobs[at], now))
    if not easy or not rest:
        return chosen
    shadow, extra = shadow_of(jobs[rest[0]].processors, free, active)
    for at in rest[1:]:
        job = jobs[at]
        before = now + job.requested <= shadow
        if job.processors <= free and (before or job.processors <= extra):
            chosen.append(at)
            free -= job.processors
            extra -= 0 if before else job.processors
    return chosen


def shadow_of(wanted: int, free: int, running: list[Running]) -> tuple[float, int]:
    """(when `wanted` processors are free by requested ends, how many more are then free)."""
    for one in sorted(running):
        free += one.processors
        if free >= wanted:
            return one.requested_end, free - wanted
    return math.inf, 0


class Measures(NamedTuple):
    """What a schedule is judged by."""

    mean_wait: float
    bounded_slowdown: float
    makespan: float
    utilisation: float


def measure(x: Backfill, starts: list[float]) -> Measures:
    """Mean wait, mean bounded slowdown, and span and utilisation from the first submit to the last end."""
    count = len(starts)
    waits = [start - job.submit for start, job in zip(starts, x.jobs, strict=True)]
    slow = [max(1.0, (wait + job.run) / max(job.run, x.threshold)) for wait, job in zip(waits, x.jobs, strict=True)]
    span = max(start + job.run for start, job in zip(starts, x.jobs, strict=True)) - min(job.submit for job in x.jobs)
    used = math.fsum(job.run * job.processors for job in x.jobs)
    return Measures(math.fsum(waits) / count, math.fsum(slow) / count, span, used / (x.processors * span) if span else 0.0)


def backfill(x: Backfill) -> Answer:
    """Waits, slowdown and utilisation of both disciplines, with every start."""
    work = Work()
    both = {name: run_list(x.processors, x.jobs, easy=name == "easy") for name in ("fcfs", "easy")}
    for name, starts in both.items():
        got = measure(x, starts)
        how = f"event simulation, {'EASY backfill' if name == 'easy' else 'first come first served'}"
        work.find(f"{name}_mean_wait", got.mean_wait, "s", how)
        work.find(f"{name}_bounded_slowdown", got.bounded_slowdown, "1", how)
        work.find(f"{name}_makespan", got.makespan, "s", how)
        work.find(f"{name}_utilisation", got.utilisation, "1", how)
        work.find(f"{name}_starts", tuple(starts), "s", how)
    rows = [
        (job.job, job.submit, job.processors, job.run, *pair) for job, pair in zip(x.jobs, zip(*both.values(), strict=True), strict=True)
    ]
    work.table("jobs", ("job", "submit [s]", "processors", "run [s]", "start fcfs [s]", "start easy [s]"), rows)
    short = [job.job for job in x.jobs if job.requested < job.run]
    work.note(f"{len(short)} jobs run longer than they ask: a live system ends them at their limit", bool(short))
    return work.done(
        "FCFS, and EASY with a reservation for the head alone; ends before submits before scheduling at one instant",
        "one machine of equal processors; run times as listed, whatever was asked",
        lead="easy_mean_wait",
    )


def validate_backfill(x: Backfill) -> tuple[Refusal, ...]:
    """Jobs that fit the machine, and a list that one can wait for."""
    large = [job.job for job in x.jobs if job.processors > x.processors]
    return unless(0 < len(x.jobs) <= JOBS_MAX, "too_many_jobs", f"{len(x.jobs)} jobs: 1 to {JOBS_MAX} are run here", "jobs") + unless(
        not large, "gang_exceeds_cluster", f"job {large[0] if large else 0} asks more than {x.processors} processors", "jobs"
    )


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that could be stopped."""

    id: Annotated[str, Ask("id", "its name")]
    gpus: Annotated[int, Ask("GPU", "GPUs that it frees", least=1)]
    since_checkpoint: Annotated[float, Ask("min", "work since its checkpoint")]
    restart: Annotated[float, Ask("min", "its restart")]


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that are needed, and jobs that could be stopped for them."""

    need: Annotated[int, Ask("GPU", "GPUs to free", least=1)]
    jobs: Annotated[tuple[RunningJob, ...], Ask("min", "jobs that may be stopped")]


def work_lost(gpus: int, since_checkpoint: T, restart: T) -> T:
    """GPU time that is lost when a job is stopped: what it did since it saved, and its way back; in the unit of the two times."""
    return gpus * (since_checkpoint + restart)


def cheapest_victims(need: int, jobs: tuple[RunningJob, ...]) -> tuple[float, tuple[str, ...]]:
    """
    (GPU-seconds lost, ids in order) of the set that frees at least `need` GPUs at least loss; equal losses fall to fewer, then lower ids.

    A cover knapsack by GPUs freed. Cost: jobs x need.
    """
    best: dict[int, tuple[float, int, tuple[str, ...]]] = {0: (0.0, 0, ())}
    for job in sorted(jobs, key=lambda job: job.id):
        loss = work_lost(job.gpus, job.since_checkpoint, job.restart)
        for freed, (lost, count, ids) in sorted(best.items(), reverse=True):
            covered = min(need, freed + job.gpus)
            candidate = (lost + loss, count + 1, (*ids, job.id))
            if covered not in best or candidate < best[covered]:
                best[covered] = candidate
    lost, _, ids = best[need]
    return lost, ids


def victim(x: Victim) -> Answer:
    """The jobs to stop, and what is lost."""
    work = Work()
    lost, ids = cheapest_victims(x.need, x.jobs)
    work.find("lost", lost, "GPU*min", "sum over victims of GPUs x (since checkpoint + restart), least over all sets that free enough")
    work.find("victims", ids, "1", "cover knapsack by GPUs freed; ties to fewer, then lower ids")
    freed = sum(job.gpus for job in x.jobs if job.id in ids)
    work.find("freed", freed, "GPU", "sum over victims")
    rows = [(job.id, job.gpus, work_lost(job.gpus, job.since_checkpoint, job.restart) / 60, job.id in ids) for job in x.jobs]
    work.table("jobs", ("job", "GPUs", "would lose [GPU*min]", "victim"), rows)
    return work.done(
        "least sum of GPUs x (minutes since checkpoint + restart) over sets that free enough",
        "jobs that may be displaced by the entry rule; stopping at a checkpoint within the grace loses less",
    )


def validate_victim(x: Victim) -> tuple[Refusal, ...]:
    """Stopping all must be enough, and ids must tell jobs apart."""
    total = sum(job.gpus for job in x.jobs)
    size = len(x.jobs) * min(x.need, total)
    return (
        unless(total >= x.need, "not_enough", f"all {len(x.jobs)} jobs together free {total} GPUs, {x.need} are needed", "need")
        + unless(len({job.id for job in x.jobs}) == len(x.jobs), "repeated_id", "two jobs have one id", "jobs")
        + unless(size <= VICTIM_STATES_MAX, "too_large", f"{len(x.jobs)} jobs for {x.need} GPUs are too many to weigh exactly", "jobs")
    )


BACKFILL: Final = Topic(Backfill, backfill, "", validate_backfill)
VICTIM: Final = Topic(Victim, victim, "need", validate_victim)
