"""Archives, honest and hostile. A hostile one is refused with a fatal reason and has written nothing outside."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.agent.archive import unpack
from shoal.agent.unprepared import Unprepared


def packed(path: Path, fill: Callable[[tarfile.TarFile], None], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=form) as archive:
        fill(archive)
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **fields: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    for field, value in fields.items():
        setattr(entry, field, value)
    archive.addfile(entry, io.BytesIO(data))


def target(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


def test_files_directories_modes_and_links_come_out(tmp_path: Path) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        add(archive, "src/deep/train.py", b"print(1)\n" * 200, mode=0o644, mtime=1_000_000)
        add(archive, "exact.bin", b"x" * 1024)
        add(archive, "run.sh", b"#!/bin/sh\n", mode=0o6755)
        add(archive, "./empty/", type=tarfile.DIRTYPE, mode=0o750)
        add(archive, "link", type=tarfile.SYMTYPE, linkname="src/deep/train.py")
        add(archive, "venv/python", type=tarfile.SYMTYPE, linkname="/usr/bin/python3")
        add(archive, "hard", type=tarfile.LNKTYPE, linkname="run.sh")
        add(archive, "n" * 150 + "/" + "m" * 200, b"long")

    work = target(tmp_path)
    unpack(packed(tmp_path / "a.tgz", fill), work)
    assert (work / "src/deep/train.py").read_bytes() == b"print(1)\n" * 200
    assert (work / "src/deep/train.py").stat().st_mtime == 1_000_000
    assert (work / "exact.bin").stat().st_size == 1024
    assert stat.S_IMODE((work / "run.sh").stat().st_mode) == 0o755
    assert (work / "empty").is_dir()
    assert (work / "link").read_bytes() == (work / "src/deep/train.py").read_bytes()
    assert os.readlink(work / "venv/python") == "/usr/bin/python3"
    assert (work / "hard").samefile(work / "run.sh")
    assert (work / ("n" * 150) / ("m" * 200)).read_bytes() == b"long"


HOSTILE: dict[str, Callable[[tarfile.TarFile], None]] = {
    "a name with ..": lambda a: add(a, "../outside", b"x"),
    "a name with .. inside": lambda a: add(a, "in/../../outside", b"x"),
    "an absolute name": lambda a: add(a, "/tmp/outside", b"x"),
    "a device": lambda a: add(a, "null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    "a pipe": lambda a: add(a, "pipe", type=tarfile.FIFOTYPE),
    "a hard link out": lambda a: add(a, "passwd", type=tarfile.LNKTYPE, linkname="../../etc/passwd"),
    "a hard link to nothing": lambda a: add(a, "x", type=tarfile.LNKTYPE, linkname="y"),
    "a directory that becomes a link": lambda a: (add(a, "d/f", b"x"), add(a, "d", type=tarfile.SYMTYPE, linkname="/tmp")),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_is_refused(case: str, tmp_path: Path) -> None:
    work = target(tmp_path)
    with pytest.raises(Unprepared) as refused:
        unpack(packed(tmp_path / "a.tgz", HOSTILE[case]), work)
    assert refused.value.fatal
    assert not (tmp_path / "outside").exists()
    assert len(str(refused.value)) > 20


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """The link comes first in the archive and is still made last: the file lands inside, then gives way to nothing."""

    def fill(archive: tarfile.TarFile) -> None:
        add(archive, "d", type=tarfile.SYMTYPE, linkname=str(tmp_path / "outside"))
        add(archive, "d/f", b"x")

    (tmp_path / "outside").mkdir()
    with pytest.raises(Unprepared):
        unpack(packed(tmp_path / "a.tgz", fill), target(tmp_path))
    assert list((tmp_path / "outside").iterdir()) == []


def test_bounds_on_bytes_and_files_hold(tmp_path: Path) -> None:
    many = packed(tmp_path / "many.tgz", lambda a: [add(a, f"f{i}") for i in range(11)])  # type: ignore[arg-type, return-value, func-returns-value]
    with pytest.raises(Unprepared, match="more than 10"):
        unpack(many, target(tmp_path), files_max=10)
    large = packed(tmp_path / "large.tgz", lambda a: add(a, "f", b"\0" * 100_000))
    with pytest.raises(Unprepared, match="over 50KB"):
        unpack(large, tmp_path / "work", bytes_max=50_000)


def test_a_header_that_claims_a_gigabyte_is_not_believed(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096))
    with pytest.raises(Unprepared, match="claims 1073741824"):
        unpack(path, target(tmp_path))


@pytest.mark.parametrize("data", [b"", b"no archive", gzip.compress(b"no tar" * 1000, mtime=0), gzip.compress(b"\0" * 2048, mtime=0)[:-9]])
def test_what_is_no_archive_is_told(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(data)
    with pytest.raises(Unprepared) as refused:
        unpack(path, target(tmp_path))
    assert refused.value.fatal


@pytest.mark.service("root")
def test_files_belong_to_the_job_s_user(tmp_path: Path) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        add(archive, "d/f", b"x")
        add(archive, "l", type=tarfile.SYMTYPE, linkname="d/f")

    work = target(tmp_path)
    unpack(packed(tmp_path / "a.tgz", fill), work, (65534, 65534))
    assert {path.lstat().st_uid for path in work.rglob("*")} == {65534}
