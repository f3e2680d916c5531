"""
What a server makes in its state directory: the folder itself (0700), the admin and the join token (0600), the key of page tokens.

All are made at first start and found again at every later one. A token's file is written before its record, so that a crash between the
two leaves a token that the next start makes known, never a record whose text nobody has.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from shoal.base.errors import Refused
from shoal.control.access import hash_token, read_token_id
from shoal.control.plane import Plane
from shoal.control.tokens import new_token
from shoal.model.access import Role, Token
from shoal.model.change import ChangeSet
from shoal.model.wire import TokenAsk

WRITE_WAIT_S = 30.0


def make_state_dir(folder: Path) -> Path:
    """The folder, with mode 0700. Raises Refused where it cannot be made or belongs to somebody else."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = folder.stat().st_uid
    except OSError as error:
        raise Refused(f"state directory {folder} cannot be made: {error.strerror}; name another with --state-dir") from error
    if owner not in (os.geteuid(), 0):
        raise Refused(f"state directory {folder} belongs to user {owner}, not to you ({os.geteuid()}); name another with --state-dir")
    return folder


def ensure_tokens(plane: Plane, folder: Path) -> None:
    """`admin.token` and `join.token`, each known to the store and holding."""
    _ensure_token(plane, folder / "admin.token", "user/admin", "admin")
    _ensure_token(plane, folder / "join.token", "service/join", "join")


def ensure_secret(path: Path, count: int = 32) -> bytes:
    """Random bytes that stay the same from start to start."""
    with suppress(FileNotFoundError):
        found = path.read_bytes()
        if len(found) == count:
            return found
    made = secrets.token_bytes(count)
    write_private(path, made)
    return made


def write_private(path: Path, data: bytes) -> None:
    """Writes a file of mode 0600, whole or not at all, and durable."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    part.replace(path)


def write_public(path: Path, text: str) -> None:
    """Writes a small file whole or not at all; what it says is only true while the server runs, so it need not be durable."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _ensure_token(plane: Plane, path: Path, principal: str, role: Role) -> None:
    text = _read(path)
    token_id = read_token_id(text)
    known = plane.world.tokens.get(token_id) if token_id else None
    if token_id and known is None:
        _put(plane, Token(id=token_id, hash=hash_token(text), principal=principal, role=role, created_ms=plane.clock.now_ms()))
        return
    if known is not None and known.hash == hash_token(text) and known.revoked_ms is None and known.role == role:
        return
    token, text = new_token(plane, TokenAsk(principal=principal, role=role, note=f"made by the server, kept in {path.name}"))
    write_private(path, text.encode() + b"\n")
    _put(plane, token)


def _put(plane: Plane, token: Token) -> None:
    plane.store.apply(ChangeSet(put=(token,)), plane.term).result(WRITE_WAIT_S)
    plane.world.catch_up()


def _read(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="ascii", errors="replace").strip()  # what is no text is no token either, and made anew
    return ""
