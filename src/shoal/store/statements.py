"""
All SQL that runs while Shoal runs, written by hand in the part that SQLite and PostgreSQL share.

Parameters are `:name`, or `?` in the generated rows. `{any}` is "one of the ids in parameter `ids`", `{for_update}` locks the head row
where several servers may write; `dialect.text` puts both into a database's own words. Why not built by a library: see ADR 0002.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from shoal.model.job import ENDED, JobState
from shoal.store.kinds import Kind

ROWS_PER_STATEMENT: Final = (64, 16, 4, 1)
"""
Rows are written many per statement, since each step of a statement lets go of the interpreter's lock and may wait milliseconds to get it
back from a busy thread. A few fixed sizes, so that every statement is prepared once. (Measured with a busy second thread, groups of 256:
the worst group took 0.3 s so, and 5 s by `executemany`.)
"""

# --- head and tail --------------------------------------------------------------------------------------------------------
HEAD_READ: Final = "SELECT version, command_seq, term, holder, number_next, change_floor, event_floor, store_id FROM head WHERE id = 1"
HEAD_LOCK: Final = f"{HEAD_READ} {{for_update}}"
HEAD_WRITE: Final = (
    "UPDATE head SET version = :version, command_seq = :command_seq, term = :term, holder = :holder, number_next = :number_next,"
    " change_floor = :change_floor, event_floor = :event_floor WHERE id = 1"
)
HEAD_MAKE: Final = (
    "INSERT INTO head (id, store_id, version, command_seq, term, holder, number_next, change_floor, event_floor)"
    " VALUES (1, :store_id, 0, 0, 0, '', 1, 0, 0)"
)
CHANGES_AFTER: Final = "SELECT version, body FROM change WHERE version > :after ORDER BY version LIMIT :limit"
CHANGES_DROP: Final = "DELETE FROM change WHERE version <= :floor"
EVENTS_DROP: Final = "DELETE FROM event WHERE version <= :floor"

# --- what the writer checks -----------------------------------------------------------------------------------------------
KEYS_OF: Final = "SELECT id, body FROM idempotency WHERE id {any}"
KEYS_DROP: Final = (
    "DELETE FROM idempotency WHERE id IN (SELECT id FROM idempotency WHERE created_ms < :before ORDER BY created_ms LIMIT :limit)"
)
COMMANDS_CONFIRM: Final = "DELETE FROM command WHERE node = :node AND seq <= :through"

# --- jobs -----------------------------------------------------------------------------------------------------------------
_ENDED_LIST = ", ".join(f"'{state.value}'" for state in sorted(ENDED))
_LIVE_LIST = ", ".join(f"'{state.value}'" for state in JobState if state not in ENDED)

JOBS_LIVE: Final = f"SELECT body FROM job WHERE state IN ({_LIVE_LIST})"  # noqa: S608 - the states are the enum's own
JOB_BY_NUMBER: Final = "SELECT body FROM job WHERE number = :number AND project = :project"
JOB_BY_ELEMENT: Final = "SELECT body FROM job WHERE array_number = :array AND array_index = :index AND project = :project"
STATES_ENDED_BY_ID: Final = f"SELECT id, state FROM job WHERE id {{any}} AND state IN ({_ENDED_LIST})"  # noqa: S608
ELEMENTS_BY_STATE: Final = (
    "SELECT state, count(*) FROM job WHERE array_number = (SELECT number FROM job WHERE id = :array_id) GROUP BY state ORDER BY state"
)

# --- other records --------------------------------------------------------------------------------------------------------
ALLOCATIONS_HOLDING: Final = "SELECT body FROM allocation WHERE holding = 1"
ALLOCATIONS_ON: Final = "SELECT body FROM allocation WHERE holding = 1 AND node = :node"
SECRETS_OF: Final = "SELECT body FROM secret WHERE project = :project"
KEY_BY_ID: Final = "SELECT body FROM idempotency WHERE id = :id"
COMMANDS_AFTER: Final = "SELECT body FROM command WHERE seq > :after AND backend = :backend ORDER BY seq LIMIT :limit"


@lru_cache(maxsize=1_024)
def insert_rows(table: str, columns: tuple[str, ...], rows: int) -> str:
    """Inserts `rows` rows at once; positional parameters, row after row."""
    row = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * rows)}"  # noqa: S608 - names are `kinds`' own


@lru_cache(maxsize=256)
def write_rows(kind: Kind, rows: int) -> str:
    """As `insert_rows` for records that are there already: `version`, `body` and the changing columns are set by id."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in ("version", "body", *kind.changing))
    return f"{insert_rows(kind.table, record_columns(kind), rows)} ON CONFLICT (id) DO UPDATE SET {changed}"


def record_columns(kind: Kind) -> tuple[str, ...]:
    return ("id", "version", "body", *kind.columns)


@lru_cache(maxsize=32)
def versions_of(table: str) -> str:
    """(id, version) of those of `ids` that are there."""
    return f"SELECT id, version FROM {table} WHERE id {{any}}"  # noqa: S608


@lru_cache(maxsize=32)
def bodies_of(table: str) -> str:
    """(id, body) of those of `ids` that are there."""
    return f"SELECT id, body FROM {table} WHERE id {{any}}"  # noqa: S608


@lru_cache(maxsize=32)
def body_of(table: str) -> str:
    return f"SELECT body FROM {table} WHERE id = :id"  # noqa: S608


@lru_cache(maxsize=32)
def all_bodies(table: str) -> str:
    return f"SELECT body FROM {table}"  # noqa: S608


@lru_cache(maxsize=32)
def delete_of(table: str) -> str:
    return f"DELETE FROM {table} WHERE id {{any}}"  # noqa: S608


@lru_cache(maxsize=256)
def jobs_page(filters: tuple[str, ...]) -> str:
    """
    One page of jobs, newest number first, (number, body); `filters` are names of `JOB_FILTERS`.

    Keyset, never an offset: the cost of a page does not grow with its place, and new rows push nothing.
    """
    wanted = " AND ".join(JOB_FILTERS.get(name) or _states_filter(name) for name in ("project", *filters))
    return f"SELECT number, body FROM job WHERE {wanted} ORDER BY number DESC LIMIT :limit"  # noqa: S608


JOB_FILTERS: Final = {
    "project": "project = :project",
    "state": "state = :state",
    "queue": "queue = :queue",
    "owner": "owner = :owner",
    "array": "array_number = :array",
    "top_level": "array_number IS NULL",
    "before": "number < :before",
    "as_of": "created <= :as_of",
}


def _states_filter(name: str) -> str:
    """
    For `states3`: one of `:state0` to `:state2`.

    The empty text added keeps the planner from the index on states, which would walk all jobs of a state to find those of one array.
    """
    count = int(name.removeprefix("states"))
    return f"state || '' IN ({', '.join(f':state{i}' for i in range(count))})"


@lru_cache(maxsize=64)
def events_page(project: bool, subject: bool, kinds: int, one_version: bool) -> str:
    """Events after a version in (version, ordinal) order, (version, body); `kinds` is how many kinds are asked for (0: all)."""
    wanted = ["version = :after" if one_version else "version > :after"]
    if project:
        wanted.append("project = :project")
    if subject:
        wanted.append("subject = :subject")
    if kinds:
        wanted.append(f"kind IN ({', '.join(f':kind{i}' for i in range(kinds))})")
    limit = "" if one_version else " LIMIT :limit"
    return f"SELECT version, body FROM event WHERE {' AND '.join(wanted)} ORDER BY version, ordinal{limit}"  # noqa: S608
