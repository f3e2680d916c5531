"""
Secrets at rest: AES-256-GCM under the installation's key, which lies in a file of its own and never in the database.

So a copy of the database (a backup, a support bundle) gives no secret away. The name under which a secret is stored is authenticated
with it: a sealed value moved to another name does not open.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.base.errors import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
"""Random per seal: with 96 bits, 2^32 seals under one key keep the chance of a repeat below 2^-32 (NIST SP 800-38D, 8.3)."""


class Sealer:
    """`seal` and `unseal` under the key in `key_file`, which is made (mode 0600) at the first use of an installation. Any thread."""

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file
        self._cipher: AESGCM | None = None

    def seal(self, plain: bytes, about: str = "") -> bytes:
        """Nonce, then ciphertext with tag; opens again only with the same `about` (for a secret: its id)."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._aes().encrypt(nonce, plain, about.encode())

    def unseal(self, sealed: bytes, about: str = "") -> bytes:
        """What was sealed. Refused where the key is another one, the bytes were changed, or they belong to another name."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._aes().decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError) as error:
            name = f"secret {about}" if about else "a secret"
            raise Refused(
                f"{name} does not open with the key in {self._key_file}: restore the key it was sealed with, or set it again"
            ) from error

    def _aes(self) -> AESGCM:
        """The cipher; its library (a twentieth of a second) and the key are read at the first secret, not at start."""
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(self._key())
        return self._cipher

    def _key(self) -> bytes:
        try:
            if not self._key_file.exists():
                _make_key(self._key_file)
            if self._key_file.stat().st_mode & stat.S_IRWXO:
                raise Refused(f"the key file {self._key_file} can be used by everybody on this machine: chmod 600 {self._key_file}")
            key = self._key_file.read_bytes()
        except OSError as error:
            raise Refused(f"the key file {self._key_file} cannot be read or made: {error.strerror}") from error
        if len(key) != KEY_BYTES:
            raise Refused(f"the key file {self._key_file} has {len(key)} bytes, a key has {KEY_BYTES}: restore it from a backup")
        return key


def _make_key(path: Path) -> None:
    """A new key, whole or not there at all. Where two make one at once the first stays: `link` never replaces."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(handle, secrets.token_bytes(KEY_BYTES))
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        temporary.unlink()
