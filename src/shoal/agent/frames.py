"""Small append-only files of MessagePack frames: what the agent must know again after it was killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shoal.agent.supervisor.wire import Frames
from shoal.base.errors import ShoalError
from shoal.model.codec import decode_pack, encode_pack


class FrameFile:
    """Frames at the end of a file. Each is in the page cache when `append` returns: it survives us, though not the machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._fd).st_size

    def append(self, value: Any) -> None:
        """Raises OSError (full disk) and then leaves the file as it was."""
        data = pack(value)
        written = os.write(self._fd, data)
        if written < len(data):
            os.ftruncate(self._fd, self.size)
            raise OSError(28, "no space left on device", str(self._path))
        self.size += written

    def clear(self) -> None:
        """The file is empty."""
        os.ftruncate(self._fd, 0)
        self.size = 0

    def replace(self, values: list[Any]) -> None:
        """The file holds just these, whenever we are killed."""
        new = self._path.with_name(self._path.name + ".new")
        data = b"".join(pack(value) for value in values)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(fd, data)
        os.replace(new, self._path)
        os.close(self._fd)
        self._fd, self.size = fd, len(data)

    def close(self) -> None:
        os.close(self._fd)


def pack(value: Any) -> bytes:
    body = encode_pack(value)
    return len(body).to_bytes(4, "little") + body


def read_frames(path: Path, kind: Any) -> list[Any]:
    """The frames of a file, each a `kind` (type or union), as far as they can be read: a dead machine may leave a torn end."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    values: list[Any] = []
    try:
        for body in Frames().feed(data):
            values.append(decode_pack(body, kind))
    except (ShoalError, ValueError):
        pass
    return values
