"""
Brings a database to the schema that this code knows. A cheap look says whether anything is to be done.

Alembic and SQLAlchemy are imported only if so: they cost a quarter of a second, which each start of `shoal up` would pay otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.base.errors import Refused
from shoal.store import statements
from shoal.store.dialect import Connection, Dialect

if TYPE_CHECKING:
    from sqlalchemy import Engine

HEAD_REVISION: Final = "0005"
"""The newest migration; a test compares it with the files."""
_MIGRATIONS: Final = Path(__file__).parent / "migrations"


def ensure_schema(connection: Connection, dialect: Dialect, store_id: str) -> None:
    """The schema is the newest and the head row is there, afterwards. `store_id` is used only where the store is new."""
    if revision_of(connection, dialect) != HEAD_REVISION:
        upgrade(connection, dialect)
    dialect.begin_write(connection, durable=True)
    row = connection.execute(dialect.text(statements.HEAD_READ)).fetchone()
    if row is None:
        connection.execute(dialect.text(statements.HEAD_MAKE), {"store_id": store_id})
    connection.execute("COMMIT")


def revision_of(connection: Connection, dialect: Dialect) -> str | None:
    """The migration that a database is at; None for one without a schema."""
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except dialect.errors:
        return None
    return None if row is None else str(row[0])


def upgrade(connection: Connection, dialect: Dialect) -> None:
    """Runs the missing migrations, all in one transaction: an upgrade is done or it has not begun."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    try:
        with _engine(connection, dialect).begin() as through:
            config.attributes["connection"] = through
            command.upgrade(config, "head")
    except DBAPIError as error:
        if isinstance(error.orig, dialect.errors):
            raise error.orig from error  # in the driver's own form, which our callers know how to tell
        raise
    except CommandError as error:
        found = revision_of(connection, dialect)
        raise Refused(
            f"the state was written by a newer Shoal: its schema is {found}, this program knows up to {HEAD_REVISION}. Upgrade Shoal"
        ) from error


def _engine(connection: Connection, dialect: Dialect) -> Engine:
    """SQLAlchemy on top of our own connection, which it must not close."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import StaticPool

    engine = create_engine(f"{dialect.engine}://", creator=lambda: connection, poolclass=StaticPool)

    @event.listens_for(engine, "begin")
    def begin(through: Any) -> None:
        """The driver begins nothing by itself here, and DDL would commit statement by statement."""
        through.exec_driver_sql("BEGIN")

    return engine
