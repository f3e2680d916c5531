"""
The one row that numbers everything: version, command numbers, term, job numbers. Read and written by each write transaction.

Kept apart from the records so that a group of sets changes one small row, and so that on a database with several writers the lock on
this row puts their commits in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.store import statements
from shoal.store.dialect import Connection, Dialect


@dataclass(slots=True)
class Head:
    """
    As stored, or as the write transaction in progress will leave it.

    `number_next` is the lowest job number that was never given away. Of changes and events up to their floors nothing is kept.
    """

    version: int
    command_seq: int
    term: int
    holder: str
    number_next: int
    change_floor: int
    event_floor: int
    store_id: str


def read_head(connection: Connection, dialect: Dialect, *, lock: bool) -> Head | None:
    """The head row, for a writer with `lock` held until its transaction ends where others could write; None in a store just made."""
    row = connection.execute(dialect.text(statements.HEAD_LOCK if lock else statements.HEAD_READ)).fetchone()
    return None if row is None else Head(*row)


def write_head(connection: Connection, dialect: Dialect, head: Head) -> None:
    """Stores the head; part of each write transaction, and the last statement of it."""
    values = {
        "version": head.version,
        "command_seq": head.command_seq,
        "term": head.term,
        "holder": head.holder,
        "number_next": head.number_next,
        "change_floor": head.change_floor,
        "event_floor": head.event_floor,
    }
    connection.execute(dialect.text(statements.HEAD_WRITE), values)
