"""
Submissions kept on disk until they are answered: the key of a create outlives the client that sent it.

A client that is killed between sending and hearing leaves its submission behind. The same submission made again within RESUME_MS takes
over the old key, so the server answers with the job that it may have made. A submission whose client still lives is locked and never
taken over: two shells that submit the same file at once mean two jobs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

RESUME_MS = 3_600_000
"""An hour: after that the same file more likely means a new job than a second try."""
KEPT_MAX = 1_000
"""Older ones beyond this count are dropped; each stands for a client that died while submitting."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A submission as it is kept."""

    key: str
    url: str
    project: str
    body: bytes
    created_ms: int


@dataclass(slots=True)
class Submission:
    """A submission under way. `resumed`: an earlier client began it and did not hear the answer."""

    key: str
    body: bytes
    resumed: bool
    taken_back: bool = False
    """Set by who has cancelled it by its key: there is nothing left to try again."""


class Submissions:
    """The folder of submissions of one user, made on first use with mode 0700."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def begin(self, body: bytes, *, key: str, url: str, project: str, now_ms: int) -> Iterator[Submission]:
        """
        A submission that is on disk while the block runs. Leaving it without an error means that it was answered, and drops it;
        so does an error that is an answer (`answered`). Anything else leaves it for the next try.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()
        name = hashlib.sha256(b"\n".join((url.encode(), project.encode(), body))).hexdigest()[:32]
        path, file, kept = self._claim(name, Kept(key=key, url=url, project=project, body=body, created_ms=now_ms))
        submission = Submission(kept.key, kept.body, resumed=kept.key != key)
        try:
            yield submission
        except BaseException as error:
            if submission.taken_back or answered(error):
                path.unlink(missing_ok=True)
            raise
        else:
            path.unlink(missing_ok=True)
        finally:
            file.close()

    def pending(self) -> tuple[Kept, ...]:
        """What was begun and not answered, oldest first; those under way too."""
        if not self._folder.is_dir():
            return ()
        found = (_read(path) for path in self._folder.glob("*.json"))
        return tuple(sorted((kept for kept in found if kept is not None), key=lambda kept: (kept.created_ms, kept.key)))

    def _claim(self, name: str, fresh: Kept) -> tuple[Path, IO[bytes], Kept]:
        """The first free place for this submission: an orphan's that is young enough, or a new one. The file is locked until closed."""
        number = 0
        while True:
            path = self._folder / f"{name}.{number}.json"
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                number += 1
                continue
            if not _same_file(path, file):  # Its owner was answered and dropped it while we opened it.
                file.close()
                continue
            old = _decode(file.read())
            if old is not None and 0 <= fresh.created_ms - old.created_ms < RESUME_MS:
                return path, file, old
            file.seek(0)
            file.truncate()
            file.write(msgspec.json.encode(fresh))
            file.flush()
            return path, file, fresh

    def _sweep(self) -> None:
        paths = sorted(self._folder.glob("*.json"), key=lambda path: (_mtime(path), path.name))
        for path in paths[:-KEPT_MAX]:
            path.unlink(missing_ok=True)


def answered(error: BaseException) -> bool:
    """True for an error that the server gave as its last word: nothing was created and a repeat would hear the same."""
    from shoal.base.errors import RequestError, ShoalError, Unavailable

    return isinstance(error, ShoalError) and not isinstance(error, Unavailable) and (isinstance(error, RequestError) or not error.retryable)


def _same_file(path: Path, file: IO[bytes]) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


def _mtime(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _read(path: Path) -> Kept | None:
    with suppress(FileNotFoundError):
        return _decode(path.read_bytes())
    return None


def _decode(data: bytes) -> Kept | None:
    """None for a file whose writer died in the middle: it had sent nothing."""
    try:
        return msgspec.json.decode(data, type=Kept)
    except msgspec.MsgspecError:
        return None
