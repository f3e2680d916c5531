"""
kill -9 of the control plane, of an agent, of both, at fifty random instants over five runs of thirty jobs.

Told in steps: jobs of all kinds are submitted while somebody kills and restarts; afterwards every job has ended as it should, each
task ran exactly once to its end, no device was ever in two hands (the tasks themselves lock a file per device), every line of output
is there once, the stored records are legal, and no process is left.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from installation import MARK, Installation, eventually, marked

from shoal.base.errors import ShoalError
from shoal.base.rng import Rng
from shoal.lifecycle.audit import audit
from shoal.model.job import JobState
from shoal.scheduling.check import check_snapshot
from shoal.store.sql import open_store

RUNS = 5
KILLS_PER_RUN = 10
JOBS_PER_RUN = 30
LINES = 200

SCRIPT = """\
fd=3
for device in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    eval "exec $fd>>'$CHAOS/device-$device'"
    flock -n $fd || echo "$device $SHOAL_JOB_NUMBER $SHOAL_ATTEMPT" >> "$CHAOS/clashes"
    fd=$((fd + 1))
done
echo "start $SHOAL_JOB_NUMBER $RANK $SHOAL_ATTEMPT" >> "$CHAOS/story"
i=0
while [ $i -lt 200 ]; do echo "line $i of rank $RANK"; i=$((i + 1)); done
sleep $NAP 3>&- 4>&- 5>&- 6>&-
echo "end $SHOAL_JOB_NUMBER $RANK $SHOAL_ATTEMPT" >> "$CHAOS/story"
exit $CODE
"""


@dataclass(frozen=True)
class Kind:
    """What is submitted, and how it should end."""

    nodes: int
    gpus: int
    tasks: int
    nap_s: float
    code: int
    cancel_after_s: float | None
    want: JobState


KINDS = (
    Kind(1, 1, 1, 0.0, 0, None, JobState.SUCCEEDED),
    Kind(1, 1, 1, 0.8, 0, None, JobState.SUCCEEDED),
    Kind(1, 2, 2, 0.5, 0, None, JobState.SUCCEEDED),
    Kind(2, 2, 1, 0.5, 0, None, JobState.SUCCEEDED),
    Kind(3, 1, 1, 1.2, 0, None, JobState.SUCCEEDED),
    Kind(1, 1, 1, 0.3, 3, None, JobState.FAILED),
    Kind(1, 4, 1, 60.0, 0, 0.7, JobState.CANCELLED),
    Kind(2, 1, 1, 60.0, 0, 1.5, JobState.CANCELLED),
)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_fifty_kills_in_five_runs_lose_and_double_nothing(tmp_path: Path) -> None:
    for run in range(RUNS):
        _one_run(tmp_path / f"run-{run}", Rng(20261130 + run))


def _one_run(directory: Path, rng: Rng) -> None:
    directory.mkdir()
    place = Installation(directory, mark=f"chaos-{os.getpid()}-{directory.name}")
    (directory / "story").touch()
    for path in (directory.parent, directory):
        path.chmod(0o755)
    enough = threading.Event()
    killer = threading.Thread(target=_kill_at_random, args=(place, rng.stream("kills"), enough))
    try:
        place.start()
        killer.start()
        followers: list[_Follower] = []
        wanted = _submit_all(place, directory, rng.stream("jobs"), followers)
        killer.join()
        api = place.api()
        ended = {number: api.jobs.wait(number, timeout_s=60) for number in wanted}
        for number, job in ended.items():
            assert job.state == wanted[number].want, f"job {number} ended as {job.state} ({job.reason}), wanted {wanted[number].want}"
        _check_story(directory, wanted)
        for number, kind in wanted.items():
            if kind.want is JobState.SUCCEEDED:
                _check_output(place, number, kind)
        for follower in followers:
            follower.join(60)
            assert not follower.error, f"following job {follower.number} across kills ended with: {follower.error}"
            assert follower.text == _output(follower.rank), f"following job {follower.number} across kills lost or doubled output"
        eventually(lambda: not marked("CHAOS_MARK", place.mark), 10, "tasks to be gone")
    finally:
        enough.set()
        if killer.ident is not None:
            killer.join()  # Else it would start again what is stopped now.
        place.stop()
    assert not marked(MARK, place.mark)
    _check_records(place)


class _Follower(threading.Thread):
    """Reads rank 0 of a job from before it starts until its end, across everything that is killed meanwhile."""

    def __init__(self, place: Installation, number: int) -> None:
        super().__init__(daemon=True)
        self._api = place.api()
        self.number, self.rank, self.text, self.error = number, 0, "", "still following"

    def run(self) -> None:
        try:
            for piece in self._api.logs.follow(self.number, self.rank):
                self.text += piece.data.decode()
            self.error = ""
        except ShoalError as error:
            self.error = error.message


def _output(rank: int) -> str:
    return "".join(f"line {i} of rank {rank}\n" for i in range(LINES))


def _submit_all(place: Installation, directory: Path, rng: Rng, followers: list[_Follower]) -> dict[int, Kind]:
    """All jobs, by number, while the killing goes on; cancels come from threads of their own."""
    api = place.api()
    wanted: dict[int, Kind] = {}
    cancels = []
    for index in range(JOBS_PER_RUN):
        kind = KINDS[index % len(KINDS)] if index < len(KINDS) else rng.choice(KINDS)
        env = {"CHAOS": str(directory), "CHAOS_MARK": place.mark, "NAP": str(kind.nap_s), "CODE": str(kind.code)}
        spec = {"name": f"chaos-{index}", "run": SCRIPT, "nodes": kind.nodes, "tasks_per_node": kind.tasks, "env": env}
        number = api.jobs.submit({**spec, "gpus": {"count": kind.gpus}, "stop": {"grace": "1s"}}).number
        assert number not in wanted, f"job number {number} was given twice"
        wanted[number] = kind
        if kind.want is JobState.SUCCEEDED and index % 3 == 0:
            followers.append(_Follower(place, number))
            followers[-1].start()
        if kind.cancel_after_s is not None:
            cancels.append(threading.Timer(kind.cancel_after_s, api.jobs.cancel, (number,)))
            cancels[-1].start()
        time.sleep(rng.unit() * 0.2)
    for cancel in cancels:
        cancel.join()
    return wanted


def _kill_at_random(place: Installation, rng: Rng, enough: threading.Event) -> None:
    for _ in range(KILLS_PER_RUN):
        if enough.wait(0.1 + rng.unit() * 0.7):
            return
        victim = rng.below(3)
        agent = rng.choice(place.names)
        if victim != 1:
            place.kill_server()
        if victim != 0:
            place.kill_agent(agent)
        time.sleep(rng.unit() * 0.2)
        if victim != 1:
            place.start_server()
        if victim != 0:
            place.start_agent(agent)


def _check_story(directory: Path, wanted: dict[int, Kind]) -> None:
    """Each task of an uncancelled job started once and ended once, in one and the same attempt; nobody met another on a device."""
    clashes = directory / "clashes"
    assert not clashes.exists(), f"devices in two hands: {clashes.read_text()}"
    story = [tuple(line.split()) for line in (directory / "story").read_text().splitlines()]
    counts = collections.Counter((what, int(number), int(rank)) for what, number, rank, _ in story)
    for number, kind in wanted.items():
        ranks = range(kind.nodes * kind.tasks)
        if kind.want is JobState.SUCCEEDED:
            told = {(what, rank): counts[what, number, rank] for what in ("start", "end") for rank in ranks}
            assert set(told.values()) == {1}, f"job {number} ran not exactly once: {told}"
        assert all(counts["start", number, rank] <= 1 for rank in ranks), f"job {number} was started twice"


def _check_output(place: Installation, number: int, kind: Kind) -> None:
    api = place.api()
    for rank in range(kind.nodes * kind.tasks):
        text = api.logs.read(number, rank).data.decode()
        assert text == _output(rank), f"job {number} rank {rank} has lost or doubled output"


def _check_records(place: Installation) -> None:
    store = open_store(place.state_dir / "shoal.db")
    try:
        snapshot = store.snapshot()
    finally:
        store.close()
    assert not snapshot.allocations, "something still holds devices"
    assert check_snapshot(snapshot) == ()
    assert audit(snapshot.jobs, snapshot.attempts, snapshot.allocations) == ()
