"""Whatever happens to nodes, queues and jobs: no invariant breaks, and once all is well again everything that can end does end."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.base.rng import Rng
from shoal.formats import yaml
from shoal.formats.scenario import read_scenario
from shoal.sim.scenario import difference, play

HEALED_S = 4_000
"""By then nobody does anything any more, and every node has been brought back."""
NODES = tuple(f"n{at}" for at in range(4))


def a_job(rng: Rng, at: int) -> dict[str, Any]:
    job: dict[str, Any] = {
        "name": f"j{at}",
        "at": f"{rng.below(300)}s",
        "runs": f"{rng.below(200)}s",
        "queue": rng.choice(["a", "b", "default"]),
        "gpus": 1 + rng.below(4),
        "nodes": 1 + rng.below(3),
        "priority": rng.below(3),
        "prepares_in": f"{rng.below(8)}s",
        "stops_in": f"{rng.below(40)}s",
        "exit_code": 0 if rng.below(5) else 1,
        "retry": {"limit": rng.below(3), "backoff": "5s"},
    }
    if not rng.below(4):
        job["time"] = f"{30 + rng.below(100)}s"
    if not rng.below(6):
        job = {**job, "array": f"0-{1 + rng.below(4)}%{1 + rng.below(2)}", "nodes": 1}
    return job


def an_event(rng: Rng) -> dict[str, Any]:
    at = {"at": f"{310 + rng.below(600)}s"}
    job = f"j{rng.below(12)}"
    return rng.choice(
        [
            {
                **at,
                "node": rng.choice(NODES),
                "does": rng.choice(["silent", "back", "reboot", "drain", "cordon", "resume", "break", "repair"]),
            },
            {**at, "node": rng.choice(NODES), "does": rng.choice(["silent", "back", "reboot"])},
            {**at, "cancel": job, "mode": rng.choice(["graceful", "force"])},
            {**at, rng.choice(["hold", "release", "requeue"]): job},
            {**at, "update": job, "priority": rng.below(5)},
            {**at, "set_queue": {"name": "a", "parent": "root", "gpus": rng.below(9), "borrow": rng.below(5)}},
        ]
    )


def a_world(seed: int) -> str:
    rng = Rng(seed).stream("world")
    events = [an_event(rng) for _ in range(rng.below(30))]
    healed = [
        *({"at": f"{HEALED_S}s", "node": name, "does": does} for does in ("back", "resume", "repair") for name in NODES),
        {"at": f"{HEALED_S}s", "release": "j*"},
        {"at": f"{HEALED_S}s", "set_queue": {"name": "a", "parent": "root", "gpus": 16}},
    ]
    return yaml.dump(
        {
            "name": f"world {seed}",
            "cluster": [{"nodes": ",".join(NODES), "gpus": 4}],
            "queues": [{"name": "root"}, {"name": "a", "parent": "root", "gpus": 8}, {"name": "b", "parent": "root", "gpus": 8, "lend": 4}],
            "jobs": [a_job(rng, at) for at in range(12)],
            "events": events + healed,
            "expect": [
                {"at": "end", "gpus_held": 0, "jobs": {"j*": {"state": "QUEUED", "count": 0}}},
                {"at": "end", "jobs": {"j*": {"state": "RUNNING", "count": 0}}},
                {"at": "end", "jobs": {"j*": {"state": "STARTING", "count": 0}}},
                {"at": "end", "jobs": {"j*": {"state": "CANCELLING", "count": 0}}},
            ],
        }
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_world_in_which_anything_happens_holds_and_comes_to_rest(seed: int) -> None:
    scenario = read_scenario(a_world(seed), f"world {seed}")
    verdict = play(scenario, seed)
    assert verdict.good, difference(verdict)
    assert any("job.ended" in line for line in verdict.story)
