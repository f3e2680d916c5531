"""`shoal up --database` and `shoal db`: a Shoal whose state is in PostgreSQL, moved there from a file, and copies of the file."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import start
from postgres import Cluster, cluster
from shoal.run.processes import find_process
from shoal.run.up import Place

pytestmark = [pytest.mark.service("postgres"), pytest.mark.timeout(300)]
WAIT_S = 90.0


def run(state: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(state, *arguments)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def told(state: Path, *arguments: str) -> Any:
    """What a command prints as JSON; `run` has its own words behind `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    code, out, err = run(state, *arguments[:at], "--json", *arguments[at:])
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    run(tmp_path / "state", "down", "--grace", "1s")


def test_a_state_in_a_file_moves_to_postgres_and_its_server_may_be_killed_there(running: Cluster, state: Path, tmp_path: Path) -> None:
    url = running.url("moved")
    told(state, "up", "--port", "0", "--pretend", "h100:8")
    first = told(state, "run", "--", "true")
    copied = told(state, "db", "backup", str(tmp_path / "monday.db"))
    assert copied["bytes"] == (tmp_path / "monday.db").stat().st_size > 0
    code, _, err = run(state, "db", "move", url)
    assert (code, "in use by process" in err) == (1, True)
    run(state, "down")
    code, _, err = run(state, "up", "--database", url)
    assert (code, "shoal db move" in err) == (1, True)
    assert told(state, "db", "move", url)["rows"]["job"] == 1
    assert (state / "shoal.db.moved").exists()
    assert not (state / "shoal.db").exists()
    assert (state / "database").stat().st_mode & 0o777 == 0o600

    brought = told(state, "up")
    (tmp_path / "job.yaml").write_text("run: sleep 600\ngpus: 8\n")
    waiting = told(state, "submit", str(tmp_path / "job.yaml"))
    os.kill(brought["server_pid"], signal.SIGKILL)
    while find_process(Place(state).processes, "server") is not None:
        time.sleep(0.05)
    told(state, "up")
    second = told(state, "run", "--", "true")
    numbers = [job["number"] for job in told(state, "jobs", "--all")["items"]]
    assert {first["number"], waiting["number"], second["number"]} <= set(numbers)
    assert len(numbers) == len(set(numbers)) == 3
    assert told(state, "db", "migrate", running.url("empty"))["before"] == ""


def test_a_copy_is_a_state_of_its_own(state: Path, tmp_path: Path) -> None:
    told(state, "up", "--port", "0", "--pretend", "h100:8")
    job = told(state, "run", "--", "true")
    told(state, "db", "backup", str(tmp_path / "copy.db"))
    code, _, err = run(state, "db", "backup", str(tmp_path / "copy.db"))
    assert (code, "not there yet" in err) == (1, True)
    run(state, "down")
    (state / "shoal.db").unlink()
    (tmp_path / "copy.db").rename(state / "shoal.db")
    told(state, "up")
    assert [one["number"] for one in told(state, "jobs", "--all")["items"]] == [job["number"]]
