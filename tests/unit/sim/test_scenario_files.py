"""Scenario files are read strictly, and an expectation of every kind can fail: with what is, what was wanted, and how it came to that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.base.errors import Invalid
from shoal.formats.scenario import Scenario, names_of, read_scenario
from shoal.sim.scenario import difference, play

WORLD = """
name: small world
cluster:
  - {nodes: "n[0-1]", gpus: 4}
queues:
  - {name: team, gpus: 6}
jobs:
  - {name: pair, queue: team, nodes: 2, gpus: 2, runs: 10s}
  - {name: rest, at: 1s, queue: team, gpus: 2, runs: 5s, exit_code: 3}
  - {name: more, at: 2s, queue: team, gpus: 2, runs: 5s}
"""


def a_scenario(expect: str, world: str = WORLD) -> Scenario:
    return read_scenario(f"{world}expect:\n  - {expect}\n", "small.yaml")


PARTS = """
name: Parts of two GPUs
cluster: [{nodes: n0, gpus: 1, model: a100, parts: mig}, {nodes: n1, gpus: 1, parts: mps}]
jobs:
  - {name: small, gpus: {mig: 1g.10gb}, runs: 10s}
  - {name: half, gpus: {share: 500}, runs: 10s}
"""


def test_parts_of_gpus_are_named_and_counted() -> None:
    right = "{at: 1s, jobs: {small: {parts: [1g.10gb@6], gpus: 0.143}, half: {parts: [500], gpus: 0.5}}, nodes: {n1: {gpus_held: 0.5}}}"
    assert play(a_scenario(right, PARTS)).good
    wrong = "{at: 1s, jobs: {small: {parts: [1g.10gb@5]}, half: {gpus: 1}}, gpus_held: 0.5, queues: {default: {gpus: 0.5}}}"
    assert play(a_scenario(wrong, PARTS)).faults == (
        "at 1s: job small: parts is 1g.10gb@6, wanted 1g.10gb@5",
        "at 1s: job half: GPUs is 0.5, wanted 1",
        "at 1s: queue default: GPUs is 0.643, wanted 0.5",
        "at 1s: GPUs held is 0.643, wanted 0.5",
    )


def test_lists_of_nodes_limits_of_queues_and_names_of_ended_jobs() -> None:
    world = """
name: Lists and limits
cluster: [{nodes: [n0, "n[1-2]"], gpus: 2}]
queues: [{name: team, limits: {running_jobs: 1}}]
reservations: [{name: mine, nodes: [n2], from: 0s, to: 9s, users: [ben]}]
jobs:
  - {name: a, queue: team, runs: 4s, gpus: 2}
  - {name: b, queue: team, runs: 4s, gpus: 2}
  - {name: c, runs: 1s, gpus: 1, depends_on: afternotok:a}
events: [{at: 1s, node: [n1, n2], does: cordon}, {at: 6s, add_nodes: n9}]
"""
    play_well("{at: 2s, jobs: {b: {state: QUEUED, says: running_jobs}}, nodes: {n1: CORDONED, n2: CORDONED}}", world)
    play_well("{at: 7s, jobs: {c: {reason: dependency.never, says: 'job a, which ended as SUCCEEDED'}}, nodes: {n9: READY}}", world)


def play_well(expect: str, world: str) -> None:
    verdict = play(a_scenario(expect, world))
    assert verdict.good, difference(verdict)


RIGHT = [
    "{at: 2s, jobs: {pair: RUNNING, rest: RUNNING, more: {state: QUEUED, reason: quota}}}",
    "{at: 2s, jobs: {pair: {nodes: [n1, n0], gpus: 4, attempt: 1, started: 0s}}}",
    "{at: 0s..1s, jobs: {more: ABSENT}}",
    "{at: 6s, jobs: {rest: {state: FAILED, exit_code: 3, ended: 6s}, more: {started: 6s}}}",
    "{at: 2s, queues: {team: {gpus: 6, pending: 1}}, nodes: {n0: {state: READY, gpus_held: 4}}, gpus_held: 6}",
    "{at: always, evictions: 0, idle_gpu_seconds_most: 46}",
    "{at: end, jobs: {'*': {count: 2, state: SUCCEEDED}}, gpus_held: 0}",
    "{at: 2s, any_of: [{gpus_held: 1}, {gpus_held: 6}]}",
    "{at: 3s, jobs: {rest: {nodes_one_of: [[n0], [n1]]}, more: {says: 2 GPUs more}}}",
]
WRONG = [
    ("{at: 2s, jobs: {more: RUNNING}}", r"at 2s: job more: is QUEUED, wanted RUNNING \(.*\)"),
    ("{at: 2s, jobs: {pair: {nodes: [n0]}}}", "job pair: nodes is n0, n1, wanted n0"),
    ("{at: 2s, jobs: {pair: {nodes_one_of: [[n0], [n1]]}}}", "job pair: nodes are n0, n1, wanted one of"),
    ("{at: 2s, jobs: {pair: {gpus: 2}}}", "job pair: GPUs is 4, wanted 2"),
    ("{at: 2s, jobs: {pair: {attempt: 2}}}", "job pair: attempt is 1, wanted 2"),
    ("{at: 2s, jobs: {pair: {started: 1s}}}", "job pair: started is 0s, wanted 1s"),
    ("{at: 7s, jobs: {rest: {ended: 7s}}}", "job rest: ended is 6s, wanted 7s"),
    ("{at: 7s, jobs: {rest: {exit_code: 4}}}", "job rest: exit code is 3, wanted 4"),
    ("{at: 2s, jobs: {more: {reason: topology}}}", "job more: reasons are quota, wanted topology"),
    ("{at: 2s, jobs: {more: {says: banana}}}", "wanted it to say 'banana'"),
    ("{at: 2s, jobs: {'*': {count: 3, state: RUNNING}}}", r"jobs \*: 2 of 3 are so \(pair, rest\), wanted 3"),
    ("{at: 2s, jobs: {nobody: RUNNING}}", "no job of this file is named 'nobody'"),
    ("{at: 2s, queues: {team: {gpus: 4}}}", "queue team: GPUs is 6, wanted 4"),
    ("{at: 2s, queues: {team: {pending: 0}}}", "queue team: pending is 1, wanted 0"),
    ("{at: 2s, queues: {nobody: {gpus: 0}}}", "there is no queue 'nobody'"),
    ("{at: 2s, nodes: {n0: DRAINING}}", "node n0: state is READY, wanted DRAINING"),
    ("{at: 2s, nodes: {n0: {gpus_held: 0}}}", "node n0: GPUs held is 4, wanted 0"),
    ("{at: 2s, nodes: {n7: READY}}", "there is no node 'n7'"),
    ("{at: 2s, gpus_held: 5}", "at 2s: GPUs held is 6, wanted 5"),
    ("{at: 0s..9s, gpus_held: 6}", "at 0s: GPUs held is 4, wanted 6"),
    ("{at: always, gpus_held: 4}", "at 1s: GPUs held is 6, wanted 4"),
    ("{at: end, jobs: {pair: FAILED}}", "job pair: is SUCCEEDED, wanted FAILED"),
    ("{at: 2s, evictions: 1}", "evictions is 0, wanted 1"),
    ("{at: end, idle_gpu_seconds_most: 10}", "GPU-seconds have been idle, wanted at most 10"),
    ("{at: 2s, any_of: [{gpus_held: 1}, {gpus_held: 2}]}", "none of any_of holds: GPUs held is 6, wanted 1 | GPUs held is 6, wanted 2"),
]


@pytest.mark.parametrize("expect", RIGHT)
def test_what_is_so_is_found_so(expect: str) -> None:
    verdict = play(a_scenario(expect))
    assert verdict.good, difference(verdict)


@pytest.mark.parametrize(("expect", "want"), WRONG)
def test_what_is_not_so_is_told_with_both_sides(expect: str, want: str) -> None:
    verdict = play(a_scenario(expect))
    text = difference(verdict)
    assert re.search(want, text) or want in text
    assert "small world" in text
    assert re.search(r"0s  pair  job\.placed  \(attempt 1, nodes n0, n1\)", text)


FAULTS = [
    ("  - {name: x, gpus: 1, ruins: 5s}", r"unknown key 'ruins'", 6),
    ("  - {name: x, gpus: [1]}", r"expected a count", 6),
    ("  - {name: x, runs: 5}", r"must be text such as", 6),
    ("  - {name: x, queue: nowhere}", r"queue 'nowhere', which is not among queues", None),
    ("  - {name: x, depends_on: ghost}", r"depends on 'ghost', which is no job of this file", None),
    ("  - {name: x}\n  - {name: x}", r"2 jobs are named 'x'", None),
    ("  - {name: x, depends_on: late}\n  - {name: late, at: 5s}", r"which arrives after it", None),
    ("  - {name: x, times: 0}", r"times is 0", None),
    ("  - {name: x}\nevents:\n  - {at: 1s}", r"this event does nothing", 8),
    ("  - {name: x}\nevents:\n  - {at: 1s, cancel: x, hold: x}", r"has cancel and hold; give exactly one", 8),
    ("  - {name: x}\nevents:\n  - {at: 1s, node: n0}", r"node and does go together", 8),
    ("  - {name: x}\nqueues:\n  - {name: q, parent: nowhere}", r"its parent 'nowhere' is not among queues", 8),
    ("  - {name: x}\ninterleavings: 0", r"interleavings is 0", 7),
]


@pytest.mark.parametrize(("jobs", "want", "line"), FAULTS)
def test_a_fault_of_a_file_is_told_with_its_place(jobs: str, want: str, line: int | None) -> None:
    text = f"name: faulty\ncluster:\n  - n0\n\njobs:\n{jobs}\nexpect:\n  - {{at: end}}\n"
    with pytest.raises(Invalid) as caught:
        read_scenario(text, "faulty.yaml")
    fault = caught.value.faults[0]
    assert re.search(want, fault.message), fault.message
    assert line is None or fault.line == line


@pytest.mark.parametrize(
    ("cluster", "want"),
    [
        ("[n0, n0]", "there are two nodes 'n0'"),
        ("[{nodes: n0, gpus: 65}]", "gpus is 65; from 0 to 64"),
        ("['n[3-1]']", "a range must rise"),
    ],
)
def test_a_cluster_that_cannot_be_is_a_fault(cluster: str, want: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_scenario(f"name: x\ncluster: {cluster}\nexpect:\n  - {{at: end}}\n", "x")
    assert want in caught.value.faults[0].message


def test_a_moment_that_is_none_is_a_fault() -> None:
    with pytest.raises(Invalid) as caught:
        a_scenario("{at: noon}")
    assert "noon" in caught.value.faults[0].message


def test_names_of_nodes_are_written_out() -> None:
    assert names_of("n[08-10],x") == ("n08", "n09", "n10", "x")
    with pytest.raises(ValueError, match="a range must rise"):
        names_of("n[3-1]")


def test_a_seed_draws_the_same_story_again_and_others_another() -> None:
    path = Path(__file__).parents[2] / "scenario" / "c01-two-big-gangs.yaml"
    scenario = read_scenario(path.read_bytes(), path.name)
    assert play(scenario, 3) == play(scenario, 3)
    stories = {play(scenario, seed).story for seed in range(12)}
    assert len(stories) > 1
    assert {"g1", "g2"} == {story[2].split()[1] for story in stories}  # each of them is first in some


def test_a_job_that_could_not_be_submitted_cannot_be_played() -> None:
    with pytest.raises(Invalid, match=r"job x: image"):
        play(read_scenario("name: x\ncluster: [n0]\njobs:\n  - {name: x, image: pytorch, nodes: 1..2}\nexpect:\n  - {at: end}\n", "x"))
