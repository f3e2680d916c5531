"""
Records to bytes and back: one JSON for file, wire and database, one MessagePack for node uploads.

`decode_*` and `convert` raise `Malformed` for what is no JSON and `Invalid` for what breaks the schema, with the JSON Pointer of
the place. Decoders are kept per type: building one costs more than a thousand uses of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from shoal.base.errors import Fault, Invalid, Malformed
from shoal.model.values import Value

T = TypeVar("T")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are no JSON or MessagePack, or are nested deeper than anything of ours."""


def _enc_hook(value: Any) -> Any:
    if isinstance(value, Value):
        return value.plain()
    raise NotImplementedError(f"no wire form for {type(value).__name__}")


def _dec_hook(kind: type, raw: Any) -> Any:
    if issubclass(kind, Value):
        return raw if isinstance(raw, kind) else kind.parse(raw)
    raise NotImplementedError(f"no value from the wire for {kind.__name__}")


_json_encoder = msgspec.json.Encoder(enc_hook=_enc_hook, order="deterministic")
_stored_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
_pack_encoder = msgspec.msgpack.Encoder(enc_hook=_enc_hook)


def encode_json(value: Any) -> bytes:
    """JSON bytes with sorted keys: equal values give equal bytes."""
    try:
        return _json_encoder.encode(value)
    except TypeError:  # Keys that are numbers (exits by rank): the encoder sorts text only, so they become text first.
        return _json_encoder.encode(msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True))


def encode_stored(value: Any) -> bytes:
    """JSON bytes with keys in their own order, for records that are read back: a user's `env` keeps the order it was written in."""
    return _stored_encoder.encode(value)


def encode_pack(value: Any) -> bytes:
    """MessagePack bytes; used where raw bytes (logs) travel inside a record."""
    return _pack_encoder.encode(value)


@lru_cache(maxsize=256)
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_dec_hook)


@lru_cache(maxsize=64)
def _pack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_dec_hook)


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """The record of type `kind` that `data` holds."""
    try:
        return _json_decoder(kind).decode(data)  # type: ignore[no-any-return, arg-type]
    except msgspec.ValidationError as error:
        raise invalid_from(error) from error
    except UNREADABLE as error:
        raise Malformed(f"not valid JSON: {error}") from error


def decode_pack(data: bytes, kind: type[T]) -> T:
    """The record of type `kind` that MessagePack `data` holds."""
    try:
        return _pack_decoder(kind).decode(data)  # type: ignore[no-any-return, arg-type]
    except msgspec.ValidationError as error:
        raise invalid_from(error) from error
    except UNREADABLE as error:
        raise Malformed(f"not valid MessagePack: {error}") from error


def convert(raw: Any, kind: type[T]) -> T:
    """The record of type `kind` from plain dicts and lists, as a YAML parser gives them."""
    try:
        return msgspec.convert(raw, kind, dec_hook=_dec_hook)
    except msgspec.ValidationError as error:
        raise invalid_from(error) from error


def decode_plain(data: bytes | str) -> Any:
    """Dicts, lists, text and numbers as JSON has them, of no type of ours."""
    try:
        return msgspec.json.decode(data)
    except UNREADABLE as error:
        raise Malformed(f"not valid JSON: {error}") from error


def to_plain(value: Any) -> Any:
    """Dicts, lists, text and numbers only: what `convert` reads back, and what YAML and JSON writers take."""
    return msgspec.to_builtins(value, enc_hook=_enc_hook)


_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)


def invalid_from(error: msgspec.ValidationError) -> Invalid:
    """msgspec's message split into words and a JSON Pointer."""
    match = _PLACE.match(str(error))
    assert match is not None
    pointer = _pointer(match["path"] or "")
    what = match["what"]
    return Invalid(f"{what} at {pointer or '/'}", (Fault(what, pointer),))


def _pointer(path: str) -> str:
    """`$.gpus.model[0]` as `/gpus/model/0`."""
    steps = re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", path)
    return "".join("/" + (name or index).replace("~", "~0").replace("/", "~1") for name, index in steps)
