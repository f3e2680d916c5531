"""An elastic gang over real processes: it grows when room comes and shrinks for a higher priority, and no task that stays notices more."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from installation import Installation, eventually, marked

from shoal.client.api import Api
from shoal.model.job import JobState

TASK_MARK = "ELASTIC_TEST_MARK"
TELLS = """
echo begin
trap 'echo members $(wc -l < "$SHOAL_HOSTFILE")' USR1
while [ ! -e "$OUT/done" ]; do sleep 0.1 & wait $! || true; done
echo end
"""
"""Says how many members the gang has each time it is told, until it is let go."""


@pytest.fixture
def place(tmp_path: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(tmp_path, f"elastic-{os.getpid()}", nodes=3)  # type: ignore[arg-type]
    try:
        installation.start()
        yield installation
        eventually(lambda: not marked(TASK_MARK, installation.mark), 10, "tasks to be gone")
    finally:
        installation.stop()


def submit(place: Installation, **spec: object) -> int:
    env = {TASK_MARK: place.mark, "OUT": str(place.directory)}
    return place.api().jobs.submit({"name": "test", "env": env, "stop": {"grace": "1s"}, "gpus": 4, **spec}).number


def nodes_of(api: Api, number: int) -> int:
    """Members that run."""
    return sum(1 for _, _, _, state in api.jobs.get(number).places if state == "STARTED")


def told(api: Api, number: int) -> list[str]:
    """What the first task has said so far."""
    return api.logs.read(number, 0).data.decode().splitlines()


def test_an_elastic_gang_grows_when_room_comes_and_shrinks_for_a_higher_priority(place: Installation) -> None:
    """
    1. two of three nodes are free: the gang starts with two
    2. the third is freed: it grows, and the tasks that run are told of three members
    3. a higher priority comes: the last member goes, two run on and are told
    4. that one ends: it grows back; a person wants two: it shrinks
    5. all are let go and end with 0, in the first attempt; the first task was never started again
    """
    api = place.api()
    first = submit(place, run="sleep 600")
    eventually(lambda: nodes_of(api, first) == 1, 20, "the first job to run")
    gang = submit(place, nodes="1..3", elastic={"how": "in_place", "signal": "USR1"}, run=TELLS)
    eventually(lambda: nodes_of(api, gang) == 2, 20, "the gang to run on two nodes")
    eventually(lambda: "begin" in told(api, gang), 10, "its first task to run")

    api.jobs.cancel(first)
    eventually(lambda: nodes_of(api, gang) == 3, 20, "the gang to grow")
    eventually(lambda: told(api, gang)[-1] == "members 3", 10, "its tasks to be told")

    urgent = submit(place, run="sleep 1.5", priority=10)
    eventually(lambda: nodes_of(api, urgent) == 1, 20, "the higher priority to run")
    assert nodes_of(api, gang) == 2
    assert api.jobs.get(gang).job.state is JobState.RUNNING
    eventually(lambda: told(api, gang)[-1] == "members 2", 10, "its tasks to be told")
    assert api.jobs.wait(urgent, timeout_s=20).state is JobState.SUCCEEDED
    eventually(lambda: nodes_of(api, gang) == 3, 20, "the gang to grow back")

    api.jobs.resize(gang, 2)
    eventually(lambda: nodes_of(api, gang) == 2, 20, "the gang to have the size that was asked for")
    (place.directory / "done").touch()
    ended = api.jobs.wait(gang, timeout_s=20)
    assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 1)
    assert told(api, gang).count("begin") == 1
    assert told(api, gang)[-1] == "end"
