"""A working directory as an archive: what is in it, that equal files give equal bytes, and what is refused in which words."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from shoal.base import limits
from shoal.base.errors import Invalid, TooLarge
from shoal.client import workdir
from shoal.client.workdir import list_workdir, pack_workdir


def packed(root: Path, *ignore: str) -> bytes:
    target = io.BytesIO()
    pack_workdir(root, list_workdir(root, ignore), target)
    return target.getvalue()


def names(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive.getmembers()}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "pkg" / "__pycache__").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "train.py").write_text("print('hi')\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o700)
    (root / "pkg" / "mod.py").write_text("x = 1\n")
    (root / "pkg" / "__pycache__" / "mod.pyc").write_text("junk")
    (root / "data" / "big.bin").write_text("0" * 1000)
    (root / "latest").symlink_to("pkg/mod.py")
    return root


def test_everything_travels_but_what_is_ignored(tree: Path) -> None:
    found = names(packed(tree, "data/"))
    assert sorted(found) == ["latest", "pkg", "pkg/mod.py", "run.sh", "train.py"]
    assert found["latest"].linkname == "pkg/mod.py"
    assert (found["run.sh"].mode, found["train.py"].mode) == (0o755, 0o644)


def test_a_shoalignore_counts_before_a_gitignore(tree: Path) -> None:
    (tree / ".gitignore").write_text("*.py\n")
    assert "train.py" not in names(packed(tree))
    (tree / ".shoalignore").write_text("*.sh\n")
    assert {"train.py", ".gitignore"} <= set(names(packed(tree)))
    assert "run.sh" not in names(packed(tree))


def test_equal_files_give_equal_bytes_whatever_their_times_and_modes(tree: Path) -> None:
    before = packed(tree)
    os.utime(tree / "train.py", (1, 1))
    (tree / "train.py").chmod(0o600)
    assert packed(tree) == before
    (tree / "train.py").write_text("print('ho')\n")
    assert packed(tree) != before


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "pkg/../../outside"])
def test_a_link_that_leads_out_is_refused(tree: Path, target: str) -> None:
    (tree / "bad").symlink_to(target)
    with pytest.raises(Invalid, match="'bad' leads out of the directory"):
        list_workdir(tree)
    assert "bad" not in names(packed(tree, "bad"))


def test_special_files_stay_behind(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    listing = list_workdir(tree)
    assert listing.skipped == ("pipe",)
    assert listing.files == 5


def test_too_large_names_the_largest(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tree / "data" / "huge.bin").open("wb") as file:
        file.truncate(limits.WORKDIR_BYTES_MAX + 1)
    with pytest.raises(TooLarge, match=r"has 2\.0GiB, at most 2GiB travel .* Largest: data/huge\.bin \(2\.0GiB\), data/big\.bin"):
        list_workdir(tree)
    monkeypatch.setattr(workdir, "WORKDIR_FILES_MAX", 3)
    with pytest.raises(TooLarge, match=r"more than the 3 files .* Most in: data \(3 so far\)"):
        list_workdir(tree)


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not a directory"):
        list_workdir(tmp_path / "none")
