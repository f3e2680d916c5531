"""Identifiers: UUIDv7 text from a time and random bits that the caller brings (RFC 9562 section 5.7)."""

from __future__ import annotations

from typing import Protocol

_LOW_BITS = (1 << 62) - 1


class IdSource(Protocol):
    """Where new ids come from: the operating system's entropy in life (`run`), a seeded stream in tests and simulation."""

    def uuid(self, now_ms: int) -> str:
        """A new UUIDv7 whose time field is `now_ms`."""
        ...


def uuid7(now_ms: int, random_bits: int) -> str:
    """The UUIDv7 for a time and at least 74 random bits, in its usual text form."""
    value = (now_ms & 0xFFFF_FFFF_FFFF) << 80
    value |= 0x7 << 76
    value |= ((random_bits >> 62) & 0xFFF) << 64
    value |= 0b10 << 62
    value |= random_bits & _LOW_BITS
    return _text(value)


def uuid_after(uuid: str, steps: int) -> str:
    """The UUID of the same kind and time whose low 62 bits are `steps` on: how ids are told off from one that was drawn."""
    value = int(uuid.replace("-", ""), 16)
    return _text((value & ~_LOW_BITS) | ((value + steps) & _LOW_BITS))


def is_uuid(text: str) -> bool:
    """True for the 36-character text form of any UUID."""
    parts = text.split("-")
    return [len(p) for p in parts] == [8, 4, 4, 4, 12] and all(c in "0123456789abcdefABCDEF" for p in parts for c in p)


def _text(value: int) -> str:
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
