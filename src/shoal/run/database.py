"""
Which database a state directory belongs to, and what people do with databases: migrate, move, copy.

The URL of a database other than the directory's own file is kept in `<state>/database` (0600): it may hold a password, and arguments of
a process can be read by everybody on the machine. Called by the server, `shoal up` and `shoal db`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal.base.errors import Invalid, Refused

OWN_FILE = "shoal.db"
KEPT = "database"


def kept_database(state_dir: Path) -> str | Path:
    """The database of a state directory: the URL that was kept there, else its own file."""
    try:
        url = (state_dir / KEPT).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return state_dir / OWN_FILE
    except OSError as error:
        raise Refused(f"{state_dir / KEPT} cannot be read: {error.strerror}; it names the database of this Shoal") from error
    return url or state_dir / OWN_FILE


def keep_database(state_dir: Path, url: str) -> None:
    """From now on this directory's server uses the database at `url`. Raises Invalid for what names none."""
    if url.partition("://")[0] not in ("postgresql", "postgres", "sqlite"):
        raise Invalid(f"--database {shown(url)}: write postgresql://USER:PASSWORD@HOST:PORT/NAME, or sqlite:///PATH")
    part = state_dir / f".{KEPT}"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"{url}\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(state_dir / KEPT)


def shown(where: str | Path) -> str:
    """A database as messages name it: without what stands between its user's name and the host."""
    text = str(where)
    scheme, found, rest = text.partition("://")
    if not found or "@" not in rest.partition("/")[0]:
        return text
    user, _, host = rest.partition("@")
    return f"{scheme}://{user.partition(':')[0]}@{host}"


# --- what people do with databases ---------------------------------------------------------------------------------------------
class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """A database at the newest schema. `before` is empty where it was new."""

    database: str
    before: str
    now: str


class MovedTo(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were taken along, by table, and the version that both databases are at."""

    database: str
    rows: dict[str, int]
    version: int


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a database file."""

    file: str
    bytes: int


def migrate(where: str | Path) -> Migrated:
    """Brings a database that nobody serves to the newest schema. Raises Refused where one does, or where a newer Shoal wrote it."""
    from shoal.store.schema import HEAD_REVISION, ensure_schema, revision_of
    from shoal.store.sql import dialect_of

    dialect, lock = dialect_of(where)
    try:
        connection = dialect.connect_writer()
        try:
            before = revision_of(connection, dialect)
            if before != HEAD_REVISION:
                ensure_schema(connection, dialect, str(uuid.uuid4()))
        finally:
            connection.close()
    finally:
        if lock is not None:
            lock.release()
    return Migrated(database=shown(where), before=before or "", now=HEAD_REVISION)


def move(state_dir: Path, target: str, tell: Callable[[str, int], None]) -> MovedTo:
    """
    The state of a directory into another database, which its server uses from then on.

    A file that was moved out of stays beside as `shoal.db.moved`: nothing is deleted. Logs, archives and keys stay in the directory.
    """
    from shoal.store.moving import move_store

    source = kept_database(state_dir)
    if isinstance(source, Path) and not source.exists():
        raise Refused(f"there is no state in {state_dir} to move; `shoal up --database {shown(target)}` starts a new one there")
    moved = move_store(source, target, tell)
    keep_database(state_dir, target)
    if isinstance(source, Path):
        source.replace(source.with_name(f"{source.name}.moved"))
    return MovedTo(database=shown(target), rows=moved.rows, version=moved.version)


def backup(state_dir: Path, file: Path) -> Copied:
    """A copy of a directory's own state file as of one moment, also while its server runs."""
    from shoal.store.moving import backup_store

    source = kept_database(state_dir)
    if not isinstance(source, Path):
        raise Refused(f"the state is in {shown(source)}: copy it with `pg_dump --format=custom`, which is of one moment too")
    return Copied(file=str(file), bytes=backup_store(source, file))
