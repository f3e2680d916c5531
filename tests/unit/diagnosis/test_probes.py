"""The next look is the one that tells most per second."""

from __future__ import annotations

import random

import pytest

from shoal.diagnosis.layers import DEPTH, STACK, Layer
from shoal.diagnosis.probes import PRIORS, PROBES, Probe, best_order, entropy_bits, expected_seconds, gain_bits, next_probe

CHECKS = {"driver": (0.25, 20), "toolkit": (0.20, 30), "plugin": (0.30, 15), "taints": (0.15, 5), "allocatable": (0.10, 5)}


def test_five_checks_in_their_best_order_take_35_and_a_half_seconds() -> None:
    order = [list(CHECKS)[index] for index in best_order(list(CHECKS.values()))]
    assert order == ["taints", "plugin", "allocatable", "driver", "toolkit"]
    assert expected_seconds([CHECKS[name] for name in order]) == pytest.approx(35.5)


def test_bottom_up_they_take_52_and_a_half() -> None:
    assert expected_seconds(list(CHECKS.values())) == pytest.approx(52.5)


def test_probabilities_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sum to 0\.9"):
        expected_seconds([(0.4, 1), (0.5, 1)])


def test_priors_are_a_distribution_over_all_layers() -> None:
    assert set(PRIORS) == set(STACK)
    assert sum(PRIORS.values()) == pytest.approx(1)


def test_a_probe_gains_nothing_where_nothing_is_in_doubt() -> None:
    belief = {Layer.HARDWARE: 1.0}
    assert entropy_bits(belief.values()) == 0
    assert next_probe(belief) is None
    assert all(gain_bits(probe, belief) == 0 for probe in PROBES.values())


def found(planted: Layer, order: list[Probe] | None) -> int:
    """Seconds until the planted fault is known: with `order` fixed, or planned anew after each answer."""
    belief, spent, done = dict(PRIORS), 0, set[str]()
    while len(belief) > 1:
        probe = next_probe(belief, done=done) if order is None else next((one for one in order if one.name not in done), None)
        if probe is None:
            break
        done.add(probe.name)
        spent += probe.seconds
        if planted in probe.names:
            break
        left = probe.feels - probe.names if planted in probe.feels else set(belief) - probe.feels - probe.names
        belief = {layer: weight for layer, weight in belief.items() if layer in left}
    return spent


def test_planned_looks_take_a_quarter_less_time_than_going_bottom_up() -> None:
    rng = random.Random(7)
    planted = rng.choices(list(PRIORS), list(PRIORS.values()), k=200)
    bottom_up = sorted(PROBES.values(), key=lambda probe: (min(DEPTH[layer] for layer in probe.names), probe.seconds, probe.name))
    fixed = sum(found(layer, bottom_up) for layer in planted)
    planned = sum(found(layer, None) for layer in planted)
    print(f"200 nodes: bottom-up {fixed / 200:.0f} s, planned {planned / 200:.0f} s, {1 - planned / fixed:.0%} less")
    assert planned <= 0.75 * fixed
