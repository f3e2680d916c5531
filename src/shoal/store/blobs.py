"""
Uploaded archives by the SHA-256 of their content. What has its name is whole: the name is given after the last byte was checked and synced.

Two that upload the same content at once do each other no harm: the second rename puts the same bytes in the same place.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from shoal.base import limits
from shoal.base.errors import Invalid, NotFound, TooLarge, Unavailable
from shoal.base.units import format_memory

_NAME: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class BlobStore:
    """See module. Files are `<directory>/<first two>/<sha256>`; unfinished ones in `<directory>/incoming`. Any thread."""

    def __init__(self, directory: Path, bytes_max: int = limits.WORKDIR_BYTES_MAX) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._incoming = directory / "incoming"
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._incoming.iterdir():  # Of a server that died while receiving: nobody will finish it.
            left.unlink(missing_ok=True)

    def has(self, sha256: str) -> bool:
        return self._path(sha256).is_file()

    def size(self, sha256: str) -> int:
        """Bytes of a blob. Raises NotFound."""
        try:
            return self._path(sha256).stat().st_size
        except FileNotFoundError:
            raise _missing(sha256) from None

    def open(self, sha256: str) -> BinaryIO:
        """A blob for reading; the caller closes it. Raises NotFound."""
        try:
            return self._path(sha256).open("rb")
        except FileNotFoundError:
            raise _missing(sha256) from None

    def receive(self, sha256: str) -> Incoming:
        """A blob on its way in, for those who get it piece by piece: `with`, `write` each piece, `finish`."""
        return Incoming(self._path(sha256), self._incoming / f"{sha256}.{secrets.token_hex(8)}", self._bytes_max)

    def put(self, sha256: str, chunks: Iterable[bytes]) -> int:
        """
        Stores a blob durably, and says how many bytes it has. Storing what is there already changes nothing.

        Raises: TooLarge as soon as the limit is passed, Invalid where the content has another hash, Unavailable where the disk fails.
        """
        with self.receive(sha256) as incoming:
            for chunk in chunks:
                incoming.write(chunk)
            return incoming.finish()

    def remove(self, sha256: str) -> None:
        """Drops a blob; those that read it keep what they opened."""
        self._path(sha256).unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        if not _NAME.fullmatch(sha256):
            raise Invalid(f"blob {sha256[:80]!r}: a blob is named by its SHA-256, 64 lower-case hexadecimal digits")
        return self._directory / sha256[:2] / sha256


class Incoming:
    """One upload. Leaving the `with` without `finish` leaves nothing behind."""

    def __init__(self, path: Path, temporary: Path, bytes_max: int) -> None:
        self._path = path
        self._temporary = temporary
        self._bytes_max = bytes_max
        self._hash = hashlib.sha256()
        self._size = 0
        try:
            self._file = open(temporary, "xb")  # noqa: SIM115 - closed by `finish` or `__exit__`
            os.chmod(temporary, 0o600)
        except OSError as error:
            raise _unavailable(error) from error

    def __enter__(self) -> Self:
        return self

    def write(self, data: bytes) -> None:
        """Takes the next piece. Raises TooLarge, Unavailable."""
        self._size += len(data)
        if self._size > self._bytes_max:
            limit = format_memory(self._bytes_max)
            raise TooLarge(
                f"the upload has more than {limit}, the limit of a working directory; leave data out (ignore rules) and mount it"
            )
        self._hash.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise _unavailable(error) from error

    def finish(self) -> int:
        """Checks the hash, makes the blob durable under its name, and says how many bytes it has."""
        if self._hash.hexdigest() != self._path.name:
            raise Invalid(f"the upload's SHA-256 is {self._hash.hexdigest()}, announced was {self._path.name}; it was damaged on its way")
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            os.replace(self._temporary, self._path)
            _sync_directory(self._path.parent)
            _sync_directory(self._path.parent.parent)
        except OSError as error:
            raise _unavailable(error) from error
        return self._size

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError as failed:  # What was buffered does not fit: it is thrown away anyway.
            if kind is None:
                raise _unavailable(failed) from failed
        finally:
            self._temporary.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """The names in it survive a power cut."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _missing(sha256: str) -> NotFound:
    return NotFound(f"blob {sha256} is not here; upload it again")


def _unavailable(error: OSError) -> Unavailable:
    return Unavailable(f"the blob store cannot write: {error.strerror}", retry_after_ms=5_000, internal=repr(error))
