"""Cycles run again from files: the plan of the live server, told in lines; other policies; files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from serving import SYSTEM, Service, spec_of
from shoal.base.errors import Invalid, NotFound
from shoal.base.rng import Rng
from shoal.cli.main import shoal
from shoal.control import nodes, questions
from shoal.model.codec import encode_json
from shoal.model.job import CancelMode, Job
from shoal.model.plan import Decision, Plan, Wait
from shoal.model.values import Duration
from shoal.sim.again import read_scene, run_again

HOUR_MS = 3_600_000


def run(*words: str) -> Result:
    return CliRunner().invoke(shoal, words, prog_name="shoal")


def acts_of(plan: Plan) -> list[Decision]:
    """All but who waits: a live board tells that once and not again while it stays so."""
    return [decision for decision in plan.decisions if not isinstance(decision, Wait)]


@pytest.fixture(scope="module")
def taken() -> bytes:
    """A snapshot of a full fleet on which a gang waits."""
    service = Service()
    for name in ("n1", "n2"):
        service.add_node(name)
    service.run(100)
    for gpus in (4, 2):
        service.submit(spec_of(gpus=gpus, run_ms=HOUR_MS, time=Duration(HOUR_MS)))
    service.run(500)
    service.submit(spec_of(nodes=2, gpus=4, run_ms=HOUR_MS, time=Duration(HOUR_MS)))
    service.submit(spec_of(gpus=2, run_ms=60_000, time=Duration(60_000)))
    raw = questions.debug_snapshot(service.plane, SYSTEM)
    service.close()
    return raw


@pytest.mark.parametrize("seed", range(4))
def test_every_cycle_of_a_live_server_is_the_same_from_its_snapshot(seed: int) -> None:
    """Before each cycle of a random life its input is taken to a file; the file's plan is the live one's, to the byte."""
    service, rng, compared = Service(seed=seed), Rng(seed), 0
    for at in range(4):
        service.add_node(f"n{at}")
    service.run(100)
    jobs: list[Job] = []
    for _ in range(40):
        draw = rng.below(10)
        if draw < 6:
            size = 1 + rng.below(4)
            limit = Duration(1_000 * (1 + rng.below(60)))
            jobs.append(
                service.submit(spec_of(nodes=1 + rng.below(3), gpus=size, run_ms=rng.below(20_000), time=limit, priority=rng.below(3)))
            )
        elif draw < 8 and jobs:
            service.cancel(rng.choice(jobs), CancelMode.FORCE)
        else:
            verb = nodes.cordon_node if rng.below(2) else nodes.resume_node
            service.settle(verb(service.plane, SYSTEM, f"n{rng.below(4)}", "drawn"))
        raw = questions.debug_snapshot(service.plane, SYSTEM)
        service.plane.schedule.last = None
        service.round()
        live = service.plane.schedule.last
        if live is not None:
            again = run_again(read_scene(raw, "the file"))
            assert encode_json(acts_of(again.plan)) == encode_json(acts_of(live))
            assert again.faults == ()
            compared += bool(acts_of(live))
        service.run(rng.below(5_000))
    assert compared > 6
    service.close()


def test_a_replay_tells_the_plan_and_why(taken: bytes, tmp_path: Path) -> None:
    file = tmp_path / "cycle.json.gz"
    file.write_bytes(gzip.compress(taken))
    told = run("debug", "replay", str(file), "--why", "3")
    assert told.exit_code == 0, told.output
    assert "2 nodes, 2 jobs with room, 2 waiting" in told.stdout
    assert "reserve" in told.stdout
    assert "Job 3 is QUEUED" in told.stdout
    assert "in 59m" in told.stdout or "in 1h" in told.stdout, "times count from the snapshot"
    record = json.loads(run("debug", "replay", str(file), "--json").stdout)
    assert {row["job"]: row["what"] for row in record["decided"]} == {"4": "place", "3": "reserve"}


def test_another_policy_decides_otherwise(taken: bytes, tmp_path: Path) -> None:
    file = tmp_path / "cycle.json"
    file.write_bytes(taken)
    record = json.loads(run("debug", "replay", str(file), "--policy", "reserve=none", "--json").stdout)
    assert "reserve" not in {row["what"] for row in record["decided"]}
    refused = run("debug", "replay", str(file), "--policy", "reserves=none")
    assert refused.exit_code == 2
    assert "reserve" in refused.stderr


def test_what_is_no_snapshot_is_refused_with_a_sentence(taken: bytes, tmp_path: Path) -> None:
    newer = json.dumps(json.loads(taken) | {"form": 99, "shoal": "9.9"}).encode()
    with pytest.raises(Invalid, match=r"form 99, written by Shoal 9\.9; this version reads form 1"):
        read_scene(newer, "cycle.json")
    with pytest.raises(Invalid, match="no snapshot of a cycle"):
        read_scene(b"[]", "cycle.json")
    with pytest.raises(NotFound, match="no job '77'"):
        run_again(read_scene(taken, "cycle.json"), why=("77",))
    file = tmp_path / "cut.json.gz"
    file.write_bytes(gzip.compress(taken)[:-20])
    cut = run("debug", "replay", str(file))
    assert cut.exit_code == 2
    assert "take the snapshot again" in cut.stderr
