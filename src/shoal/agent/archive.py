"""
A job's files out of their archive (tar.gz), into an empty directory that nobody else can write to yet.

What an archive could do to the one who unpacks it, and what stands against it: names that lead out (absolute, `..`): refused; writing
through a symbolic link: links are made last; devices, pipes: refused; set-uid bits: dropped; bombs: bytes and entries are counted as
they come out, and no header may claim more than a megabyte. Links may point anywhere: they are followed with the user's rights.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from pathlib import Path
from typing import IO, Self

from shoal.agent.unprepared import Unprepared, from_os_error
from shoal.base import limits
from shoal.base.units import format_memory

HEADER_BYTES_MAX = 1 << 20
"""Of a long name or an extended header, which tarfile reads whole; a path has 4,096 bytes at most."""
SLACK_BYTES = 64 << 20
"""Room for headers and padding over the bytes of the files themselves."""
COPY_BYTES = 1 << 20
Owner = tuple[int, int] | None
_WHOLE = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class _Entry(tarfile.TarInfo):
    """An entry whose header is not believed blindly."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _WHOLE and entry.size > HEADER_BYTES_MAX:
            raise Unprepared(f"the archive of the job's files is damaged or hostile: a header claims {entry.size} bytes", fatal=True)
        return entry


class _Counted:
    """The unpacked bytes, counted."""

    def __init__(self, packed: IO[bytes], most_bytes: int) -> None:
        self._unpacked = gzip.GzipFile(fileobj=packed, mode="rb")
        self._most = most_bytes
        self._count = 0

    def read(self, size: int) -> bytes:
        data = self._unpacked.read(size)
        self._count += len(data)
        if self._count > self._most + SLACK_BYTES:
            raise _too_large(self._most)
        return data


def _too_large(most_bytes: int) -> Unprepared:
    return Unprepared(f"the job's files are over {format_memory(most_bytes)} when unpacked, the most that is taken", fatal=True)


def unpack(
    path: Path, target: Path, owner: Owner = None, *, bytes_max: int = limits.WORKDIR_BYTES_MAX, files_max: int = limits.WORKDIR_FILES_MAX
) -> None:
    """
    Everything of the archive is below `target`, owned by `owner`. Raises Unprepared, fatal when the archive is to blame.
    """
    try:
        with path.open("rb") as packed:
            stream = _Counted(packed, bytes_max)
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as archive:  # type: ignore[call-overload]
                _unpack_all(archive, target, owner, bytes_max, files_max)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as error:
        raise Unprepared(f"the archive of the job's files cannot be read: {error}", fatal=True) from error
    except OSError as error:
        raise from_os_error(error, "unpacking the job's files") from error


def _unpack_all(archive: tarfile.TarFile, target: Path, owner: Owner, bytes_max: int, files_max: int) -> None:
    links: list[tuple[Path, str]] = []
    left = bytes_max
    for count, entry in enumerate(archive):
        if entry.size < 0:
            raise Unprepared(f"the archive of the job's files gives {entry.name!r} a size of {entry.size}", fatal=True)
        left -= entry.size
        if count >= files_max:
            raise Unprepared(f"the job's files are more than {files_max}, the most that is taken", fatal=True)
        if left < 0:
            raise _too_large(bytes_max)
        place = target / _inside(entry.name)
        if entry.isdir():
            _directory(place, target, entry.mode, owner)
        elif entry.isreg():
            _directory(place.parent, target, 0o755, owner)
            _file(archive, entry, place, owner)
        elif entry.issym():
            _directory(place.parent, target, 0o755, owner)
            links.append((place, entry.linkname))
        elif entry.islnk():
            _hard_link(target / _inside(entry.linkname), place, target, owner)
        else:
            raise Unprepared(f"the archive of the job's files has {entry.name!r}, which is no file, directory or link", fatal=True)
    for place, points_to in links:
        _symbolic_link(place, points_to, owner)


def _inside(name: str) -> str:
    steps = [step for step in name.split("/") if step not in ("", ".")]
    if name.startswith("/") or ".." in steps or "\0" in name:
        raise Unprepared(f"the archive of the job's files has the name {name!r}, which leads out of the working directory", fatal=True)
    return "/".join(steps)


def _directory(place: Path, target: Path, mode: int, owner: Owner) -> None:
    """`place` and what is missing above it, down from `target`."""
    missing = []
    while place != target and not place.is_dir():
        missing.append(place)
        place = place.parent
    for directory in reversed(missing):
        directory.mkdir(mode=(mode & 0o777) | 0o700)
        if owner is not None:
            os.chown(directory, *owner)


def _file(archive: tarfile.TarFile, entry: tarfile.TarInfo, place: Path, owner: Owner) -> None:
    place.unlink(missing_ok=True)
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, (entry.mode & 0o777) | 0o600)
    with open(fd, "wb") as file:
        source = archive.extractfile(entry)
        while source is not None and (data := source.read(COPY_BYTES)):
            file.write(data)
        file.flush()
        if owner is not None:
            os.fchown(fd, *owner)
        os.utime(fd, (entry.mtime, entry.mtime))


def _hard_link(source: Path, place: Path, target: Path, owner: Owner) -> None:
    if not source.is_file():
        raise Unprepared(f"the archive of the job's files links {place.name!r} to a file that is not in it", fatal=True)
    _directory(place.parent, target, 0o755, owner)
    place.unlink(missing_ok=True)
    os.link(source, place, follow_symlinks=False)


def _symbolic_link(place: Path, points_to: str, owner: Owner) -> None:
    if place.is_dir() and not place.is_symlink():
        raise Unprepared(f"the archive of the job's files has {place.name!r} as a directory and as a link", fatal=True)
    place.unlink(missing_ok=True)
    os.symlink(points_to, place)
    if owner is not None:
        os.lchown(place, *owner)
