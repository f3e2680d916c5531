"""Jobs as a table and as a screen: what was asked, where it stands, since when, and why."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model.job import ENDED, WAITING, Job, JobState
from shoal.model.wire import JobView, Sample
from shoal.render.amounts import asks_text, bytes_text, pool_text
from shoal.render.look import Look, clean, span, wrap
from shoal.render.table import Cell, Column, table

STATE_COLOURS: dict[JobState, str] = {
    JobState.HELD: "magenta",
    JobState.QUEUED: "yellow",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "green",
    JobState.PREEMPTING: "yellow",
    JobState.CANCELLING: "yellow",
    JobState.COMPLETING: "cyan",
    JobState.SUCCEEDED: "green",
    JobState.CANCELLED: "dim",
}
"""Every state that is not here is a bad end: red."""

_COLUMNS = (
    Column("JOB", right=True),
    Column("NAME", least=8),
    Column("STATE"),
    Column("OWNER", least=6, spared=2),
    Column("QUEUE", least=6, spared=1),
    Column("ASKS", least=8),
    Column("TIME", right=True),
    Column("WHY", least=14),
)


def state_cell(state: JobState) -> Cell:
    """A state in its colour."""
    return Cell(str(state), STATE_COLOURS.get(state, "red"))


def job_table(jobs: Sequence[Job], look: Look) -> list[str]:
    """One line per job, in the order given."""
    return table(_COLUMNS, [_row(job, look) for job in jobs], look)


def _row(job: Job, look: Look) -> tuple[str | Cell, ...]:
    owner = job.owner.removeprefix("user/")
    return (job.address, job.spec.name, state_cell(job.state), owner, job.queue, asks_text(job.spec), _time(job, look), why_text(job))


def _time(job: Job, look: Look) -> str:
    """Waiting: since when. Running: how long. Ended: how long ago."""
    if job.state in ENDED:
        return look.ago(job.ended_ms)
    if job.state in WAITING or job.started_ms is None:
        return look.since(job.queued_ms)
    return look.since(job.started_ms)


def why_text(job: Job) -> str:
    """The reason of a waiting job, the end of an ended one; in one line."""
    if job.is_array:
        array = job.spec.array
        return f"array of {len(array.indices)}" if array is not None else ""
    if job.state in ENDED:
        return end_text(job)
    return job.reason.message if job.reason is not None else ""


def end_text(job: Job) -> str:
    """How a job ended, in the lifecycle's words where it has some: `task 1 on n2 ended with exit code 3`; nothing for a success."""
    if job.state is JobState.SUCCEEDED:
        return ""
    if job.reason is not None and job.reason.message:
        return job.reason.message
    end = job.outcome
    if end is None or end.message:
        return "" if end is None else end.message
    how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
    return f"task {end.task} on {end.node or 'its node'} ended with {how}" if end.task is not None else f"ended with {how}"


def job_screen(view: JobView, look: Look) -> list[str]:
    """All that is known of one job, for `shoal status`."""
    job = view.job
    lines = [f"Job {look.paint(job.address, 'bold')}  {clean(job.spec.name)}  {look.paint(str(job.state), state_cell(job.state).colour)}"]
    why = view.why.headline if view.why is not None and job.state in WAITING else why_text(job)
    if why:
        lines += wrap(why, look, "  ", "  ")
    lines += [""] + [f"  {name:<10}{value}" for name, value in _facts(job, look) if value]
    if view.elements:
        lines.append(f"  {'elements':<10}" + ", ".join(f"{count} {state}" for state, count in sorted(view.elements.items()) if count))
    if view.predicted:
        lines += wrap(view.predicted, look, "            ", f"  {'placed':<10}")
    if view.places:
        lines += ["", *_places(view, look)]
    return lines


def _facts(job: Job, look: Look) -> list[tuple[str, str]]:
    spec = job.spec
    limit = f" of {span(job.time_limit_ms)}" if job.time_limit_ms is not None else ""
    ran = (job.ended_ms or look.now_ms) - job.started_ms if job.started_ms is not None else None
    return [
        ("asks", clean(asks_text(spec)) + (f", {spec.tasks_per_node} tasks per node" if spec.tasks_per_node else "")),
        ("pool", clean(pool_text(spec))),
        ("queue", f"{clean(job.queue)}, priority {job.priority}"),
        ("owner", clean(job.owner)),
        ("runs", clean(_command(job))),
        ("submitted", f"{look.clock(job.created_ms)} ({look.ago(job.created_ms)})"),
        ("started", f"{look.clock(job.started_ms)} ({look.ago(job.started_ms)})" if job.started_ms is not None else ""),
        ("ended", f"{look.clock(job.ended_ms)} ({look.ago(job.ended_ms)})" if job.ended_ms is not None else ""),
        ("ran", f"{span(ran)}{limit}" if ran is not None else f"limit {span(job.time_limit_ms)}" if job.time_limit_ms else ""),
        ("saved", f"{look.clock(job.checkpointed_ms)} ({look.ago(job.checkpointed_ms)})" if job.checkpointed_ms is not None else ""),
        ("attempt", f"{job.attempt}, {job.retries} of {spec.retry.limit} retries used" if job.attempt > 1 or job.retries else ""),
        ("avoids", clean(", ".join(job.avoid))),
        ("waits for", ", ".join(f"{part.condition}:{part.job}" for part in spec.depends_on) if job.state in WAITING else ""),
        ("used", _used(job)),
        ("id", job.id),
    ]


def _command(job: Job) -> str:
    run = job.spec.run
    if run is None:
        return ", ".join(f"{group.name}" for group in job.spec.groups)
    if isinstance(run, tuple):
        return " ".join(run)
    lines = [line for line in run.strip().splitlines() if line.strip() and not line.startswith("#!")]
    return (lines[0] + (f"  (and {len(lines) - 1} more lines)" if len(lines) > 1 else "")) if lines else ""


def _used(job: Job) -> str:
    used = job.usage
    if not (used.cpu_ms or used.memory_bytes_max):
        return ""
    gpus = f", {span(used.gpu_busy_ms)} of GPU work" if used.gpu_busy_ms else ""
    return f"{span(used.cpu_ms)} of CPU, at most {bytes_text(used.memory_bytes_max)}{gpus}"


def _places(view: JobView, look: Look) -> list[str]:
    samples = {sample.allocation: sample for sample in view.samples}
    rows = []
    for node, rank, devices, state in view.places:
        sample = samples.get(f"{view.job.id}.{view.job.attempt}.{rank}")
        rows.append((str(rank), node, state, str(len(devices) or ""), *_ranks_on(view, node), *_sample_cells(sample)))
    columns = (
        Column("NODE RANK", right=True),
        Column("NODE", least=8),
        Column("STATE"),
        Column("GPUS", right=True),
        Column("RANKS", right=True),
        Column("ON GPUS", least=12),
        Column("GPU USE", right=True),
        Column("MEMORY", right=True),
        Column("CPU", right=True),
    )
    return ["  " + line for line in table(columns, rows, look)]


def _ranks_on(view: JobView, node: str) -> tuple[str, str]:
    """Ranks on a node, and the GPUs that they see, in the order of ranks."""
    mine = [rank for rank in view.ranks if rank.node == node]
    if not mine:
        return "", ""
    seen = dict.fromkeys(
        f"{gpu}:{rank.parts[at - len(rank.gpus)]}" if at >= len(rank.gpus) - len(rank.parts) else str(gpu)
        for rank in mine
        for at, gpu in enumerate(rank.gpus)
    )
    first, last = mine[0].rank, mine[-1].rank
    return f"{first}" if first == last else f"{first}-{last}", " ".join(seen)


def _sample_cells(sample: Sample | None) -> tuple[str, str, str]:
    if sample is None:
        return "", "", ""
    busy = f"{sum(use for _, use, _ in sample.gpus) // len(sample.gpus)}%" if sample.gpus else ""
    return busy, bytes_text(sample.memory_bytes), span(sample.cpu_ms)
