"""
Plain processes on the machine: the directories, files and orders that one allocation needs. Called by `agent.engine`.

`prepare` may take long (it fetches the job's files) and is then called from a worker thread; everything else is quick. The private
directory is $SHOAL_SCRATCH and $TMPDIR; in it are `work/`, with the job's files, where tasks start, and the scripts (`.run`, `.setup`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shoal.agent.archive import unpack
from shoal.agent.environment import Meeting, Places, setup_environment, task_environment
from shoal.agent.home import HOSTFILES, Home, safe, write_whole
from shoal.agent.hosts import hostfile
from shoal.agent.runtimes.binds import binds_of
from shoal.agent.supervisor import wire
from shoal.agent.unprepared import Unprepared, from_os_error
from shoal.agent.users import Identity, identity_of
from shoal.base import limits
from shoal.base.errors import NotFound, ShoalError
from shoal.lifecycle import lease
from shoal.lifecycle.gang import SIGNALS
from shoal.model.attempt import TaskPlace
from shoal.model.command import Prepare
from shoal.model.wire import LeaseTerms

SETUP_RANK = -1
DEFAULT_SHELL = ("/bin/sh", "-e")
SHEBANG_BYTES_MAX = 256
"""As the kernel reads it (BINPRM_BUF_SIZE)."""


class Source(Protocol):
    """Where a job's files and secrets come from."""

    def fetch_blob(self, sha256: str, target: Path) -> None: ...

    def secrets(self, allocation: str) -> dict[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Ready:
    """What `prepare` found out and made."""

    identity: Identity
    binds: tuple[wire.Bind, ...]
    seen: Mapping[str, str] = field(default_factory=dict)
    """UUIDs of MIG instances by `instance_key`."""


class HostRuntime:
    """See module. `environ` is the agent's own environment, of which little is passed on."""

    def __init__(self, home: Home, source: Source, environ: dict[str, str]) -> None:
        self._home = home
        self._source = source
        self._environ = environ
        self._fetching: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._hostfiles: set[str] = set()

    # --- before the start -----------------------------------------------------------------------------------------------
    def is_light(self, order: Prepare) -> bool:
        """True if `prepare` needs nothing from elsewhere and so takes well under a millisecond."""
        return not order.spec.secrets and (order.spec.workdir is None or order.spec.workdir.blob is None)

    def prepare(self, order: Prepare) -> Ready:
        """The private directory with everything in it. Idempotent. Raises Unprepared; `clean` then takes back what was made."""
        identity = identity_of(order.unix_user, self._environ, os.geteuid())
        try:
            binds = binds_of(order.spec.mounts, os.geteuid() == 0)
            self._make_directories(order, identity)
            self._bring_files(order, identity)
            self._write_scripts(order, identity)
            self._write_secrets(order, identity)
        except OSError as error:
            raise from_os_error(error, "preparing the job's directory") from error
        return Ready(identity, binds)

    def again(self, order: Prepare) -> Ready:
        """What `prepare` gave, for an allocation that an earlier agent has prepared."""
        return Ready(identity_of(order.unix_user, self._environ, os.geteuid()), binds_of(order.spec.mounts, os.geteuid() == 0))

    def _make_directories(self, order: Prepare, identity: Identity) -> None:
        private = self._home.private(order.allocation)
        for directory in (private, f"{private}/work"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            if identity.user is not None:
                os.chown(directory, identity.uid, identity.gid)

    def _bring_files(self, order: Prepare, identity: Identity) -> None:
        if order.spec.workdir is None or order.spec.workdir.blob is None:
            return
        archive = self._fetch(order.spec.workdir.blob)
        owner = None if identity.user is None else (identity.uid, identity.gid)
        unpack(archive, Path(self._work(order)), owner)

    def _fetch(self, blob: str) -> Path:
        """The archive, fetched once for all allocations that share it."""
        target = self._home.blobs / safe(blob)
        with self._lock:
            fetching = self._fetching.setdefault(blob, threading.Lock())
        with fetching:
            if not target.exists():
                try:
                    self._source.fetch_blob(blob, target)
                except NotFound as error:
                    raise Unprepared(f"the job's files ({blob[:12]}) are not on the server", fatal=True) from error
                except ShoalError as error:
                    raise Unprepared(f"the job's files could not be fetched: {error.message}") from error
        return target

    def _write_scripts(self, order: Prepare, identity: Identity) -> None:
        private = self._home.private(order.allocation)
        run = _run_of(order)
        if isinstance(run, str):
            _write(f"{private}/.run", run.encode(), 0o700, identity)
        if order.spec.setup is not None:
            _write(f"{private}/.setup", order.spec.setup.encode(), 0o700, identity)

    def _write_secrets(self, order: Prepare, identity: Identity) -> None:
        if not order.spec.secrets:
            return
        try:
            files = self._source.secrets(order.allocation)
        except NotFound as error:
            raise Unprepared(error.message, fatal=True) from error
        except ShoalError as error:
            raise Unprepared(f"the job's secrets could not be fetched: {error.message}") from error
        directory = self._home.secrets(order.allocation)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        for name, value in files.items():
            _write(f"{directory}/{safe(name)}", value, 0o400, identity)
        os.chown(directory, identity.uid, identity.gid)

    # --- the start ------------------------------------------------------------------------------------------------------
    def write_hostfile(self, order: Prepare, meeting: Meeting) -> str:
        """
        The path of a file with the gang's nodes, known at Commit. Raises OSError. Equal gangs share it.

        One that is resized in place has its own, which is written anew, whole or not at all, each time somebody joins or leaves.
        """
        text = hostfile(meeting.members)
        if order.spec.elastic is not None and order.spec.elastic.how == "in_place":
            own = self._own_hostfile(order.allocation)
            write_whole(own, text.encode(), 0o644)
            return str(own)
        path = self._home.hostfiles / hashlib.sha256(text.encode()).hexdigest()[:16]
        if str(path) not in self._hostfiles:
            write_whole(path, text.encode(), 0o644)
            self._hostfiles.add(str(path))
        return str(path)

    def _own_hostfile(self, allocation: str) -> Path:
        return self._home.hostfiles / f"of-{safe(allocation)}"

    def opening(self, order: Prepare, terms: LeaseTerms) -> wire.Open:
        """The order that begins the allocation, with what the supervisor needs to end it by itself."""
        stop = order.spec.stop
        return wire.Open(
            order.allocation,
            order.attempt,
            order.claim.memory_bytes,
            order.claim.cpu_milli,
            signal_number(stop.signal),
            stop.grace.ms,
            lease.stop_by(0, order.spec, terms),
        )

    def setup(self, order: Prepare, ready: Ready, meeting: Meeting) -> wire.Spawn:
        """The order that runs the setup script."""
        env = setup_environment(order, meeting, self._places(order, meeting), ready.identity.login, ready.seen)
        argv = _script_argv(f"{self._home.private(order.allocation)}/.setup", order.spec.setup or "")
        return self._spawn(order, ready, SETUP_RANK, argv, env, None)

    def task(self, order: Prepare, ready: Ready, meeting: Meeting, task: TaskPlace) -> wire.Spawn:
        """The order that runs one task."""
        env = task_environment(order, task, meeting, self._places(order, meeting), ready.identity.login, ready.seen)
        terminal = order.spec.interactive and task.rank == 0
        window = wire.Window() if terminal else None
        if terminal:
            env.setdefault("TERM", "xterm-256color")
        return self._spawn(order, ready, task.rank, self._argv(order, ready), env, window)

    def exec(self, order: Prepare, ready: Ready, meeting: Meeting, task: TaskPlace, argv: tuple[str, ...]) -> wire.Exec:
        """The order that runs a further command beside a task."""
        env = task_environment(order, task, meeting, self._places(order, meeting), ready.identity.login, ready.seen)
        return wire.Exec(order.allocation, task.rank, argv, env, self._work(order), ready.identity.user, ready.binds)

    def _spawn(
        self, order: Prepare, ready: Ready, rank: int, argv: tuple[str, ...], env: dict[str, str], window: wire.Window | None
    ) -> wire.Spawn:
        log = self._home.log(order.job, order.attempt, rank)
        return wire.Spawn(order.allocation, rank, argv, env, self._work(order), log, ready.identity.user, ready.binds, window)

    def _argv(self, order: Prepare, ready: Ready) -> tuple[str, ...]:
        run = _run_of(order)
        if run is None:
            return (ready.identity.login.shell, "-l")
        if isinstance(run, str):
            return _script_argv(f"{self._home.private(order.allocation)}/.run", run)
        return run

    def _work(self, order: Prepare) -> str:
        return f"{self._home.private(order.allocation)}/work"

    def _places(self, order: Prepare, meeting: Meeting) -> Places:
        secrets = str(self._home.secrets(order.allocation)) if order.spec.secrets else ""
        return Places(self._work(order), self._home.private(order.allocation), self.write_hostfile(order, meeting), secrets)

    def private(self, allocation: str) -> str:
        """The allocation's private directory."""
        return self._home.private(allocation)

    # --- afterwards -----------------------------------------------------------------------------------------------------
    def wipe_secrets(self, allocation: str) -> None:
        """Gone before anybody is told that the allocation is over."""
        directory = self._home.secrets(allocation)
        if directory.exists():
            shutil.rmtree(directory, ignore_errors=True)

    def clean(self, allocation: str) -> None:
        """The private directory goes. May take long."""
        shutil.rmtree(self._home.private(allocation), ignore_errors=True)
        with contextlib.suppress(OSError):
            self._own_hostfile(allocation).unlink(missing_ok=True)

    def drop_logs(self, job: str, attempt: int, ranks: tuple[int, ...]) -> None:
        """Tasks' output on this node goes: the log store has it."""
        for rank in ranks:
            with contextlib.suppress(OSError):
                os.unlink(self._home.log(job, attempt, rank))

    def trim_blobs(self, keep: set[str]) -> None:
        """Archives that no allocation on this node uses go, oldest first, until they fit the bound."""
        files = [entry for entry in os.scandir(self._home.blobs) if entry.is_file() and entry.name not in keep]
        files.sort(key=lambda entry: entry.stat().st_mtime)
        size = sum(entry.stat().st_size for entry in files)
        for entry in files:
            if size <= limits.WORKDIR_BYTES_MAX:
                return
            size -= entry.stat().st_size
            Path(entry.path).unlink(missing_ok=True)

    def sweep(self, held: set[str], logs_needed: bool) -> list[str]:
        """
        Sets aside what an agent that was killed had no time to remove; gives the directories that may now be removed at leisure.

        `held` are the allocations whose directories are needed. Called before any command is taken.
        """
        keep = {safe(allocation) for allocation in held}
        doomed: list[str] = []
        for entry in os.scandir(self._home.secret_root):
            if entry.name not in keep:
                shutil.rmtree(entry.path, ignore_errors=True)
        for entry in os.scandir(self._home.work_root):
            if entry.name not in keep and entry.name != HOSTFILES:
                gone = f"{self._home.work_root}/.gone-{entry.name.removeprefix('.gone-')}"
                os.rename(entry.path, gone)  # so that the same allocation could come again
                doomed.append(gone)
        for directory in () if logs_needed else (self._home.hostfiles, self._home.root / "tasks"):
            for entry in os.scandir(directory):
                os.unlink(entry.path)
        return doomed


def remove_directories(paths: list[str]) -> None:
    """May take long."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def signal_number(name: str) -> int:
    """A signal's number from its name, with or without SIG."""
    return SIGNALS.get(name.removeprefix("SIG"), SIGNALS["TERM"])


def _run_of(order: Prepare) -> str | tuple[str, ...] | None:
    for group in order.spec.groups:
        if group.name == order.claim.group and group.run is not None:
            return group.run
    return order.spec.run


def _script_argv(path: str, text: str) -> tuple[str, ...]:
    """
    How a script is run: by its own #! line, read here as the kernel reads it, else by /bin/sh -e.

    Not by executing the file: a node's state may lie on a file system mounted noexec, and a file that was just written may still be
    open in a process being forked elsewhere ("text file busy").
    """
    first = text.split("\n", 1)[0][:SHEBANG_BYTES_MAX]
    words = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return (*(words or DEFAULT_SHELL), path)


def _write(path: str, data: bytes, mode: int, identity: Identity) -> None:
    """A small file of the task's user; what lay there is replaced, never written through."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        while data:
            data = data[os.write(fd, data) :]
        if identity.user is not None:
            os.fchown(fd, identity.uid, identity.gid)
    finally:
        os.close(fd)
