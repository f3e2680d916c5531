"""What demo and benches rest on: the look for processes left behind sees them, and the real Slurm runs jobs and goes whole."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from from_path import load

demo = load("tools/demo.py")
slurm = load("bench/slurm.py")


def test_a_process_left_behind_is_seen_by_its_arguments_or_environment(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert demo.left_running(state) == []
    by_argument = subprocess.Popen(["/bin/sh", "-c", "read line", str(state)], stdin=subprocess.PIPE)
    by_environment = subprocess.Popen(["sleep", "60"], env={"SCRATCH": f"{state}/x"})
    try:
        assert {entry.split()[0] for entry in demo.left_running(state)} == {str(by_argument.pid), str(by_environment.pid)}
    finally:
        for process in (by_argument, by_environment):
            process.kill()
            process.communicate()
    assert demo.left_running(state) == []


@pytest.mark.service("slurm")
@pytest.mark.service("root")
@pytest.mark.slow
def test_a_real_slurm_runs_jobs_and_leaves_nothing() -> None:
    with slurm.SlurmCluster(nodes=2, gpus=4) as cluster:
        assert 0 < cluster.run_singly(5, shells=2) < 30
        assert 0 < cluster.run_array(6) < 30
        root = str(cluster.root)
        running = [process.pid for process in cluster.running]
        assert len(running) == 4
    assert not Path(root).exists()
    assert [pid for pid in running if _alive(pid)] == []


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
