"""Processes found again by their records: the right one is stopped, a recycled number never signalled."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from shoal.run.processes import find_process, find_processes, is_alive, last_words, start_detached, stop_process

SLEEPER = (sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)")
STUBBORN = (sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)")


def await_words(process: object, words: str) -> None:
    until = time.monotonic() + 20
    while last_words(process) != words:  # type: ignore[arg-type]
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_process_is_found_again_and_stopped(tmp_path: Path) -> None:
    process = start_detached(tmp_path, "one", SLEEPER)
    await_words(process, "hello")
    assert find_process(tmp_path, "one") == process
    assert find_processes(tmp_path) == (process,)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert stop_process(tmp_path, process, 10)
    assert not is_alive(process)
    assert find_processes(tmp_path) == ()
    assert stop_process(tmp_path, process, 10)


def test_one_that_ignores_the_signal_is_killed_after_its_grace(tmp_path: Path) -> None:
    process = start_detached(tmp_path, "two", STUBBORN)
    await_words(process, "ready")
    began = time.monotonic()
    assert stop_process(tmp_path, process, 0.2)
    assert time.monotonic() - began >= 0.2
    assert not is_alive(process)


def test_the_number_of_another_process_is_never_signalled(tmp_path: Path) -> None:
    process = start_detached(tmp_path, "other", SLEEPER)
    recycled = replace(process, started_ticks=process.started_ticks - 1)
    other_boot = replace(process, boot_id="00000000-0000-0000-0000-000000000000")
    for stale in (recycled, other_boot):
        assert not is_alive(stale)
        assert stop_process(tmp_path, stale, 1)
        assert is_alive(process)
    assert stop_process(tmp_path, process, 10)


def test_one_that_ended_is_gone_and_its_last_words_are_kept(tmp_path: Path) -> None:
    process = start_detached(tmp_path, "short", (sys.executable, "-c", "print('a'); raise SystemExit('the end')"))
    await_words(process, "the end")
    until = time.monotonic() + 20
    while is_alive(process):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert find_process(tmp_path, "short") is None


def test_a_record_that_cannot_be_read_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert find_process(tmp_path, "broken") is None
    assert find_process(tmp_path, "none") is None
