"""
From a file to a job: read, upload the working directory, create with a key that is kept until the answer is here.

Used by `submit` and `run`. Faults that the server finds come with pointers; here they get the lines of the file.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.base.errors import Invalid, ShoalError, TooLarge
from shoal.base.limits import JOB_FILE_BYTES_MAX
from shoal.cli.session import BadFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.cli.session import Session
    from shoal.client.submissions import Submission
    from shoal.formats.jobfile import JobFile
    from shoal.model.job import Job, JobSpec

STDIN = "-"


def read_source(name: str) -> bytes:
    """The bytes of a job file, `-` for standard input. Raises Invalid for what cannot be read, TooLarge before reading all of it."""
    if name == STDIN:
        data = sys.stdin.buffer.read(JOB_FILE_BYTES_MAX + 1)
        size = len(data)
    else:
        path = Path(name)
        try:
            with path.open("rb") as file:
                data = file.read(JOB_FILE_BYTES_MAX + 1)
            size = max(path.stat().st_size, len(data))
        except OSError as error:
            raise Invalid(f"{name}: {(error.strerror or 'cannot be read').lower()}") from error
    if size > JOB_FILE_BYTES_MAX:
        at_least = "more than " if size == JOB_FILE_BYTES_MAX + 1 else ""
        shown = size - bool(at_least)
        raise TooLarge(
            f"{told(name)} has {at_least}{shown:,} bytes; a job file may have {JOB_FILE_BYTES_MAX:,}. "
            "Put data into the working directory or on a mount"
        )
    return data


def told(name: str) -> str:
    """A source as messages name it."""
    return "standard input" if name == STDIN else name


def read_files(names: Sequence[str], settings: Sequence[str]) -> list[JobFile]:
    """The jobs of all files. Every file is read before anything is raised, so that the error can say how many have faults."""
    from shoal.formats.jobfile import read_jobs

    jobs: list[JobFile] = []
    errors: list[ShoalError | BadFile] = []
    for name in names:
        try:
            with faults_of(told(name)):
                jobs.extend(read_jobs(read_source(name), told(name), settings))
        except (ShoalError, BadFile) as error:
            errors.append(error)
    if len(errors) > 1:
        sys.stderr.write(f"{len(errors)} of {len(names)} files cannot be taken; the first:\n")
    if errors:
        raise errors[0]
    return jobs


@contextmanager
def faults_of(source: str, job: JobFile | None = None) -> Iterator[None]:
    """Errors with faults leave as errors of the file: with its name, and with the lines that `job` knows."""
    try:
        yield
    except Invalid as error:
        if not error.faults:
            raise
        faults = job.locate(error.faults) if job is not None else error.faults
        raise BadFile(source, faults) from error


def check(session: Session, job: JobFile, *, must_fit: bool) -> Job:
    """What the server would make of the job; nothing is created. Raises what creating it would."""
    with faults_of(job.source, job):
        return session.api.jobs.dry_run(job.spec, must_fit=must_fit)


def create(session: Session, job: JobFile, *, must_fit: bool) -> tuple[Job, bool]:
    """The created job, and whether an earlier try of this machine had created it already."""
    from shoal.client.jobs import new_key
    from shoal.client.submissions import Submissions
    from shoal.model.codec import encode_json

    api = session.api
    spec = with_workdir(session, job.spec, job.source)
    kept = Submissions(session.settings.state_dir / "submissions")
    body = encode_json(spec)
    with (
        faults_of(job.source, job),
        kept.begin(body, key=new_key(), url=api.url, project=api.project, now_ms=session.now_ms) as submission,
    ):
        try:
            made, replayed = api.jobs.submit_body(submission.body, key=submission.key, must_fit=must_fit)
        except KeyboardInterrupt:
            _take_back(session, submission)
            raise
    return made, replayed or submission.resumed


def _take_back(session: Session, submission: Submission) -> None:
    """
    Ctrl-C while the answer is awaited: the request may have come through all the same, so what it makes is cancelled by its key.

    A server that does not answer this either hears of it when the same file is submitted again: the key is kept.
    """
    try:
        made = session.api.jobs.cancel_key(submission.key, reason="interrupted while it was being submitted")
    except (ShoalError, KeyboardInterrupt):
        session.note("interrupted; whether a job was made is not known. The same submission again, within an hour, finds it")
        return
    submission.taken_back = True
    session.note(f"interrupted; job {made.number} had been made and is cancelled" if made is not None else "interrupted; no job is made")


def with_workdir(session: Session, spec: JobSpec, source: str) -> JobSpec:
    """`spec` with its working directory uploaded. A relative one is relative to the file that names it."""
    workdir = spec.workdir
    if workdir is None or workdir.path is None or workdir.blob is not None:
        return spec
    base = Path(source).parent if Path(source).is_file() else Path()
    root = base / Path(workdir.path).expanduser()
    blob = upload(session, root, workdir.ignore)
    return replace(spec, workdir=replace(workdir, blob=blob))


def upload(session: Session, root: Path, ignore: Sequence[str]) -> str:
    """The SHA-256 of the archive of `root`, which the server then has."""
    from shoal.client.workdir import list_workdir, pack_workdir
    from shoal.render.amounts import bytes_text

    listing = list_workdir(root, ignore)
    for path in listing.skipped[:3]:
        session.note(f"note: {path} is neither a file nor a directory and stays behind")
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        archive = Path(folder) / "workdir.tar.gz"
        progress = _Progress(f"packing {listing.files:,} files", listing.size_bytes)
        with archive.open("wb") as target:
            pack_workdir(root, listing, target, progress.at)
        progress.done()
        size = archive.stat().st_size
        progress = _Progress(f"uploading {bytes_text(size)}", size)
        blob = session.api.blobs.put_file(archive, progress=progress.at)
        progress.done()
    return blob


class _Progress:
    """A line on a terminal that tells how far it is; silent elsewhere, and for what is done in no time."""

    LEAST_BYTES = 8 << 20

    def __init__(self, what: str, size_bytes: int) -> None:
        self._what = what
        self._size = size_bytes
        self._told = -1
        self._shown = size_bytes >= self.LEAST_BYTES and sys.stderr.isatty()

    def at(self, done_bytes: int) -> None:
        percent = 100 * done_bytes // max(1, self._size)
        if self._shown and percent != self._told:
            self._told = percent
            sys.stderr.write(f"\r{self._what}: {percent}%")
            sys.stderr.flush()

    def done(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
