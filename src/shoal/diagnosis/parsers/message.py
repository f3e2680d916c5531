"""
The form of a message table: which words in a log line are which sign.

A table holds what programs print, word for word where the words are fixed and open where versions, paths and numbers stand. A row
says in which kinds of evidence it is looked for; the same words mean different things in a driver's and in an application's log.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shoal.diagnosis.evidence import Kind, Side
from shoal.diagnosis.signs import Sign

POD_KINDS: Final = frozenset(
    {
        Kind.PLUGIN_LOG,
        Kind.GFD_LOG,
        Kind.DRA_LOG,
        Kind.MONITOR,
        Kind.VALIDATOR_LOG,
        Kind.CONTAINER_LOG,
        Kind.SMI_CONTAINER,
        Kind.APP_LOG,
        Kind.MPS,
        Kind.PODS,
        Kind.POD_EVENTS,
        Kind.NOTE,
    }
)
"""What programs inside pods print, or what is written down of them."""
OPERAND_KINDS: Final = POD_KINDS - {Kind.APP_LOG, Kind.MONITOR}
PLUGIN_KINDS: Final = frozenset({Kind.PLUGIN_LOG, Kind.GFD_LOG, Kind.PODS, Kind.POD_EVENTS, Kind.NOTE, Kind.CONTAINER_LOG, Kind.MIG})
APP_KINDS: Final = frozenset(
    {Kind.APP_LOG, Kind.CONTAINER_LOG, Kind.NOTE, Kind.POD_EVENTS, Kind.RAY, Kind.SLURM, Kind.VALIDATOR_LOG, Kind.PODS}
)
DRIVER_KINDS: Final = frozenset(
    {
        Kind.DRIVER_LOG,
        Kind.KERNEL_LOG,
        Kind.JOURNAL,
        Kind.PACKAGES,
        Kind.HOST,
        Kind.NODE,
        Kind.NOTE,
        Kind.LISTING,
        Kind.PODS,
        Kind.HARDWARE,
        Kind.CONTAINER_LOG,
        Kind.OPERATOR_LOG,
        Kind.VALIDATOR_LOG,
    }
)


class Message(NamedTuple):
    """`sign` is seen where `pattern` is found in a line of one of `kinds` (all if None). Named groups become the fact's values."""

    sign: Sign
    pattern: re.Pattern[str]
    kinds: frozenset[Kind] | None = None
    side: Side | None = None
    """The side that the words themselves fix, whatever the kind says."""


def seen(sign: Sign, *words: str, kinds: frozenset[Kind] | None = None, side: Side | None = None) -> Message:
    """A row of a table: any of `words`, which are regular expressions. Letters match in both cases."""
    return Message(sign, re.compile("|".join(words), re.IGNORECASE), kinds, side)
