"""
OCI image manifests and indexes, and Docker's of the same shape: the layers of an image with their sizes, in order.

Pure: text in, records out. Where blobs lie is the caller's business; digests are checked here, so that one is safe in a path.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from shoal.base.errors import Invalid, Malformed

LAYERS_MAX: Final = 1_000
"""Overlay file systems take 127 to 500 layers; beyond this it is no image."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Descriptor(NamedTuple):
    """A blob that a manifest or index names. `platform` is `os/architecture`, empty where it is not said."""

    digest: str
    size_bytes: int
    media_type: str
    platform: str = ""


class Manifest(NamedTuple):
    """One of the two is filled: an image's `layers` in the order in which they are applied, or the `manifests` of an index."""

    layers: tuple[Descriptor, ...]
    manifests: tuple[Descriptor, ...]


def parse_manifest(text: bytes | str, source: str) -> Manifest:
    """The manifest or index that `text` is. Raises Malformed for what is no JSON, Invalid for what is neither."""
    try:
        record = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Malformed(f"{source}: not valid JSON: {error}") from error
    if isinstance(record, dict):
        for key in ("layers", "manifests"):
            if isinstance(record.get(key), list):
                found = _descriptors(record[key], source)
                return Manifest(found, ()) if key == "layers" else Manifest((), found)
    raise Invalid(f"{source}: neither an image manifest (`layers`) nor an index (`manifests`)")


def _descriptors(rows: list[Any], source: str) -> tuple[Descriptor, ...]:
    if len(rows) > LAYERS_MAX:
        raise Invalid(f"{source}: {len(rows)} entries, at most {LAYERS_MAX}")
    return tuple(_descriptor(row, at, source) for at, row in enumerate(rows))


def _descriptor(row: Any, at: int, source: str) -> Descriptor:
    if not isinstance(row, dict):
        raise Invalid(f"{source}: entry {at} is no descriptor")
    digest, size = row.get("digest"), row.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Invalid(f"{source}: entry {at} has no digest of the form sha256:...")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise Invalid(f"{source}: entry {at} ({digest[:19]}...) has no size: a pull cannot be planned without")
    platform = row.get("platform")
    named = f"{platform.get('os', '')}/{platform.get('architecture', '')}" if isinstance(platform, dict) else ""
    return Descriptor(digest, size, str(row.get("mediaType", "")), named)


def choose(index: Manifest, platform: str, source: str) -> Descriptor:
    """The image of an index for a platform such as `linux/amd64`; the only one, if it does not say. Raises Invalid."""
    for one in index.manifests:
        if one.platform == platform:
            return one
    if len(index.manifests) == 1 and not index.manifests[0].platform:
        return index.manifests[0]
    there = ", ".join(one.platform or "unnamed" for one in index.manifests) or "nothing"
    raise Invalid(f"{source}: no image for {platform}; there is {there}")
