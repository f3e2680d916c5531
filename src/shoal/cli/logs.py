"""`shoal logs`: what a job has written and writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shoal.cli.options import command, complete_job, json_option
from shoal.cli.session import Session, leave_unread, open_session

if TYPE_CHECKING:
    from shoal.cli.follow import Printer
    from shoal.client.api import Api
    from shoal.model.job import Job
    from shoal.model.wire import TaskLog

READ_BYTES = 256 << 10
TAIL_BYTES_FIRST = 16 << 10


@command("logs", "shoal logs 12", "shoal logs -f 12", "shoal logs 12/3 --tail 100", "shoal logs 12/0 --attempt 1 --since-offset 4096")
@click.argument("task", metavar="JOB[/TASK]", shell_complete=complete_job)
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option("--attempt", type=click.IntRange(1), metavar="NUMBER", help="Another than the current attempt.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines of each task.")
@click.option("--since-offset", type=click.IntRange(0), default=0, metavar="BYTES", help="From this byte of the task's output on.")
@json_option("{task, attempt, offset, text} per piece")
def logs(task: str, follow: bool, attempt: int | None, tail: int | None, since_offset: int, as_json: bool) -> None:
    """
    Print what a job has written: all tasks, or one as JOB/TASK (its rank).

    With several tasks, each line begins with its task's rank. --json prints a record per piece, with task, attempt, offset and text.
    """
    session = open_session(as_json)
    ref, rank = _split(task)
    if follow and attempt is None and tail is None and not since_offset and not as_json:
        _follow(session, ref, rank)
        return
    reading = _Reading(session, ref, rank, marked=False)
    reading.print_all(attempt, tail, since_offset, follow=follow)


def _split(text: str) -> tuple[str, int | None]:
    from shoal.base.errors import Invalid

    ref, slash, rank = text.partition("/")
    if slash and not rank.isdecimal():
        raise Invalid(f"{text!r}: the task after / is its rank, for example {ref}/0")
    return ref, int(rank) if slash else None


def _follow(session: Session, ref: str, rank: int | None) -> None:
    from shoal.base.errors import Invalid
    from shoal.cli.follow import follow_job

    job = session.api.jobs.get(ref).job
    if job.is_array:
        raise Invalid(f"job {job.address} is an array; follow an element, for example {_first_element(job)}")
    try:
        follow_job(session.api, job, session.look, rank=rank).to_end()
    except BrokenPipeError:
        leave_unread()


def _first_element(job: Job) -> str:
    assert job.spec.array is not None
    return f"{job.address}_{job.spec.array.indices[0]}"


class _Reading:
    """Prints what is there, task by task."""

    def __init__(self, session: Session, ref: str, rank: int | None, *, marked: bool) -> None:
        self._session = session
        self._api: Api = session.api
        self._ref = ref
        self._rank = rank
        self._marked = marked

    def print_all(self, attempt: int | None, tail: int | None, since: int, *, follow: bool) -> None:
        tasks = self._tasks(attempt)
        self._marked = len(tasks) > 1
        if not tasks:
            self._session.note(self._nothing(attempt))
        for task in tasks:
            start = max(since, self._tail_start(task, tail)) if tail is not None else since
            self._print(task, start, follow=follow and len(tasks) == 1)

    def _tasks(self, attempt: int | None) -> list[TaskLog]:
        """The tasks of the wanted attempt, by rank."""
        tasks = self._api.logs.tasks(self._ref)
        wanted = attempt if attempt is not None else max((task.attempt for task in tasks), default=0)
        return sorted(
            (task for task in tasks if task.attempt == wanted and (self._rank is None or task.rank == self._rank)),
            key=lambda task: task.rank,
        )

    def _nothing(self, attempt: int | None) -> str:
        job = self._api.jobs.get(self._ref).job
        of_attempt = f" in attempt {attempt}" if attempt is not None else ""
        of_task = f"task {self._rank} of " if self._rank is not None else ""
        if job.is_array:
            return f"job {job.address} is an array; its elements have the output, for example {_first_element(job)}"
        return f"{of_task}job {job.address} ({job.state}) has written nothing{of_attempt}"

    def _tail_start(self, task: TaskLog, lines: int) -> int:
        """Where the last `lines` lines of a task begin."""
        reach = TAIL_BYTES_FIRST
        while True:
            start = max(0, task.bytes - reach)
            data = self._read_range(task, start, task.bytes)
            body = data[:-1] if data.endswith(b"\n") else data
            breaks = [at for at, byte in enumerate(body) if byte == 0x0A]
            if lines == 0:
                return task.bytes
            if len(breaks) >= lines:
                return start + breaks[-lines] + 1
            if start == 0:
                return 0
            reach *= 4

    def _read_range(self, task: TaskLog, start: int, end: int) -> bytes:
        data = b""
        while start + len(data) < end:
            piece = self._api.logs.read(self._ref, task.rank, attempt=task.attempt, after=start + len(data), limit=READ_BYTES)
            if not piece.data:
                break
            data += piece.data
        return data

    def _print(self, task: TaskLog, start: int, *, follow: bool) -> None:
        from shoal.cli.follow import Printer

        printer = Printer(sys.stdout.buffer, self._session.look, marked=self._marked)
        offset = start
        while not follow and not printer.broken:
            piece = self._api.logs.read(self._ref, task.rank, attempt=task.attempt, after=offset, limit=READ_BYTES)
            if not piece.data:
                break
            self._emit(printer, task, offset, piece.data)
            offset += len(piece.data)
        if follow:
            for piece in self._api.logs.follow(self._ref, task.rank, attempt=task.attempt, after=offset):
                self._emit(printer, task, piece.offset, piece.data)
                if printer.broken:
                    break
        printer.end(task.rank)
        if printer.broken:
            leave_unread()

    def _emit(self, printer: Printer, task: TaskLog, offset: int, data: bytes) -> None:
        if self._session.as_json:
            text = data.decode("utf-8", "replace")
            self._session.row({"task": task.rank, "attempt": task.attempt, "offset": offset, "text": text}, "")
        else:
            printer.print(task.rank, data)
