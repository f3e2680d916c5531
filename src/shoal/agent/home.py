"""
Where an agent keeps what, below the node's state directory:

    node.json     who the node is and its token (0600)     agent.lock         one agent per node
    outbox        reports not yet recorded                 taken              last command seq carried out
    holds         the journal of what is held              blobs/<sha256>     archives of jobs' files
    supervisor/   socket, journal (0700)                   tasks/<job>.<attempt>.<rank>.log

and, in `work_root`, one private directory per allocation and `.hostfiles/` with lists of nodes by content. The work root lies elsewhere
(/var/lib/shoal/...) where tasks of other users could not reach it below the state directory. Few directories and files are made per
job: each costs a quarter of a millisecond of CPU on an ordinary disk file system.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shoal.base.errors import Refused

MACHINE_ROOT = Path("/var/lib/shoal")
HOSTFILES = ".hostfiles"
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Home:
    root: Path
    work_root: Path
    secret_root: Path
    """On memory where the machine has such a file system: secrets do not reach a disk."""

    @property
    def identity(self) -> Path:
        return self.root / "node.json"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    @property
    def taken(self) -> Path:
        return self.root / "taken"

    @property
    def holds(self) -> Path:
        return self.root / "holds"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def supervisor(self) -> Path:
        return self.root / "supervisor"

    @property
    def hostfiles(self) -> Path:
        return self.work_root / HOSTFILES

    def log(self, job: str, attempt: int, rank: int) -> str:
        return f"{self.root}/tasks/{safe(job)}.{attempt}.{rank}.log"

    def private(self, allocation: str) -> str:
        return f"{self.work_root}/{safe(allocation)}"

    def secrets(self, allocation: str) -> Path:
        return self.secret_root / safe(allocation)


def safe(name: str) -> str:
    """`name` as one step of a path, never another directory."""
    text = _SAFE.sub("_", name)
    return text if text.strip(".") else "_" + text


def make_home(root: Path, work_root: Path | None = None) -> Home:
    """The directories, made. Raises Refused naming the one that cannot be."""
    as_root, mark = os.geteuid() == 0, _mark(root)
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o711 if as_root else 0o700)
        for name in ("blobs", "supervisor", "tasks"):
            (root / name).mkdir(exist_ok=True, mode=0o700)
        work = work_root or _work_root(root, mark, as_root)
        work.mkdir(parents=True, exist_ok=True, mode=0o711)
        (work / HOSTFILES).mkdir(exist_ok=True, mode=0o711)
        secret = _secret_root(root, mark)
        secret.mkdir(exist_ok=True, mode=0o711)
        _check_owner(secret)
    except OSError as error:
        raise Refused(f"{error.filename or root}: {error.strerror}; the agent needs a directory of its own (--state-dir)") from error
    return Home(root.absolute(), work.absolute(), secret)


def leave_home(root: Path) -> None:
    """
    Takes away what `make_home` made outside of the state directory, where it is empty: for a node whose agent and supervisor have ended.

    A work root that the agent was given (`--work-dir`) is its owner's.
    """
    mark = _mark(root)
    work = _work_root(root, mark, os.geteuid() == 0)
    outside = (work / HOSTFILES, work, work.parent) if root.absolute() not in work.parents else ()
    with suppress(OSError):
        if outside and [entry.name for entry in os.scandir(work)] == [HOSTFILES]:
            for entry in os.scandir(work / HOSTFILES):
                os.unlink(entry.path)
    for path in (*outside, _secret_root(root, mark)):
        with suppress(OSError):
            path.rmdir()


def _mark(root: Path) -> str:
    return hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:8]


def _secret_root(root: Path, mark: str) -> Path:
    return _memory_root(root) / f"shoal-{os.geteuid()}-{mark}"


def _work_root(root: Path, mark: str, as_root: bool) -> Path:
    """Below the state directory; but where other users' tasks could not get there, in a place of the machine's own."""
    inside = root.absolute() / "work"
    if not as_root or all(parent.stat().st_mode & stat.S_IXOTH for parent in inside.parents if parent.exists()):
        return inside
    return MACHINE_ROOT / f"{safe(root.name)}-{mark}" / "work"


def _memory_root(root: Path) -> Path:
    for candidate in (Path("/run") if os.geteuid() == 0 else None, Path("/dev/shm"), Path(tempfile.gettempdir())):  # noqa: S108
        if candidate is not None and os.access(candidate, os.W_OK | os.X_OK) and _is_memory(candidate):
            return candidate
    return root


def _is_memory(path: Path) -> bool:
    wanted, best, kind = str(path), "", ""
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            _, mount, this_kind, *_ = line.split(" ")
            inside = wanted == mount or wanted.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, this_kind
    return kind in ("tmpfs", "ramfs")


def _check_owner(path: Path) -> None:
    """Somebody else may have made the directory first, to read what we put there."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to user {status.st_uid}; remove it, since secrets would go there")


def lock_home(home: Home) -> int:
    """A descriptor to keep open: one agent per node. Raises Refused."""
    fd = os.open(home.root / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise Refused(f"another agent runs with the state directory {home.root}") from None
    return fd


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """The file has this content or, after a crash, the one of before."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
    os.replace(new, path)
