"""Blobs by content and sealed secrets."""

from __future__ import annotations

import hashlib
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shoal.base.errors import Invalid, NotFound, Refused, TooLarge, Unavailable
from shoal.store.blobs import BlobStore
from shoal.store.sealing import KEY_BYTES, Sealer

DATA = bytes(range(256)) * 100
SHA = hashlib.sha256(DATA).hexdigest()


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_a_blob_comes_back_whole_under_its_hash(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    assert not blobs.has(SHA)
    assert blobs.put(SHA, (DATA[:1_000], b"", DATA[1_000:])) == len(DATA)
    assert blobs.put(SHA, (DATA,)) == len(DATA)
    assert blobs.has(SHA)
    assert blobs.size(SHA) == len(DATA)
    with blobs.open(SHA) as file:
        blobs.remove(SHA)
        assert file.read() == DATA
    blobs.remove(SHA)
    assert files_in(tmp_path) == []


def test_content_with_another_hash_leaves_nothing(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    with pytest.raises(Invalid, match=f"SHA-256 is .*, announced was {SHA}"):
        blobs.put(SHA, (DATA[:-1],))
    assert not blobs.has(SHA)
    assert files_in(tmp_path) == []


def test_an_upload_over_the_limit_is_stopped_where_it_passes_it(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path, bytes_max=10_000)
    taken = 0

    def chunks() -> object:
        nonlocal taken
        for at in range(0, len(DATA), 100):
            taken += 1
            yield DATA[at : at + 100]

    with pytest.raises(TooLarge, match=r"more than 10000B|more than 10KB"):
        blobs.put(SHA, chunks())
    assert taken == 101
    assert files_in(tmp_path) == []
    whole = DATA[:10_000]
    assert blobs.put(hashlib.sha256(whole).hexdigest(), (whole,)) == 10_000


def test_a_sender_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)

    def chunks() -> object:
        yield DATA[:500]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        blobs.put(SHA, chunks())
    assert files_in(tmp_path) == []
    with blobs.receive(SHA) as incoming:
        incoming.write(DATA)
    assert files_in(tmp_path) == []


def test_what_a_killed_server_left_unfinished_is_cleared_at_start(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from shoal.store.blobs import BlobStore\n"
        f"i = BlobStore(Path(sys.argv[1])).receive('{SHA}'); i.write(b'x' * 1_000_000); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60)
    assert len(files_in(tmp_path)) == 1
    blobs = BlobStore(tmp_path)
    assert files_in(tmp_path) == []
    assert not blobs.has(SHA)


def test_many_that_send_the_same_at_once_all_succeed(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    sizes: list[int] = []
    threads = [threading.Thread(target=lambda: sizes.append(blobs.put(SHA, (DATA,)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [len(DATA)] * 8
    assert files_in(tmp_path) == [SHA]
    assert stat.S_IMODE((tmp_path / SHA[:2] / SHA).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "x", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 65, "g" * 64])
def test_only_hashes_are_names(tmp_path: Path, name: str) -> None:
    blobs = BlobStore(tmp_path)
    for act in (blobs.has, blobs.size, blobs.open, blobs.receive, blobs.remove):
        with pytest.raises(Invalid, match="64 lower-case hexadecimal"):
            act(name)


def test_a_blob_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    for act in (blobs.size, blobs.open):
        with pytest.raises(NotFound, match=SHA):
            act(SHA)


def test_a_disk_that_fails_is_unavailable(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    (tmp_path / SHA[:2]).write_text("in the way")
    with pytest.raises(Unavailable):
        blobs.put(SHA, (DATA,))
    assert files_in(tmp_path) == [SHA[:2]]


# --- sealing --------------------------------------------------------------------------------------------------------------
def test_sealed_opens_with_the_same_key_and_name_only(tmp_path: Path) -> None:
    sealer = Sealer(tmp_path / "key")
    sealed = sealer.seal(b"hunter2", "default/db")
    assert b"hunter2" not in sealed
    assert sealer.seal(b"hunter2", "default/db") != sealed
    assert Sealer(tmp_path / "key").unseal(sealed, "default/db") == b"hunter2"
    damaged = bytes([*sealed[:-1], sealed[-1] ^ 1])
    for opener, what, about in (
        (sealer, sealed, "default/other"),
        (sealer, damaged, "default/db"),
        (sealer, b"", "default/db"),
        (sealer, sealed[:5], "default/db"),
        (Sealer(tmp_path / "other"), sealed, "default/db"),
    ):
        with pytest.raises(Refused, match=f"secret {about} does not open"):
            opener.unseal(what, about)
    assert sealer.unseal(sealer.seal(b"")) == b""


def test_the_key_is_made_once_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "key"
    sealers = [Sealer(path) for _ in range(8)]
    sealed: list[bytes] = []
    threads = [threading.Thread(target=lambda s=sealer: sealed.append(s.seal(b"x"))) for sealer in sealers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [Sealer(path).unseal(one) for one in sealed] == [b"x"] * 8
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == KEY_BYTES
    assert files_in(tmp_path) == ["key"]


def test_a_key_file_that_is_no_good_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(Refused, match="has 5 bytes, a key has 32"):
        Sealer(path).seal(b"x")
    path.write_bytes(b"k" * 32)
    path.chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        Sealer(path).seal(b"x")
    with pytest.raises(Refused, match="cannot be read or made"):
        Sealer(tmp_path / "missing" / "key").seal(b"x")
