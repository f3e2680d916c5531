"""Submissions outlive the client that made them, and only that one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from shoal.base.errors import Invalid, Unavailable
from shoal.client.submissions import KEPT_MAX, RESUME_MS, Submission, Submissions

WHERE = {"url": "http://h:1", "project": "default"}


def begin_and_lose(folder: Path, key: str, body: bytes = b"spec", now_ms: int = 1_000, **where: str) -> str:
    """A submission whose answer is never heard; gives the key that it used."""
    used: list[str] = []
    with pytest.raises(Unavailable):
        lose(Submissions(folder).begin(body, key=key, now_ms=now_ms, **{**WHERE, **where}), used)
    return used[0]


def lose(begun: AbstractContextManager[Submission], used: list[str]) -> None:
    with begun as submission:
        used.append(submission.key)
        raise Unavailable("the line is dead")


def test_an_answered_submission_leaves_nothing(tmp_path: Path) -> None:
    submissions = Submissions(tmp_path / "s")
    with submissions.begin(b"spec", key="k1", now_ms=1_000, **WHERE) as submission:
        assert (submission.key, submission.resumed) == ("k1", False)
        assert [kept.key for kept in submissions.pending()] == ["k1"]
    assert submissions.pending() == ()


def test_a_refused_submission_leaves_nothing(tmp_path: Path) -> None:
    submissions = Submissions(tmp_path / "s")
    with pytest.raises(Invalid), submissions.begin(b"spec", key="k1", now_ms=1_000, **WHERE):
        raise Invalid("no")
    assert submissions.pending() == ()


def test_an_unheard_submission_is_taken_over_by_the_next_of_the_same(tmp_path: Path) -> None:
    assert begin_and_lose(tmp_path, "k1") == "k1"
    assert begin_and_lose(tmp_path, "k2", now_ms=2_000) == "k1"
    with Submissions(tmp_path).begin(b"spec", key="k3", now_ms=3_000, **WHERE) as submission:
        assert (submission.key, submission.resumed) == ("k1", True)
    with Submissions(tmp_path).begin(b"spec", key="k4", now_ms=4_000, **WHERE) as submission:
        assert (submission.key, submission.resumed) == ("k4", False)


@pytest.mark.parametrize("other", [{"body": b"other"}, {"url": "http://h:2"}, {"project": "p2"}])
def test_another_submission_is_another(tmp_path: Path, other: dict[str, object]) -> None:
    begin_and_lose(tmp_path, "k1")
    assert begin_and_lose(tmp_path, "k2", **other) == "k2"  # type: ignore[arg-type]


def test_after_an_hour_the_same_file_means_a_new_job(tmp_path: Path) -> None:
    begin_and_lose(tmp_path, "k1", now_ms=1_000)
    assert begin_and_lose(tmp_path, "k2", now_ms=1_000 + RESUME_MS) == "k2"


def test_two_that_live_at_once_are_two_jobs(tmp_path: Path) -> None:
    with Submissions(tmp_path).begin(b"spec", key="k1", now_ms=1_000, **WHERE) as first:
        keys: list[str] = []

        def second() -> None:
            with Submissions(tmp_path).begin(b"spec", key="k2", now_ms=1_000, **WHERE) as submission:
                keys.append(submission.key)

        other = threading.Thread(target=second)
        other.start()
        other.join(10)
    assert (first.key, keys) == ("k1", ["k2"])


def test_a_killed_client_is_resumed(tmp_path: Path) -> None:
    program = (
        "import os,sys,pathlib; from shoal.client.submissions import Submissions\n"
        "with Submissions(pathlib.Path(sys.argv[1])).begin(b'spec', key='k1', url='http://h:1', project='default', now_ms=1000):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    with Submissions(tmp_path).begin(b"spec", key="k2", now_ms=2_000, **WHERE) as submission:
        assert (submission.key, submission.resumed) == ("k1", True)


def test_a_half_written_file_is_no_submission(tmp_path: Path) -> None:
    begin_and_lose(tmp_path, "k1")
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(path.read_bytes()[:10])
    assert Submissions(tmp_path).pending() == ()
    assert begin_and_lose(tmp_path, "k2") == "k2"


def test_files_are_private_and_their_count_is_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    begin_and_lose(folder, "k0", b"first")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (path,) = folder.glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for number in range(KEPT_MAX + 5):
        fake = folder / f"{number:032x}.0.json"
        fake.write_bytes(b"{}")
        os.utime(fake, (2e9 + number, 2e9 + number))
    begin_and_lose(folder, "k1", b"last")
    assert len(list(folder.glob("*.json"))) <= KEPT_MAX + 1
    assert not path.exists()
