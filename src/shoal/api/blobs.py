"""Handlers: blobs, named by the SHA-256 of their bytes. They come and go in pieces: a working directory may have gigabytes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import BinaryIO

from shoal.api.operations import Answer, Call, Stream
from shoal.base.errors import Malformed, NotFound

PIECE_BYTES = 1 << 20
_NAME = re.compile(r"[0-9a-f]{64}")


async def put_blob(call: Call) -> Answer:
    """Takes the body in; a body whose hash is another is refused and leaves nothing."""
    blobs, name = call.service.plane.blobs, _name_of(call)
    if blobs.has(name):
        return Answer(status=200)
    with blobs.receive(name) as incoming:
        # Each write goes to a thread for itself: a slow sender must not keep one, since there are few and logs are read by them too.
        async for piece in _gathered(call):
            await call.service.in_files(incoming.write, piece)
        await call.service.in_files(incoming.finish)
    return Answer(status=201)


async def has_blob(call: Call) -> Answer:
    blobs, name = call.service.plane.blobs, _name_of(call)
    if not blobs.has(name):
        raise NotFound(f"no blob {name}")
    return Answer(headers=(("Content-Length", str(blobs.size(name))), ("Content-Type", "application/octet-stream")))


async def get_blob(call: Call) -> Answer | Stream:
    return await send_blob(call, _name_of(call))


async def send_blob(call: Call, name: str) -> Stream:
    """The blob's bytes, with their count, so that its reader sees when some are missing."""
    blobs = call.service.plane.blobs
    if not _NAME.fullmatch(name) or not blobs.has(name):
        raise NotFound(f"no blob {name}")
    file = await call.service.in_files(blobs.open, name)
    return Stream(_pieces(call, file), headers=(("Content-Length", str(blobs.size(name))),))


async def _pieces(call: Call, file: BinaryIO) -> AsyncGenerator[bytes, None]:
    with file:
        while piece := await call.service.in_files(file.read, PIECE_BYTES):
            yield piece


async def _gathered(call: Call) -> AsyncGenerator[bytes, None]:
    """The body in pieces of about PIECE_BYTES: as they come they are a hundred times smaller than a thread's hop is worth."""
    held: list[bytes] = []
    size = 0
    async for piece in call.pieces():
        held.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _name_of(call: Call) -> str:
    name = call.path["sha256"]
    if not _NAME.fullmatch(name):
        raise Malformed(f"blob {name!r}: a blob is named by its SHA-256 in 64 lower-case hex digits")
    return name
