"""Image manifests, indexes, and what is refused of them; and `shoal plan image_pull` on an OCI layout."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoal.base.errors import Invalid, Malformed
from shoal.cli.main import shoal
from shoal.formats.oci import choose, parse_manifest

LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:" + "a" * 64, "size": 250_000_000}


def test_layers_keep_their_order_and_sizes() -> None:
    manifest = parse_manifest(json.dumps({"schemaVersion": 2, "layers": [LAYER, {**LAYER, "size": 5}]}), "m")
    assert [layer.size_bytes for layer in manifest.layers] == [250_000_000, 5]
    assert not manifest.manifests


@pytest.mark.parametrize(
    ("record", "kind", "words"),
    [
        ("{", Malformed, "not valid JSON"),
        ({"schemaVersion": 1, "fsLayers": []}, Invalid, "neither"),
        ([], Invalid, "neither"),
        ({"layers": [{**LAYER, "size": None}]}, Invalid, "has no size"),
        ({"layers": [{**LAYER, "size": -1}]}, Invalid, "has no size"),
        ({"layers": [{**LAYER, "digest": "sha256:../../etc/passwd"}]}, Invalid, "no digest"),
        ({"layers": ["x"]}, Invalid, "no descriptor"),
        ({"layers": [LAYER] * 1_001}, Invalid, "at most 1000"),
    ],
)
def test_what_is_no_manifest_is_refused(record: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        parse_manifest(record if isinstance(record, str) else json.dumps(record), "m")


def test_an_index_gives_the_image_of_a_platform() -> None:
    rows = [{**LAYER, "platform": {"os": "linux", "architecture": arch}} for arch in ("arm64", "amd64")]
    index = parse_manifest(json.dumps({"manifests": rows}), "i")
    assert choose(index, "linux/amd64", "i").platform == "linux/amd64"
    with pytest.raises(Invalid, match="no image for windows/amd64; there is linux/arm64, linux/amd64"):
        choose(index, "windows/amd64", "i")
    alone = parse_manifest(json.dumps({"manifests": [LAYER]}), "i")
    assert choose(alone, "linux/amd64", "i").digest == LAYER["digest"]


def write_blob(layout: Path, record: Any) -> dict[str, Any]:
    data = json.dumps(record).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs" / "sha256" / digest).write_bytes(data)
    return {"mediaType": "application/json", "digest": f"sha256:{digest}", "size": len(data)}


def test_a_pull_is_planned_from_a_layout_and_from_a_manifest(tmp_path: Path) -> None:
    layout = tmp_path / "image"
    image = write_blob(layout, {"layers": [LAYER, LAYER]})
    platforms = write_blob(layout, {"manifests": [{**image, "platform": {"os": "linux", "architecture": "amd64"}}]})
    (layout / "index.json").write_text(json.dumps({"manifests": [platforms]}))
    manifest = layout / "blobs" / "sha256" / image["digest"].partition(":")[2]
    for source in (layout, manifest):
        result = CliRunner().invoke(shoal, ["plan", "image_pull", "--layers-compressed", f"@{source}", "--json"])
        assert result.exit_code == 0, result.output
        found = {number["name"]: number["value"] for number in json.loads(result.stdout)["numbers"]}
        assert found["download"] == pytest.approx(4.0)
        assert found["ready"] == pytest.approx(4.0 + 4.0)
    index = CliRunner().invoke(shoal, ["plan", "image_pull", "--layers-compressed", f"@{layout / 'index.json'}"])
    assert index.exit_code == 2
    assert "the folder of an OCI layout" in index.stderr
