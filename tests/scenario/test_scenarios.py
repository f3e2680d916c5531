"""
Every scenario file comes out as it says, in every interleaving, with all invariants looked at after every write.

A file with `waits_for` tells what Shoal should do and does not do yet: it must fail, so that the mark goes with the work that makes
it true.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from shoal.formats import scenario_sheet as scenario
from shoal.formats.scenario import read_scenario
from shoal.model.job import Spec
from shoal.scheduling.board import Board
from shoal.scheduling.columns import Columns
from shoal.sim.scenario import difference, play, verdicts

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
CASES = [path for path in FILES if path.name.startswith("c")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_comes_out_as_its_file_says(path: Path) -> None:
    read = read_scenario(path.read_bytes(), path.name)
    bad = [verdict for verdict in verdicts(read) if not verdict.good]
    if read.waits_for is None:
        assert not bad, f"{len(bad)} of {read.interleavings} interleavings differ\n" + difference(bad[0])
    else:
        assert bad, f"{path.name} comes out as it says: take `waits_for: {read.waits_for}` out"
        assert not any("broken invariant" in fault for verdict in bad for fault in verdict.faults), difference(bad[0])


@pytest.mark.parametrize(
    ("forgets", "verb", "told"),
    [(Columns, "take", "n0-0 of n0 is given twice"), (Board, "_count_charges", "the board that was moved differs from one built anew")],
)
def test_what_breaks_an_invariant_is_told_whatever_the_file_expects(
    monkeypatch: pytest.MonkeyPatch, forgets: type, verb: str, told: str
) -> None:
    """INV is looked at: a board that forgets what it gave, and one that forgets what it charged, are both found out."""
    text = """
name: two jobs
cluster: [n0]
queues: [{name: q, gpus: 4, borrow: 0}]
jobs: [{name: a, queue: q, gpus: 2}, {name: b, queue: q, gpus: 2}, {name: c, queue: q, gpus: 1, at: 1s}]
expect: [{at: 2s, gpus_held: 4}]
"""
    assert play(read_scenario(text, "inv")).good
    monkeypatch.setattr(forgets, verb, lambda *_: None)
    (fault,) = play(read_scenario(text, "inv")).faults
    assert fault.startswith("broken invariant")
    assert told in fault


# C14: a cancel at every point of a job's life: queued, claimed, being prepared, starting, running, ending.
CANCELS_MS = (0, 1, 999, 1_000, 3_999, 4_000, 4_001, 12_000, 23_999, 24_000, 24_001)


@pytest.mark.parametrize("mode", ["graceful", "force"])
@pytest.mark.parametrize("at_ms", CANCELS_MS)
def test_c14_a_cancel_at_any_point_leaves_no_ghost(at_ms: int, mode: str) -> None:
    text = f"""
name: cancel at {at_ms} ms
cluster: [n0]
jobs:
  - {{name: before, gpus: 8, runs: 1s}}
  - {{name: doomed, gpus: 8, prepares_in: 4s, runs: 20s, stops_in: 5s}}
  - {{name: next, gpus: 8, runs: 10s}}
events:
  - {{at: {at_ms}ms, cancel: doomed, mode: {mode}}}
expect:
  - {{at: always, any_of: [{{gpus_held: 0}}, {{gpus_held: 8}}]}}
  - {{at: end, gpus_held: 0, jobs: {{before: SUCCEEDED, next: SUCCEEDED}}}}
"""
    for seed in range(3):
        verdict = play(read_scenario(text, "c14"), seed)
        assert verdict.good, difference(verdict)


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scenario.md"


def test_the_scenario_that_the_page_shows_comes_out_as_it_says() -> None:
    (text,) = re.findall(r"```yaml scenario\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    verdict = play(read_scenario(text, PAGE.name))
    assert verdict.good, difference(verdict)


@pytest.mark.parametrize("kind", [scenario.Nodes, scenario.QueueEntry, scenario.Behaviour, scenario.Happening, scenario.Expectation])
def test_the_page_tells_every_key(kind: type[Spec]) -> None:
    told = set(re.findall(r"`([a-z_]+)", PAGE.read_text(encoding="utf-8")))
    assert set(kind.__struct_fields__) - told == set()


def test_the_page_tells_every_key_of_what_must_be_so_and_every_deed() -> None:
    told = set(re.findall(r"`([a-z_]+)", PAGE.read_text(encoding="utf-8")))
    for kind in (scenario.JobWant, scenario.QueueWant, scenario.NodeWant):
        assert set(kind.__struct_fields__) - told - {"count"} == set()
    assert set(get_args(scenario.Deed)) <= told


def test_every_case_of_the_table_that_is_met_has_a_file() -> None:
    """And each file of a case stands in the table."""
    rows = re.findall(r"^\| (C\d[^|]*) \| [^|]* \| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    states = {int(number): state for names, state in rows for number in re.findall(r"C(\d+)", names)}
    assert sorted(states) == list(range(1, 29))
    met = {number for number, state in states.items() if state.startswith("met")}
    files = {int(path.name[1:3]) for path in CASES if read_scenario(path.read_bytes(), path.name).waits_for is None}
    assert met == files
