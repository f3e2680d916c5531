"""
Every scenario file comes out as it says, in every interleaving, with all invariants looked at after every write.

A file with `waits_for` tells what Shoal should do and does not do yet: it must fail, so that the mark goes with the work that makes
it true.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.formats.scenario import read_scenario
from shoal.sim.scenario import difference, play, verdicts

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
CASES = [path for path in FILES if path.name.startswith("c")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_comes_out_as_its_file_says(path: Path) -> None:
    scenario = read_scenario(path.read_bytes(), path.name)
    bad = [verdict for verdict in verdicts(scenario) if not verdict.good]
    if scenario.waits_for is None:
        assert not bad, f"{len(bad)} of {scenario.interleavings} interleavings differ\n" + difference(bad[0])
    else:
        assert bad, f"{path.name} comes out as it says: take `waits_for: {scenario.waits_for}` out"
        assert not any("broken invariant" in fault for verdict in bad for fault in verdict.faults), difference(bad[0])


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
    scenario = read_scenario(text, "c14")
    for seed in range(3):
        verdict = play(scenario, seed)
        assert verdict.good, difference(verdict)
