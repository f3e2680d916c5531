"""Parts of GPUs through a whole plane: shares and instances run side by side on one GPU each, and see what is theirs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from installation import Installation, eventually, marked

from shoal.client.api import Api
from shoal.model.job import JobState

TASK_MARK = "PARTS_TEST_MARK"
TELLS = """
env | grep -E '^(SHOAL_GPU_SHARE|CUDA_MPS)' | sort
echo sees $CUDA_VISIBLE_DEVICES
while [ ! -e "$OUT/done" ]; do sleep 0.1; done
"""
"""Says what it sees, and runs until it is let go."""


@pytest.fixture
def place(tmp_path: pytest.TempPathFactory) -> Iterator[Installation]:
    devices = "h100:1+mps,h100:1+mig"
    installation = Installation(tmp_path, f"parts-{os.getpid()}", nodes=1, devices=devices)  # type: ignore[arg-type]
    try:
        installation.start()
        yield installation
        eventually(lambda: not marked(TASK_MARK, installation.mark), 10, "tasks to be gone")
    finally:
        installation.stop()


def submit(place: Installation, gpus: dict[str, object]) -> int:
    env = {TASK_MARK: place.mark, "OUT": str(place.directory)}
    return place.api().jobs.submit({"name": "test", "env": env, "run": TELLS, "gpus": gpus}).number


def told(api: Api, number: int) -> dict[str, str]:
    """What the job's task has said: names and values."""
    lines = api.logs.read(number, 0).data.decode().splitlines()
    return {name: value for line in lines for name, _, value in [line.replace("sees ", "sees=", 1).partition("=")]}


def why(api: Api, number: int) -> str:
    explained = api.jobs.get(number).why
    return explained.headline if explained is not None and explained.reasons else ""


def test_shares_of_one_gpu_and_instances_of_another_run_side_by_side(place: Installation) -> None:
    """
    1. two shares and two instances are submitted: all run, the shares on one GPU, the instances on the other one
    2. each task sees its part by UUID, with the limits of its share
    3. a share that is more than what is left waits; so does a whole GPU
    4. all are let go: what waited runs, the instances are gone with their jobs
    """
    api = place.api()
    shared, cut = (device.uuid for device in api.nodes.get("n1").node.facts.devices)
    shares = [submit(place, {"share": 400}), submit(place, {"share_memory": "20GiB"})]
    instances = [submit(place, {"mig": "1g.10gb", "count": 1}) for _ in range(2)]
    for number in (*shares, *instances):
        eventually(lambda number=number: "sees" in told(api, number), 20, f"job {number} to run")
    views = [told(api, number) for number in (*shares, *instances)]
    assert {view["sees"] for view in views[:2]} == {shared}
    assert (views[0]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], views[0]["SHOAL_GPU_SHARE"]) == ("40", "400")
    assert views[1]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in views[1]
    assert len({view["sees"] for view in views[2:]}) == 2
    assert all(view["sees"].startswith("MIG-") for view in views[2:])
    assert {view["SHOAL_GPU_SHARE_PROFILE"] for view in views[2:]} == {"1g.10gb"}
    assert [api.jobs.get(number).places[0][2] for number in (*shares, *instances)] == [(shared,), (shared,), (cut,), (cut,)]

    seen = api.nodes.get("n1").devices
    assert [device.gives for device in seen] == ["mps=48", "mig"]
    assert [[(part.part, part.job) for part in device.parts] for device in seen] == [
        [("400/1000 mps", str(shares[0])), ("251/1000 mps", str(shares[1]))],
        [("1g.10gb@6", str(instances[0])), ("1g.10gb@5", str(instances[1]))],
    ]
    assert [(rank.gpus, rank.parts) for rank in api.jobs.get(instances[1]).ranks] == [((1,), ("1g.10gb@5",))]

    waiting = [submit(place, {"share": 500}), submit(place, {"count": 1})]
    eventually(lambda: all(why(api, number) for number in waiting), 20, "both to wait for a reason")
    assert {api.jobs.get(number).job.state for number in waiting} == {JobState.QUEUED}
    assert "349 thousandths free on the GPU with most, 500 thousandths asked" in why(api, waiting[0])
    (place.directory / "done").touch()
    for number in (*shares, *instances, *waiting):
        assert api.jobs.wait(number, timeout_s=30).state is JobState.SUCCEEDED
