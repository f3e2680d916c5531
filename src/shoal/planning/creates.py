"""What a control plane loses without idempotency keys and cursors: duplicates, keys that collide, repeated rows, late cancels."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Work
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic


class DuplicateCreates(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that try a create again after a timeout, without a key."""

    creates: Annotated[float, Ask("creates/day", "creates")]
    timed_out: Annotated[float, Ask("1", "share that times out", most=1)]
    had_succeeded: Annotated[float, Ask("1", "share of those that had in fact succeeded", most=1)] = assumed("0.5")
    gpus: Annotated[int, Ask("GPU", "GPUs of such a job")] = 64
    until_found: Annotated[float, Ask("min", "how long a duplicate runs")] = assumed("5 min")


def duplicate_creates(x: DuplicateCreates) -> Answer:
    """Duplicate jobs a day and the GPU time they take."""
    work = Work()
    work.put("duplicates", x.creates * x.timed_out * x.had_succeeded, "1/day", "creates * timed_out * had_succeeded")
    waste = x.creates * x.timed_out * x.had_succeeded * x.gpus * x.until_found
    work.put("waste", waste, "GPU*h/day", "duplicates * gpus * until_found")
    work.put("duplicates_with_keys", 0.0, "1/day", "0", "the same key gives the same job")
    return work.done("creates x timed out x had succeeded", "each timeout is tried once more; several tries make more", "the timeouts")


class KeyCollision(msgspec.Struct, frozen=True, kw_only=True):
    """Random keys."""

    keys: Annotated[float, Ask("1", "keys ever made")]
    bits: Annotated[int, Ask("1", "random bits of a key", least=1, most=1_000)]


def key_collision(x: KeyCollision) -> Answer:
    """The probability that any two of the keys are equal."""
    work = Work()
    pairs = work.put("expected_pairs", x.keys * x.keys / 2 / 2.0**x.bits, "1", "keys * keys / 2 / 2 ** bits")
    work.find("p_collision", -math.expm1(-pairs), "1", "1 - exp(-expected_pairs)")
    return work.done("birthday bound 1 - exp(-n^2 / 2 / 2^b)", "keys from a good source of randomness", lead="p_collision")


class OffsetPaging(msgspec.Struct, frozen=True, kw_only=True):
    """A list read page by page by offset, newest first, while rows are inserted."""

    inserts: Annotated[float, Ask("rows/s", "rows inserted")]
    pages: Annotated[int, Ask("1", "pages read", least=1)]
    page_time: Annotated[float, Ask("s", "time of a page")]


def offset_paging(x: OffsetPaging) -> Answer:
    """Rows that come twice, by offset and by cursor."""
    work = Work()
    work.put("repeated_rows", x.inserts * (x.pages - 1) * x.page_time, "rows", "inserts * (pages - 1) * page_time")
    work.put("repeated_with_cursor", 0.0, "rows", "0", "a cursor on (created, id)")
    return work.done("rows inserted between the first and the last page", "newest first; deletes skip rows in the same way")


class CancelLatency(msgspec.Struct, frozen=True, kw_only=True):
    """A cancel that reaches its node with the next heartbeat."""

    heartbeat: Annotated[float, Ask("s", "time between an agent's calls")]
    grace: Annotated[float, Ask("s", "time given to end")]
    gpus: Annotated[int, Ask("GPU", "GPUs of the job", least=1)] = 8


def cancel_latency(x: CancelLatency) -> Answer:
    """How long a cancelled job still holds its GPUs, on average."""
    work = Work()
    latency = work.put("latency", x.heartbeat / 2 + x.grace, "s", "heartbeat / 2 + grace")
    work.put("still_charged", x.gpus * latency, "GPU*s", "gpus * latency", "until the agent confirms")
    return work.done("half a heartbeat and the grace", "the agent answers; a silent one is fenced by its lease")


DUPLICATE_CREATES: Final = Topic(DuplicateCreates, duplicate_creates, "timed_out")
KEY_COLLISION: Final = Topic(KeyCollision, key_collision, "keys")
OFFSET_PAGING: Final = Topic(OffsetPaging, offset_paging, "inserts")
CANCEL_LATENCY: Final = Topic(CancelLatency, cancel_latency, "heartbeat")
