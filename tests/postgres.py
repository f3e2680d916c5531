"""
A real PostgreSQL for tests: a cluster of its own on a socket in a temporary directory, with a database for each test that asks.

It does not sync, since what is tested is Shoal; it listens on no port, and is stopped by the id of its process.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from services import postgres_programs

START_WAIT_S = 60.0
SETTINGS = {"fsync": "off", "listen_addresses": "", "max_connections": "200", "shared_buffers": "32MB", "jit": "off"}


class Cluster:
    """See module. `url(name)` makes a database the first time that it is asked for."""

    def __init__(self, socket_directory: Path) -> None:
        self._socket = socket_directory
        self._made: set[str] = set()

    def url(self, name: str) -> str:
        if name not in self._made:
            with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
            self._made.add(name)
        return self._url(name)

    def drop(self, name: str) -> None:
        """Ends every session in a database and removes it."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._made.discard(name)

    def _url(self, name: str) -> str:
        return f"postgresql://shoal@/{name}?host={self._socket}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster while it is needed."""
    programs = postgres_programs()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="shoal-pg-") as folder:
        home = Path(folder)
        as_user = _unprivileged(home)
        data = home / "data"
        subprocess.run(
            [*as_user, programs / "initdb", "-D", data, "-U", "shoal", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
        )
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen([*as_user, programs / "postgres", "-D", data, "-k", home, *settings], stdout=log, stderr=log)
        try:
            _wait(server, home)
            yield Cluster(home)
        finally:
            server.terminate()
            server.wait(START_WAIT_S)


def _unprivileged(home: Path) -> list[str]:
    """PostgreSQL refuses to run as root: the words before its own that make it another user's, who then owns `home`."""
    if os.geteuid() != 0:
        return []
    user = next((entry for name in ("postgres", "nobody") if (entry := _entry(name)) is not None), None)
    assert user is not None
    os.chown(home, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _wait(server: subprocess.Popen[bytes], home: Path) -> None:
    end = time.monotonic() + START_WAIT_S
    while True:
        try:
            psycopg.connect(f"postgresql://shoal@/postgres?host={home}").close()
            return
        except psycopg.Error:
            if server.poll() is not None or time.monotonic() > end:
                raise AssertionError((home / "log").read_text()) from None
            time.sleep(0.05)
