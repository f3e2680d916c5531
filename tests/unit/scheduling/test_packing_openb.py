"""The openb workloads: what the default policy must fill on any seed, and that decisions are a matter of the seed alone."""

from __future__ import annotations

import openb
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "want_percent"),
    [("default", 96.1), ("cpu250", 94.2), ("gpushare100", 88.2), ("gpuspec33", 95.6), ("multigpu50", 97.5)],
)
def test_value_fills_at_130_percent_arrived(workload: str, want_percent: float) -> None:
    """Measured at seeds 42-45: cpu250 94.37 to 94.94, the others within 0.2 of each other and 0.1 or more over the bound."""
    run = openb.replay(workload, "Value", 42)
    assert run.allocated[openb.LOADS.index(130)] >= want_percent
    if workload == "gpuspec33":
        assert run.allocated[openb.LOADS.index(100)] >= 94.5


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["Random", "BestFit"])
def test_harness_is_near_the_published_mean(policy: str) -> None:
    """The bench asks for half a point, of the mean of ten seeds; one seed is allowed more."""
    run = openb.replay("cpu050", policy, 42)
    assert run.allocated[openb.LOADS.index(130)] == pytest.approx(openb.openb.published()["cpu050", policy][130], abs=0.9)


@pytest.mark.slow
def test_a_replay_is_a_matter_of_its_seed() -> None:
    runs = [openb.replay("multigpu20", "Value", seed)._replace(rate=0) for seed in (7, 7, 8)]
    assert runs[0] == runs[1] != runs[2]
