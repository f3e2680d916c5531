"""
Evidence out of a bundle: a directory or a tar archive with whatever people gather (nvidia-bug-report, kubectl dumps, dmesg, gpud logs).

Bounded in memory and time whatever the bundle holds: files are streamed, lines that say nothing about GPUs or faults are left out of
long ones, archives inside are not opened (a compressed single file is), and what is no text is passed over. Names decide how a file
is read (`diagnosis.evidence.kind_of`); an nvidia-bug-report is cut into its sections first.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from shoal.base.errors import Malformed, NotFound
from shoal.diagnosis.evidence import Evidence, Kind, Piece, kind_of
from shoal.diagnosis.lines import SAME_SHAPE_MAX
from shoal.diagnosis.mask import mask

FILES_MAX: Final = 4_000
"""Files looked at in one bundle; a dump of a cluster of a hundred nodes has about as many."""
FILE_BYTES_MAX: Final = 512 << 20
"""Of one file, after decompression; more is a mistake or an attack."""
WHOLE_LINES: Final = 2_000
"""Lines of a file that are kept as they are; of longer files only telling lines, from there on."""
TELLING_LINES_MAX: Final = 20_000
PIECE_CHARS_MAX: Final = 2 << 20
SHAPES_MAX: Final = 50_000
"""Shapes of lines remembered per file: at 200 bytes each, 10 MiB."""
_NO_DIGITS: Final = bytes.maketrans(b"0123456789", b"0000000000")
LINE_BYTES_MAX: Final = 16 << 10
SECONDS_MAX: Final = 8.0
PIECES_MAX: Final = 2_000

_TELLING: Final = tuple(
    word.encode()
    for word in (
        *("nvidia", "nvrm", "xid", "nvml", "cuda", "gpu", "mig ", "mig-", "cdi", "gres", "nouveau", "fallen off", "unsigned", "nvswitch"),
        *("rejected by service", "fabric", "dcgm", "runsc", "nvproxy", "vfio", "topologyaffinity", "admissionerror", "pciehp", "aer:"),
    )
)
"""One of these is in a line about GPUs. Words and not one expression: looking for them in turn is ten times faster."""
_SECTION: Final = re.compile(r"^_{8,}\s*$|^\*{3}\s+(?:/\S+|ls: )")
_BINARY_SHARE: Final = 0.3
_BROKEN: Final = (OSError, EOFError, zlib.error, tarfile.TarError)


class Bundle(NamedTuple):
    evidence: Evidence
    passed_over: tuple[str, ...]
    """Names of files that were not read, each with why."""


def read_bundle(path: Path) -> Bundle:
    """
    The evidence in a bundle.

    Raises: NotFound where `path` is not there, Malformed where it is a file that is neither a tar archive nor text.
    """
    if not path.exists():
        raise NotFound(f"there is no bundle at {path}")
    pieces: list[Piece] = []
    passed: list[str] = []
    end = time.monotonic() + SECONDS_MAX
    try:
        for count, (name, stream) in enumerate(_files(path), 1):
            if count > FILES_MAX or len(pieces) >= PIECES_MAX or time.monotonic() > end:
                passed.append(f"{name} and what follows: the bounds of a bundle are reached")
                break
            found, why = _pieces_of(name, stream, end)
            pieces += found
            if why:
                passed.append(f"{name}: {why}")
    except _BROKEN as error:
        if not pieces and not path.is_dir():
            raise Malformed(f"{path} cannot be read as a bundle: {error}") from error
        passed.append(f"the rest: {error}")
    return Bundle(Evidence(pieces=tuple(pieces[:PIECES_MAX]), id=path.name), tuple(passed))


def _files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and stream of every regular file; links and devices are not followed."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.is_symlink():
                with file.open("rb") as stream:
                    yield str(file.relative_to(path)), stream
    elif _is_tar(path):
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isfile() and (taken := archive.extractfile(member)) is not None:
                    yield member.name, taken
    else:
        with path.open("rb") as stream:
            yield path.name, stream


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except _BROKEN:  # a compressed file that ends too early
        return False


def _pieces_of(name: str, stream: IO[bytes], end: float) -> tuple[list[Piece], str]:
    head = stream.read(2)
    opened: IO[bytes] = _Joined(head, stream)  # type: ignore[assignment]
    if head == b"\x1f\x8b":
        opened = gzip.GzipFile(fileobj=io.BufferedReader(opened))  # type: ignore[type-var,assignment]
    text = _text_of(opened, end)
    if text is None:
        return [], "no text"
    key = re.sub(r"\.(?:gz|log|txt|out|json|ya?ml)\b", "", Path(name).name)
    if "bug-report" in name:
        return [piece for piece in _sections(text) if piece.text.strip()], ""
    kind = kind_of(key)
    if kind is Kind.NOTE:
        kind = kind_of(" ".join(Path(name).parts[-3:]))
    return ([Piece(key=key, kind=kind, text=mask(text), source=name)] if text.strip() else []), ""


class _Joined(io.RawIOBase):
    """A stream with its first bytes, which were read to see what it is, put back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._head or self._rest.read(len(buffer))
        self._head = b""
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _text_of(stream: IO[bytes], end: float) -> str | None:
    """The lines of a stream worth keeping, or None for what is no text."""
    kept: list[bytes] = []
    size = 0
    shapes = _Shapes()
    for chunk in _chunks(stream, end):
        if not kept and _is_binary(chunk):
            return None
        whole = len(kept) < WHOLE_LINES
        if not whole and not _tells(chunk):
            continue
        for line in chunk.split(b"\n"):
            if len(kept) >= WHOLE_LINES and not (_tells(line) and shapes.new(line)):
                continue
            kept.append(line[:LINE_BYTES_MAX])
            size += len(kept[-1])
            if len(kept) >= WHOLE_LINES + TELLING_LINES_MAX or size >= PIECE_CHARS_MAX:
                return b"\n".join(kept).decode("utf-8", "replace")
    return b"\n".join(kept).decode("utf-8", "replace")


class _Shapes:
    """Lines that differ in digits alone, counted: a message that fills a log must not crowd out the one at its end."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}

    def new(self, line: bytes) -> bool:
        """If `line` is one of the first SAME_SHAPE_MAX of its shape."""
        shape = line[:200].translate(_NO_DIGITS)
        count = self._seen.get(shape, 0)
        if count == 0 and len(self._seen) >= SHAPES_MAX:
            return True
        self._seen[shape] = count + 1
        return count < SAME_SHAPE_MAX


def _tells(text: bytes) -> bool:
    small = text.lower()
    return any(word in small for word in _TELLING)


def _chunks(stream: IO[bytes], end: float) -> Iterator[bytes]:
    """Runs of whole lines until the stream, its byte limit or the time ends. A line without an end is cut."""
    read = 0
    rest = b""
    while read < FILE_BYTES_MAX and time.monotonic() < end:
        try:
            chunk = stream.read(1 << 16)
        except _BROKEN:  # what came before the damage stays
            break
        if not chunk:
            break
        read += len(chunk)
        whole, newline, rest_of_chunk = chunk.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = rest_of_chunk
        else:
            rest = (rest + chunk)[:LINE_BYTES_MAX]
    if rest:
        yield rest


def _is_binary(start: bytes) -> bool:
    sample = start[:1024]
    odd = sum(byte < 9 or 13 < byte < 32 for byte in sample)
    return b"\0" in sample or odd > _BINARY_SHARE * max(1, len(sample))


def _sections(text: str) -> Iterator[Piece]:
    """The sections of an nvidia-bug-report; each begins with a rule and the name of a file or command."""
    title, lines = "kernel log", list[str]()
    awaiting = False
    for line in text.splitlines():
        if _SECTION.match(line):
            yield _section(title, lines)
            title, lines, awaiting = line.lstrip("* ").strip(), [], line.startswith("_")
        elif awaiting and line.strip():
            title, awaiting = line.lstrip("* ").strip(), False
        else:
            lines.append(line)
    yield _section(title, lines)


def _section(title: str, lines: list[str]) -> Piece:
    kind = kind_of(title)
    if kind in (Kind.SMI, Kind.SMI_CONTAINER):
        kind = Kind.SMI_HOST
    elif kind in (Kind.NOTE, Kind.DRIVER_LOG, Kind.HARDWARE):
        kind = Kind.KERNEL_LOG
    return Piece(key=title[:80], kind=kind, text=mask("\n".join(lines)), source="nvidia-bug-report")
