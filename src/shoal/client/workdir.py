"""
A working directory as one archive: the files that travel with a job, packed so that equal files give equal bytes.

The archive (tar, gzip) is named by its SHA-256, so an unchanged directory is sent once. For that, names are sorted and times, owners and
most of the modes are left out: a file is 0755 if its owner may run it, else 0644. Special files stay behind; a link that leads out of
the directory is an error, since it would lead nowhere on a node.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shoal.base.errors import Invalid, TooLarge
from shoal.base.limits import WORKDIR_BYTES_MAX, WORKDIR_FILES_MAX
from shoal.base.units import format_memory
from shoal.formats.ignore import ALWAYS, IgnoreRules

RULE_FILES = (".shoalignore", ".gitignore")
"""The first that is there counts."""
FIXED_MTIME_S = 946_684_800
"""2000-01-01: the archive tells no times, and some formats (zip) cannot say 1970."""
OFFENDERS_SHOWN = 5
COMPRESS_LEVEL = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that travels. `path` is relative, with `/`; `link` is the target of a symbolic link."""

    path: str
    mode: int
    size_bytes: int = 0
    link: str | None = None
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What travels, by path, and what does not for lack of a way."""

    entries: tuple[Entry, ...]
    skipped: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)

    @property
    def files(self) -> int:
        return sum(not entry.is_directory for entry in self.entries)


def list_workdir(root: Path, ignore: Sequence[str] = ()) -> Listing:
    """
    What travels of `root`: all but what the rule file at its root and `ignore` leave out, in this order, the last match deciding.

    Raises: Invalid for what is no directory or cannot be read, and for links that lead out; TooLarge, naming the largest parts.
    """
    if not root.is_dir():
        raise Invalid(f"workdir {str(root)!r} is not a directory")
    rules = IgnoreRules((*ALWAYS, *_rule_lines(root), *ignore))
    entries: list[Entry] = []
    skipped: list[str] = []
    try:
        for entry in _walk(root, "", rules, skipped):
            entries.append(entry)
            if len(entries) > WORKDIR_FILES_MAX:
                raise _too_many(root, entries)
    except OSError as error:
        raise Invalid(
            f"workdir {str(root)!r}: cannot read {error.filename!r}: {error.strerror}; leave it out with a {RULE_FILES[0]}"
        ) from error
    listing = Listing(tuple(sorted(entries, key=lambda entry: entry.path)), tuple(skipped))
    if listing.size_bytes > WORKDIR_BYTES_MAX:
        raise _too_large(root, listing)
    return listing


def pack_workdir(root: Path, listing: Listing, target: IO[bytes], progress: Callable[[int], None] | None = None) -> None:
    """Writes the archive of `listing` to `target`; `progress` hears how many bytes of files are in."""
    done = 0
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=target, compresslevel=COMPRESS_LEVEL, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in listing.entries:
            if entry.is_directory or entry.link is not None:
                archive.addfile(_header(entry))
                continue
            with (root / entry.path).open("rb") as file:
                try:
                    archive.addfile(_header(entry), file)
                except OSError as error:
                    raise Invalid(
                        f"{entry.path!r} became shorter while it was packed; submit again when it is no longer written"
                    ) from error
            done += entry.size_bytes
            if progress is not None:
                progress(done)


def _rule_lines(root: Path) -> list[str]:
    for name in RULE_FILES:
        path = root / name
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
    return []


def _walk(root: Path, under: str, rules: IgnoreRules, skipped: list[str]) -> Iterator[Entry]:
    with os.scandir(root / under) as found:
        children = sorted(found, key=lambda child: child.name)
    for child in children:
        path = f"{under}/{child.name}" if under else child.name
        is_directory = child.is_dir(follow_symlinks=False)
        if rules.ignores(path, is_directory=is_directory):
            continue
        status = child.stat(follow_symlinks=False)
        if is_directory:
            yield Entry(path, 0o755, is_directory=True)
            yield from _walk(root, path, rules, skipped)
        elif stat.S_ISLNK(status.st_mode):
            yield Entry(path, 0o777, link=_inner_link(root, path))
        elif stat.S_ISREG(status.st_mode):
            yield Entry(path, 0o755 if status.st_mode & stat.S_IXUSR else 0o644, status.st_size)
        else:
            skipped.append(path)


def _inner_link(root: Path, path: str) -> str:
    """The target of a link that stays inside. Raises Invalid for one that leads out."""
    target = os.readlink(root / path)
    landing = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or landing == ".." or landing.startswith("../"):
        raise Invalid(
            f"workdir: the link {path!r} leads out of the directory (to {target!r}) and would lead nowhere on a node; "
            f"leave it out with a {RULE_FILES[0]}, copy what it names, or use mounts"
        )
    return target


def _header(entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.path)
    header.mode, header.mtime, header.size = entry.mode, FIXED_MTIME_S, entry.size_bytes
    if entry.is_directory:
        header.type = tarfile.DIRTYPE
    elif entry.link is not None:
        header.type, header.linkname = tarfile.SYMTYPE, entry.link
    return header


def _too_large(root: Path, listing: Listing) -> TooLarge:
    largest = sorted(listing.entries, key=lambda entry: (-entry.size_bytes, entry.path))[:OFFENDERS_SHOWN]
    names = ", ".join(f"{entry.path} ({_size(entry.size_bytes)})" for entry in largest)
    return TooLarge(
        f"workdir {str(root)!r} has {_size(listing.size_bytes)}, at most {format_memory(WORKDIR_BYTES_MAX)} travel with a job. "
        f"Largest: {names}. Leave data out with a {RULE_FILES[0]}, and mount it"
    )


def _too_many(root: Path, entries: Sequence[Entry]) -> TooLarge:
    counts: dict[str, int] = {}
    for entry in entries:
        top = entry.path.partition("/")[0]
        counts[top] = counts.get(top, 0) + 1
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:OFFENDERS_SHOWN]
    names = ", ".join(f"{name} ({count:,} so far)" for name, count in most)
    return TooLarge(
        f"workdir {str(root)!r} has more than the {WORKDIR_FILES_MAX:,} files that travel with a job. Most in: {names}. "
        f"Leave them out with a {RULE_FILES[0]}"
    )


def _size(size_bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f}{unit}"
    return f"{size_bytes}B"
