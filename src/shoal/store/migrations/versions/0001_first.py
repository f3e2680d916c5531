"""The first schema: records, the tail of changes, events, commands, keys, the head row."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
COLUMNS: dict[str, list[sa.Column[Any]]] = {
    "attempt": [],
    "allocation": [sa.Column("node", sa.Text, nullable=False), sa.Column("holding", sa.Integer, nullable=False)],
    "node": [],
    "queue": [],
    "claim": [],
    "token": [],
    "secret": [sa.Column("project", sa.Text, nullable=False)],
}


def upgrade() -> None:
    """All tables from nothing."""
    _head()
    _job()
    for name, more in COLUMNS.items():
        op.create_table(
            name,
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("version", NUMBER, nullable=False),
            sa.Column("body", sa.LargeBinary, nullable=False),
            *more,
        )
    op.create_index("allocation_holding", "allocation", ["node"], **_where("holding = 1"))
    _tail()


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _head() -> None:
    op.create_table(
        "head",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("store_id", sa.Text, nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("command_seq", NUMBER, nullable=False),
        sa.Column("term", NUMBER, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("number_next", NUMBER, nullable=False),
        sa.Column("change_floor", NUMBER, nullable=False),
        sa.Column("event_floor", NUMBER, nullable=False),
    )


def _job() -> None:
    op.create_table(
        "job",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("array_number", NUMBER),
        sa.Column("array_index", NUMBER),
        sa.Column("created", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("id", name="job_by_id"),
    )
    op.create_index("job_by_state", "job", ["state", "project", "number"])
    op.create_index("job_by_array", "job", ["array_number", "number", "array_index"], **_where("array_number IS NOT NULL"))


def _tail() -> None:
    op.create_table(
        "idempotency",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "change", sa.Column("version", NUMBER, primary_key=True, autoincrement=False), sa.Column("body", sa.LargeBinary, nullable=False)
    )
    op.create_table(
        "event",
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("version", "ordinal"),
    )
    op.create_index("event_by_subject", "event", ["subject", "version", "ordinal"])
    op.create_table(
        "command",
        sa.Column("seq", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("command_by_node", "command", ["node", "seq"])
