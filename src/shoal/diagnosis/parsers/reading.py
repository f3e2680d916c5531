"""
`read_facts`: all parsers over all pieces of evidence, one pass over the lines. Pure; bounded by `lines` and `facts`.

A sentence that says something is *not* there ("no Xid in dmesg") is no sign of it: words of denial close before a match take it away
where people write freely. Logs do not deny, so there nothing is taken away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shoal.diagnosis.evidence import Evidence, Kind, Piece, Side
from shoal.diagnosis.facts import Fact, Facts
from shoal.diagnosis.lines import Line, lines_of
from shoal.diagnosis.parsers import app_messages, cluster_messages, container_messages, host_messages
from shoal.diagnosis.parsers.making import make
from shoal.diagnosis.parsers.message import Index, Message
from shoal.diagnosis.parsers.tables import labels_in, pci_in, pods_in, resources_in, rules_in, smi_in
from shoal.diagnosis.parsers.words import words_in
from shoal.diagnosis.signs import Sign

TABLES: Final[tuple[Message, ...]] = (
    *host_messages.HARDWARE,
    *host_messages.DRIVER,
    *host_messages.FABRIC,
    *host_messages.GPU_STATE,
    *host_messages.PRESENT,
    *container_messages.TOOLKIT,
    *container_messages.CDI,
    *container_messages.RUNTIME,
    *container_messages.CGROUP,
    *container_messages.SANDBOX,
    *cluster_messages.LABELS,
    *cluster_messages.PLUGIN,
    *cluster_messages.DRA,
    *cluster_messages.KUBELET,
    *cluster_messages.SCHEDULER,
    *cluster_messages.MIG,
    *cluster_messages.MPS,
    *cluster_messages.SLURM,
    *cluster_messages.MONITORING,
    *cluster_messages.WAITING,
    *app_messages.COMPAT,
    *app_messages.IMAGE,
    *app_messages.APPLICATION,
)
_BY_KIND: Final[dict[Kind, Index]] = {
    kind: Index([message for message in TABLES if message.kinds is None or kind in message.kinds]) for kind in Kind
}

_XID: Final = re.compile(
    r"\bXid\b[^:\n]{0,4}\((?:PCI:)?(?P<bus>[0-9a-f:.]*[0-9a-f])\)?: ?(?P<code>\d{1,3})\b(?:, ?(?P<text>.*))?"
    r"|\bXid[ =:#]{1,3}(?:error |code )?(?P<bare>\d{1,3})\b|\bEventData ?[:=] ?(?P<event>\d{1,3})\b"
    r"|\bXID_ERRORS?\b\S*[ =:]+(?P<metric>[1-9]\d{0,2})\b",
    re.IGNORECASE,
)
_RECOVERY: Final = re.compile(r"recovery action changed from 0x\w+ \(([^)]*)\) to 0x\w+ \((?P<to>[^)]*)\)", re.IGNORECASE)
_DENIED: Final = re.compile(
    r"\b(?:no|not|without|never|neither|nor|zero|isn't|aren't|wasn't|free of)\b(?:[^.;,\n]|\.(?=\S)){0,24}$", re.IGNORECASE
)
_FREE_KINDS: Final = frozenset(
    {Kind.HOST, Kind.NODE, Kind.NOTE, Kind.HARDWARE, Kind.SMI, Kind.SMI_HOST, Kind.SMI_CONTAINER, Kind.KERNEL_LOG}
)
_DENIABLE: Final = frozenset(
    message.sign for message in (*host_messages.HARDWARE, *host_messages.GPU_STATE, *cluster_messages.MPS, *app_messages.APPLICATION)
) | {Sign.XID, Sign.MARKED_UNHEALTHY, Sign.CUDA_802, Sign.NOUVEAU, Sign.SECURE_BOOT, Sign.NVSWITCH, Sign.MIG_ON}
_COMPLAINT: Final = re.compile(
    r"\b(?:error|fail(?:ed|ure|s)?|fatal|panic|cannot|can't|denied|refused|timed? ?out|unable|invalid|abort\w*|unsupported|crash\w*)\b",
    re.IGNORECASE,
)
_ABOUT_GPU: Final = re.compile(r"nvidia|nvml|nvrm|cuda|\bgpus?\b|\bmig\b|\bcdi\b|gres|dcgm|nvlink|nvswitch|\bxid\b|nccl", re.IGNORECASE)
SHORT_LINES: Final = 3
"""A piece of so few lines is a statement: what it worries about is meant."""
_WORRY: Final = re.compile(
    r"\b(?:not|never|no|none|missing|n/a|unhealthy|stuck|slow\w*|hangs?|hung|lost|wrong|empty|zero|fails?|error|\w*killed|crash\w*|evicted|timeouts?|restart(?:s|ing))\b",
    re.IGNORECASE,
)
_SAID_SHORTLY: Final = frozenset(Kind) - {Kind.SMI, Kind.SMI_HOST, Kind.SMI_CONTAINER, Kind.CAPACITY, Kind.ALLOCATABLE, Kind.RESOURCES}
_ONLY_SAID: Final = frozenset({Kind.HOST, Kind.NODE, Kind.NOTE, Kind.HARDWARE})


def read_facts(evidence: Evidence) -> Facts:
    """What is in the evidence, before anything is concluded from it."""
    facts = Facts()
    for piece in evidence.pieces:
        lines = list(lines_of(piece.text))
        before = len(facts)
        for line in lines:
            facts.extend(_line_facts(piece, line))
        for parser in (resources_in, smi_in, pci_in, rules_in):
            facts.extend(parser(piece, lines))
        if lines and len(lines) <= SHORT_LINES and len(facts) == before:
            facts.add(make(Sign.UNREAD, piece, lines[0], reported=True))
    return facts


def _line_facts(piece: Piece, line: Line) -> Iterator[Fact]:
    found = False
    for fact in _messages(piece, line):
        found = True
        yield fact
    for fact in (*_xids(piece, line), *labels_in(piece, line), *pods_in(piece, line), *words_in(piece, line)):
        found = True
        yield fact
    if not found and _WORRY.search(line.message) and piece.kind in _SAID_SHORTLY and piece.text.count("\n") < SHORT_LINES:
        yield make(Sign.COMPLAINT, piece, line, reported=True, about="gpu")
    elif not found and _COMPLAINT.search(line.message) and (_ABOUT_GPU.search(line.message) or piece.kind not in _ONLY_SAID):
        about = "gpu" if _ABOUT_GPU.search(line.message) else "other"
        yield make(Sign.COMPLAINT, piece, line, about=about)


def _messages(piece: Piece, line: Line) -> Iterator[Fact]:
    for message in _BY_KIND[piece.kind].candidates(line.message):
        match = message.pattern.search(line.message)
        if match is None or (message.sign in _DENIABLE and piece.kind in _FREE_KINDS and _denied(line.message, match.start())):
            continue
        values = {name: value for name, value in match.groupdict().items() if value}
        yield make(message.sign, piece, line, side=_side(message, piece), reported=piece.kind in _ONLY_SAID, **values)


def _side(message: Message, piece: Piece) -> Side | None:
    if message.side is not None:
        return message.side
    return Side.HOST if piece.kind is Kind.SMI else None


def _denied(text: str, start: int) -> bool:
    return _DENIED.search(text[:start]) is not None


def _xids(piece: Piece, line: Line) -> Iterator[Fact]:
    for match in _XID.finditer(line.message):
        if piece.kind in _FREE_KINDS and _denied(line.message, match.start()):
            continue
        code = match["code"] or match["bare"] or match["event"] or match["metric"]
        if code is None or int(code) == 0:
            continue
        recovery = _RECOVERY.search(line.message)
        yield make(
            Sign.XID,
            piece,
            line,
            reported=piece.kind in _ONLY_SAID,
            code=str(int(code)),
            bus=(match["bus"] or "").lower(),
            text=match["text"],
            to=recovery["to"] if recovery else None,
        )
