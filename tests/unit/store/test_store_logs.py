"""Logs by offset: never a gap, never a byte twice, an end, and followers that are woken."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shoal.base.errors import InvariantViolated, Unavailable
from shoal.base.rng import Rng
from shoal.model.wire import TaskLog
from shoal.store.logs import LogStore
from shoal.testing.records import job_id

JOB = job_id(1)


@pytest.fixture
def logs(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path / "logs")


def whole(logs: LogStore, rank: int = 0, attempt: int = 1) -> bytes:
    return logs.read(JOB, attempt, rank, 0, 1 << 30)


def test_bytes_come_back_from_any_offset(logs: LogStore) -> None:
    assert logs.append(JOB, 1, 0, 0, b"hello ") == 6
    assert logs.append(JOB, 1, 0, 6, b"world") == 11
    assert whole(logs) == b"hello world"
    assert logs.read(JOB, 1, 0, 4, 3) == b"o w"
    assert logs.read(JOB, 1, 0, 11, 10) == logs.read(JOB, 1, 0, 99, 10) == logs.read(JOB, 1, 7, 0, 10) == b""
    assert (logs.size(JOB, 1, 0), logs.size(JOB, 1, 7)) == (11, 0)


def test_repeats_and_overlaps_change_nothing_and_gaps_are_not_taken(logs: LogStore) -> None:
    logs.append(JOB, 1, 0, 0, b"0123456789")
    assert logs.append(JOB, 1, 0, 0, b"0123456789") == 10
    assert logs.append(JOB, 1, 0, 5, b"567") == 10
    assert logs.append(JOB, 1, 0, 8, b"89ab") == 12
    assert logs.append(JOB, 1, 0, 13, b"d") == 12
    assert logs.append(JOB, 1, 0, 12, b"") == 12
    assert whole(logs) == b"0123456789ab"


def test_any_order_of_overlapping_pieces_gives_the_stream(logs: LogStore) -> None:
    rng = Rng(7)
    stream = rng.octets(5_000)
    size = 0
    for _ in range(2_000):
        start = rng.below(len(stream))
        size = logs.append(JOB, 1, 0, start, stream[start : start + rng.below(400)])
        assert size == logs.size(JOB, 1, 0)
        assert whole(logs) == stream[:size]
        if size == len(stream):
            break
    else:
        size = logs.append(JOB, 1, 0, size, stream[size:])
    assert whole(logs) == stream


def test_logs_are_told_apart_by_attempt_and_rank_and_listed_in_order(logs: LogStore) -> None:
    for attempt, rank in ((2, 0), (1, 10), (1, 2), (1, -1)):
        logs.append(JOB, attempt, rank, 0, f"{attempt}.{rank}".encode())
    assert logs.ranks(JOB, 1) == (-1, 2, 10)
    assert logs.tasks(JOB) == tuple(TaskLog(rank=r, attempt=a, bytes=len(f"{a}.{r}")) for a, r in ((1, -1), (1, 2), (1, 10), (2, 0)))
    assert whole(logs, rank=-1) == b"1.-1"
    assert logs.tasks(job_id(2)) == logs.ranks(job_id(2), 1) == ()
    logs.sync(JOB, 1)
    logs.sync(job_id(2), 1)
    logs.remove(JOB)
    logs.remove(JOB)
    assert logs.tasks(JOB) == ()


@pytest.mark.parametrize("piece", [1, 3, 7, 64, 1_000])
def test_past_the_limit_the_log_says_once_that_it_was_cut_and_its_sender_goes_on(tmp_path: Path, piece: int) -> None:
    logs = LogStore(tmp_path, bytes_per_task_max=50)
    stream = bytes(itertools.islice(itertools.cycle(b"0123456789"), 200))
    offset = 0
    while offset < len(stream):
        after = logs.append(JOB, 1, 0, offset, stream[offset : offset + piece])
        assert after > offset, "the sender must not be stuck"
        offset = after
    assert whole(logs) == stream[:50] + b"\n[shoal: log cut here: a task may write 50B]\n"
    size = logs.size(JOB, 1, 0)
    assert logs.append(JOB, 1, 0, 10, b"again") == 50
    assert logs.append(JOB, 1, 0, size, b"behind the line") == size + 15
    assert logs.size(JOB, 1, 0) == size


def test_a_log_of_exactly_the_limit_is_not_cut(tmp_path: Path) -> None:
    logs = LogStore(tmp_path, bytes_per_task_max=10)
    assert logs.append(JOB, 1, 0, 0, b"0123456789") == 10
    assert logs.append(JOB, 1, 0, 8, b"89") == 10
    assert whole(logs) == b"0123456789"


def test_a_cut_line_left_half_written_is_completed(tmp_path: Path) -> None:
    logs = LogStore(tmp_path, bytes_per_task_max=10)
    logs.append(JOB, 1, 0, 0, b"0123456789and more")
    full = whole(logs)
    for size in range(10, len(full)):
        with logs._path(JOB, 1, 0).open("r+b") as file:
            file.truncate(size)
        logs.append(JOB, 1, 0, 10, b"and more")
        assert whole(logs) == full


def test_followers_hear_of_growth_only_and_of_their_job_only(logs: LogStore) -> None:
    heard: list[tuple[int, int, int]] = []

    def broken(*_: int) -> None:
        raise RuntimeError("a follower's own fault")

    stop_broken = logs.on_growth(JOB, broken)
    stop = logs.on_growth(JOB, lambda *what: heard.append(what))
    logs.append(JOB, 1, 0, 0, b"abc")
    logs.append(JOB, 1, 0, 0, b"abc")
    logs.append(JOB, 1, 0, 9, b"gap")
    logs.append(job_id(2), 1, 0, 0, b"abc")
    logs.append(JOB, 2, 5, 0, b"x")
    stop()
    stop_broken()
    logs.append(JOB, 1, 0, 3, b"d")
    assert heard == [(1, 0, 3), (2, 5, 1)]
    assert logs._followers == {}


def test_a_follower_that_asks_first_and_reads_then_misses_nothing(logs: LogStore) -> None:
    rung = threading.Event()
    logs.on_growth(JOB, lambda *_: rung.set())
    stream = Rng(1).octets(20_000)

    def send() -> None:
        offset = 0
        while offset < len(stream):
            offset = logs.append(JOB, 1, 0, offset, stream[offset : offset + 37])

    sender = threading.Thread(target=send)
    sender.start()
    got = b""
    deadline = time.monotonic() + 30
    while len(got) < len(stream) and time.monotonic() < deadline:
        assert rung.wait(10)
        rung.clear()
        while piece := logs.read(JOB, 1, 0, len(got), 500):
            got += piece
    sender.join()
    assert got == stream


def test_two_senders_of_one_log_write_each_byte_once(logs: LogStore) -> None:
    """An agent that lost the answer sends again while the first request is still being written."""
    stream = Rng(2).octets(30_000)

    def send(piece: int) -> None:
        offset = 0
        while offset < len(stream):
            offset = logs.append(JOB, 1, 0, offset, stream[offset : offset + piece])

    threads = [threading.Thread(target=send, args=(piece,)) for piece in (61, 127, 509)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert whole(logs) == stream


WRITE = """
import sys
from pathlib import Path
from shoal.base.rng import Rng
from shoal.store.logs import LogStore
logs, job = LogStore(Path(sys.argv[1])), sys.argv[2]
stream = Rng(3).octets(4_000_000)
offset = logs.size(job, 1, 0)
while offset < len(stream):
    offset = logs.append(job, 1, 0, offset, stream[offset : offset + 3_333])
    print(offset, flush=True)
"""


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    stream = Rng(3).octets(4_000_000)
    for lines in (1, 40, 200):
        writer = subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path), JOB], stdout=subprocess.PIPE, text=True)
        acknowledged = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split("\n")[:-1]
        acknowledged += [int(line) for line in rest]
        logs = LogStore(tmp_path)
        size = logs.size(JOB, 1, 0)
        assert size >= acknowledged[-1]
        assert whole(logs) == stream[:size]


def test_only_job_ids_name_directories(logs: LogStore) -> None:
    for job in ("../../etc", "", "/", "a" * 36, JOB + "/x"):
        with pytest.raises(InvariantViolated):
            logs.append(job, 1, 0, 0, b"x")
        with pytest.raises(InvariantViolated):
            logs.remove(job)
    with pytest.raises(InvariantViolated, match="below 0"):
        logs.append(JOB, 1, 0, -1, b"x")


def test_a_disk_that_fails_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / JOB[:2]).write_text("in the way of the directory")
    logs = LogStore(tmp_path)
    with pytest.raises(Unavailable, match="log store cannot"):
        logs.append(JOB, 1, 0, 0, b"x")
