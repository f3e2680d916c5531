"""
The schema as the newest migration leaves it, in SQLAlchemy Core. Used by migrations and tests alone: nothing imports it at run time.

The columns beside `body` are for look-ups; the record itself is the JSON in `body`. Indexes are few: each is paid at every write.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, PrimaryKeyConstraint, Table, Text, UniqueConstraint, text

METADATA = MetaData()
NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""64 bits everywhere; only a column of exactly this type becomes SQLite's row id."""


def _records(name: str, *more: Column[object] | Index) -> Table:
    """A table of records found by id."""
    return Table(
        name,
        METADATA,
        Column("id", Text, primary_key=True),
        Column("version", NUMBER, nullable=False),
        Column("body", LargeBinary, nullable=False),
        *more,
    )


head = Table(
    "head",
    METADATA,
    Column("id", NUMBER, primary_key=True, autoincrement=False),
    Column("store_id", Text, nullable=False),
    Column("version", NUMBER, nullable=False),
    Column("command_seq", NUMBER, nullable=False),
    Column("term", NUMBER, nullable=False),
    Column("holder", Text, nullable=False),
    Column("number_next", NUMBER, nullable=False),
    Column("change_floor", NUMBER, nullable=False),
    Column("event_floor", NUMBER, nullable=False),
)
job = Table(
    "job",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("version", NUMBER, nullable=False),
    Column("project", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("array_number", NUMBER),
    Column("array_index", NUMBER),
    Column("created", NUMBER, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("id", name="job_by_id"),
    Index("job_by_state", "state", "project", "number"),
    Index(
        "job_by_array",
        "array_number",
        "number",
        "array_index",
        sqlite_where=text("array_number IS NOT NULL"),
        postgresql_where=text("array_number IS NOT NULL"),
    ),
)
"""Clustered by number: lists go by it, and it grows, so new rows go to the end."""
attempt = _records("attempt")
allocation = _records(
    "allocation",
    Column("node", Text, nullable=False),
    Column("holding", Integer, nullable=False),
    Index("allocation_holding", "node", sqlite_where=text("holding = 1"), postgresql_where=text("holding = 1")),
)
node = _records("node")
queue = _records("queue")
usage = _records("usage")
claim = _records("claim")
reservation = _records("reservation")
schedule = _records("schedule")
token = _records("token")
secret = _records("secret", Column("project", Text, nullable=False))
idempotency = Table(
    "idempotency",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("created_ms", NUMBER, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("idempotency_by_age", "created_ms"),
)
change = Table(
    "change", METADATA, Column("version", NUMBER, primary_key=True, autoincrement=False), Column("body", LargeBinary, nullable=False)
)
event = Table(
    "event",
    METADATA,
    Column("version", NUMBER, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("version", "ordinal"),
    Index("event_by_subject", "subject", "version", "ordinal"),
)
command = Table(
    "command",
    METADATA,
    Column("seq", NUMBER, primary_key=True, autoincrement=False),
    Column("backend", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("command_by_node", "node", "seq"),
)
