"""
Output of all tasks of a job as it comes: one reader per task, one printer, over attempts and restarts of the server.

Which tasks there are is asked again and again, since a job that waits has none yet and one that is tried again gets new ones. Bytes pass
as they are; with more than one task, each line has its task's rank before it.
"""

from __future__ import annotations

import sys
import threading
from typing import IO, TYPE_CHECKING

from shoal.base.errors import NotFound, ShoalError
from shoal.base.limits import FOLLOWED_TASKS_MAX
from shoal.cli.waiting import WaitNote
from shoal.model.job import ENDED, WAITING, Job, JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.client.api import Api
    from shoal.model.wire import TaskLog
    from shoal.render.look import Look

    Begin = Callable[[TaskLog], int]

LOOK_EVERY_S = 0.25
LOOK_WAITING_EVERY_S = 0.5
DRAIN_S = 30.0
"""How long the last bytes of a job that has ended may take; they are in the log store before its end is."""


class Printer:
    """Bytes of many tasks onto one stream, whole lines at a time where they are marked with ranks. Any thread may print."""

    def __init__(self, stream: IO[bytes], look: Look, *, marked: bool) -> None:
        self._stream = stream
        self._look = look
        self._marked = marked
        self._lock = threading.Lock()
        self._parts: dict[int, bytes] = {}
        self.broken = False
        """The reader of the stream has gone (`| head`)."""

    def print(self, rank: int, data: bytes) -> None:
        with self._lock:
            if not self._marked:
                self._write(data)
                return
            lines = (self._parts.pop(rank, b"") + data).split(b"\n")
            if lines[-1]:
                self._parts[rank] = lines[-1]
            self._write(b"".join(self._mark(rank) + line + b"\n" for line in lines[:-1]))

    def end(self, rank: int) -> None:
        """Prints a last line that has no end."""
        with self._lock:
            rest = self._parts.pop(rank, b"")
            if rest:
                self._write(self._mark(rank) + rest + b"\n")

    def _mark(self, rank: int) -> bytes:
        return self._look.paint(f"[{rank}]", "cyan").encode() + b" "

    def _write(self, data: bytes) -> None:
        if self.broken:
            return
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError:
            self.broken = True


class Follower:
    """
    Follows one job. `to_end` may be left by Ctrl-C and called again; what was printed is not printed twice. `begin` says from which byte
    on a task that is there already is printed.
    """

    def __init__(self, api: Api, ref: str, printer: Printer, *, rank: int | None = None, begin: Begin | None = None) -> None:
        self._api = api
        self._ref = ref
        self._printer = printer
        self._rank = rank
        self._begin = begin
        self._readers: dict[tuple[int, int], threading.Thread] = {}
        self._errors: list[ShoalError] = []
        self._told = False
        self._waits = WaitNote(api, lambda line: sys.stderr.write(f"{line}\n"))

    def to_end(self) -> Job:
        """The job, ended, after everything that it wrote has been printed. Raises BrokenPipeError when nobody reads any more."""
        pause_s = 0.0
        while True:
            job = self._api.jobs.wait(self._ref, timeout_s=pause_s)
            self._waits.see(job)
            self._read_new_tasks()
            self._begin = None  # Tasks that come later are read from their start.
            if self._printer.broken:
                raise BrokenPipeError
            if job.state in ENDED:
                break
            pause_s = LOOK_WAITING_EVERY_S if job.state in WAITING else LOOK_EVERY_S
        for reader in self._readers.values():
            reader.join(DRAIN_S)
        if self._errors:
            raise self._errors[0]
        return job

    def _read_new_tasks(self) -> None:
        busy = sum(reader.is_alive() for reader in self._readers.values())
        for task in self._api.logs.tasks(self._ref):
            place = (task.attempt, task.rank)
            wanted = self._rank is None or task.rank == self._rank
            if not wanted or place in self._readers:
                continue
            if busy >= FOLLOWED_TASKS_MAX:
                self._tell_of_more()
                return
            busy += 1
            after = self._begin(task) if self._begin is not None else 0
            reader = threading.Thread(target=self._read, args=(*place, after), name=f"log {place}", daemon=True)
            self._readers[place] = reader
            reader.start()

    def _tell_of_more(self) -> None:
        if not self._told:
            sys.stderr.write(
                f"the job has more tasks than the {FOLLOWED_TASKS_MAX} that are followed at once; `shoal logs -f JOB/TASK` follows one\n"
            )
        self._told = True

    def _read(self, attempt: int, rank: int, after: int) -> None:
        try:
            for piece in self._api.logs.follow(self._ref, rank, attempt=attempt, after=after):
                self._printer.print(rank, piece.data)
                if self._printer.broken:
                    return
        except NotFound:
            return  # The attempt ended before this task wrote anything.
        except ShoalError as error:
            self._errors.append(error)
        finally:
            self._printer.end(rank)


def has_one_task(spec: JobSpec) -> bool:
    """True where the job cannot have more than one task, so that its output needs no marks."""
    parts = (spec, *spec.any_of, *spec.ordered)
    nodes = max((part.nodes.high for part in parts if part.nodes is not None), default=1)
    tasks = max((part.tasks_per_node for part in parts if part.tasks_per_node is not None), default=1)
    return not spec.groups and nodes == 1 and tasks == 1


def follow_job(api: Api, job: Job, look: Look, *, rank: int | None = None, begin: Begin | None = None) -> Follower:
    """A follower that prints to standard output."""
    printer = Printer(sys.stdout.buffer, look, marked=rank is None and not has_one_task(job.spec))
    return Follower(api, job.id, printer, rank=rank, begin=begin)
