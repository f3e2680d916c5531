"""Blobs over HTTP: files named by their SHA-256, sent only when the server has not got them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from shoal.base.errors import NotFound, Unavailable
from shoal.client.transport import Patience, segment

if TYPE_CHECKING:
    from shoal.client.api import Api

PIECE_BYTES = 1 << 20


class Blobs:
    """`api.blobs`, of the api's project."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._http = api.transport

    def has(self, sha256: str) -> bool:
        try:
            self._http.request("HEAD", self._path(sha256))
        except NotFound:
            return False
        return True

    def put_file(self, path: Path, progress: Callable[[int], None] | None = None) -> str:
        """
        The blob's name (SHA-256, hex). Sends the file unless the server has it; a broken upload starts anew within the patience.

        `progress` hears how many bytes have gone.
        """
        with path.open("rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()
        size = str(path.stat().st_size)
        headers = {"Content-Type": "application/octet-stream", "Content-Length": size}
        patience = Patience(self._http.patience_s)
        while not self.has(name):
            try:
                with path.open("rb") as file:
                    self._http.request("PUT", self._path(name), body=_pieces(file, progress), headers=headers)
            except Unavailable as error:
                patience.pause(error)
        return name

    def get_to(self, sha256: str, target: Path, *, path: str | None = None) -> None:
        """Writes the blob to `target`, which is only there when it is whole and its content has the right hash."""
        part = target.with_name(target.name + ".part")
        digest = hashlib.sha256()
        try:
            with self._http.stream(path or self._path(sha256)) as pieces, part.open("wb") as file:
                while piece := pieces.read(PIECE_BYTES):
                    digest.update(piece)
                    file.write(piece)
            if digest.hexdigest() != sha256:
                raise Unavailable(f"blob {sha256[:12]} came with other bytes ({digest.hexdigest()[:12]}); fetch it again")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def _path(self, sha256: str) -> str:
        return f"/v1/projects/{segment(self._api.project)}/blobs/{segment(sha256)}"


def _pieces(file: IO[bytes], progress: Callable[[int], None] | None) -> Iterator[bytes]:
    done = 0
    while piece := file.read(PIECE_BYTES):
        yield piece
        done += len(piece)
        if progress is not None:
            progress(done)
