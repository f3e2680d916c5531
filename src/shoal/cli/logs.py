"""`shoal logs`: what a job has written and writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shoal.cli.options import command, complete_job, json_option
from shoal.cli.session import Session, leave_unread, open_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.cli.follow import Printer
    from shoal.client.api import Api
    from shoal.client.logs import Piece
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
    reading = _Reading(session, ref, rank, tail, since_offset)
    if follow and attempt is None and not as_json:
        _follow(session, reading)
    else:
        reading.print_all(attempt, follow=follow)


def _split(text: str) -> tuple[str, int | None]:
    from shoal.base.errors import Invalid

    ref, slash, rank = text.partition("/")
    if slash and not rank.isdecimal():
        raise Invalid(f"{text!r}: the task after / is its rank, for example {ref}/0")
    return ref, int(rank) if slash else None


def _follow(session: Session, reading: _Reading) -> None:
    from shoal.base.errors import Invalid
    from shoal.cli.follow import follow_job

    job = session.api.jobs.get(reading.ref).job
    if job.is_array:
        raise Invalid(f"job {job.address} is an array; follow an element, for example {_first_element(job)}")
    try:
        follow_job(session.api, job, session.look, rank=reading.rank, begin=reading.start_of).to_end()
    except BrokenPipeError:
        leave_unread()


def _first_element(job: Job) -> str:
    assert job.spec.array is not None
    return f"{job.address}_{job.spec.array.indices[0]}"


class _Reading:
    """Prints what is there, task by task."""

    def __init__(self, session: Session, ref: str, rank: int | None, tail: int | None, since: int) -> None:
        self.ref = ref
        self.rank = rank
        self._session = session
        self._api: Api = session.api
        self._tail = tail
        self._since = since

    def print_all(self, attempt: int | None, *, follow: bool) -> None:
        from shoal.base.errors import Invalid
        from shoal.cli.follow import Printer

        tasks = self._tasks(attempt)
        if follow and len(tasks) > 1:
            raise Invalid(f"with --json or --attempt, -f follows one task: name it, for example {self.ref}/0")
        printer = Printer(sys.stdout.buffer, self._session.look, marked=len(tasks) > 1)
        if follow:
            rank = tasks[0].rank if tasks else self.rank or 0
            self._emit_all(
                printer, rank, self._api.logs.follow(self.ref, rank, attempt=attempt, after=self.start_of(tasks[0]) if tasks else 0)
            )
        elif not tasks:
            self._session.note(self._nothing(attempt))
        else:
            for task in tasks:
                self._emit_all(printer, task.rank, self._pieces(task))

    def start_of(self, task: TaskLog) -> int:
        """The byte from which on a task is printed."""
        return self._since if self._tail is None else max(self._since, self._tail_start(task, self._tail))

    def _tasks(self, attempt: int | None) -> list[TaskLog]:
        """The tasks of the wanted attempt, by rank."""
        tasks = self._api.logs.tasks(self.ref)
        wanted = attempt if attempt is not None else max((task.attempt for task in tasks), default=0)
        found = [task for task in tasks if task.attempt == wanted and (self.rank is None or task.rank == self.rank)]
        return sorted(found, key=lambda task: task.rank)

    def _nothing(self, attempt: int | None) -> str:
        job = self._api.jobs.get(self.ref).job
        of_attempt = f" in attempt {attempt}" if attempt is not None else ""
        of_task = f"task {self.rank} of " if self.rank is not None else ""
        if job.is_array:
            return f"job {job.address} is an array; its elements have the output, for example {_first_element(job)}"
        return f"{of_task}job {job.address} ({job.state}) has written nothing{of_attempt}"

    def _tail_start(self, task: TaskLog, lines: int) -> int:
        """Where the last `lines` lines of a task begin."""
        reach = TAIL_BYTES_FIRST
        while lines:
            start = max(0, task.bytes - reach)
            data = b"".join(piece.data for piece in self._pieces(task, start))
            body = data.removesuffix(b"\n")
            at = len(body)
            for _ in range(lines):
                at = body.rfind(b"\n", 0, at)
                if at < 0:
                    break
            if at >= 0 or start == 0:
                return start + at + 1
            reach *= 4
        return task.bytes

    def _pieces(self, task: TaskLog, start: int | None = None) -> Iterator[Piece]:
        """What the task has written so far, from `start` on, or from where it is to be printed."""
        offset = self.start_of(task) if start is None else start
        while True:
            piece = self._api.logs.read(self.ref, task.rank, attempt=task.attempt, after=offset, limit=READ_BYTES)
            if not piece.data:
                return
            yield piece
            offset += len(piece.data)

    def _emit_all(self, printer: Printer, rank: int, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if self._session.as_json:
                text = piece.data.decode("utf-8", "replace")
                self._session.row({"task": rank, "attempt": piece.attempt, "offset": piece.offset, "text": text}, "")
            else:
                printer.print(rank, piece.data)
            if printer.broken:
                leave_unread()
        printer.end(rank)
