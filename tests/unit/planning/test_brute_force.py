"""Formulas without chance against counting, walking or integrating the same thing the long way."""

from __future__ import annotations

import itertools
import math

import pytest

from shoal.base.rng import Rng
from shoal.planning import commitment, creates, devices, fairshare, fragmentation, parallel, partition, serving, spot
from shoal.planning.special import simpson

inputs = pytest.mark.parametrize("number", range(3))


def stream(name: str, number: int) -> Rng:
    return Rng(5).stream(f"{name}/{number}")


@inputs
def test_falling_prices_by_integration(number: int) -> None:
    rng = stream("decline", number)
    years, decline = 1 + 4 * rng.unit(), 0.05 + 0.5 * rng.unit()
    x = commitment.CommittedDecline(discount=0.4, years=years * 8_760 * 3_600, decline=decline / (8_760 * 3_600))
    mean = simpson(lambda t: (1 - decline) ** t, 0, years, 200) / years
    assert commitment.committed_decline(x).value("average_relative_price") == pytest.approx(mean, rel=1e-9)


@inputs
def test_the_ladder_commits_what_costs_least(number: int) -> None:
    rng = stream("ladder", number)
    demand = tuple(float(rng.below(50)) for _ in range(200))
    x = commitment.CapacityLadder(demand=demand, committed=0.4 + 0.5 * rng.unit(), on_demand=1.0)
    least = min(x.committed * q + sum(max(0.0, d - q) for d in demand) / len(demand) for q in range(51))
    assert commitment.capacity_ladder(x).value("cost") == pytest.approx(least, rel=1e-9)


@inputs
def test_the_cheapest_of_three_supplies_at_every_use(number: int) -> None:
    rng = stream("screen", number)
    x = commitment.CapacityScreening(
        committed=1 + rng.unit(), block_fixed=rng.unit(), block_used=0.5 + rng.unit(), on_demand=2 + 2 * rng.unit()
    )
    uses = [at / 2_000 for at in range(2_001)]
    block = [x.block_fixed + x.block_used * use < min(x.committed, x.on_demand * use) - 1e-9 for use in uses]
    assert commitment.capacity_screening(x).number("block_ever_best").value is any(block)


@inputs
def test_keys_collide_as_often_as_a_product_says(number: int) -> None:
    keys, bits = 20 + 30 * number, 14
    none = math.prod(1 - at / 2**bits for at in range(keys))
    found = creates.key_collision(creates.KeyCollision(keys=keys, bits=bits)).value("p_collision")
    assert found == pytest.approx(1 - none, rel=0.06)  # The birthday bound takes n (n - 1) for n squared.


def test_paging_by_offset_repeats_rows_one_by_one() -> None:
    inserts, pages, page_time, size = 5, 50, 0.2, 20
    seen: list[float] = []
    for page in range(pages):
        newest = 10_000 + math.floor(inserts * page * page_time + 1e-9)
        seen += [newest - page * size - at for at in range(size)]
    answer = creates.offset_paging(creates.OffsetPaging(inserts=inserts, pages=pages, page_time=page_time))
    assert answer.value("repeated_rows") == len(seen) - len(set(seen)) == 49


@inputs
def test_pods_are_put_on_a_node_one_by_one(number: int) -> None:
    rng = stream("strand", number)
    x = devices.Stranded(
        nodes=10,
        gpus_per_node=8,
        vcpu=64.0 + rng.below(200),
        memory=2.0**40,
        pod_gpu=1 + rng.below(3),
        pod_vcpu=4.0 + rng.below(40),
        pod_memory=2.0**36,
    )
    gpus, cpus, memory, pods = 8, x.vcpu, x.memory, 0
    while gpus >= x.pod_gpu and cpus >= x.pod_vcpu and memory >= x.pod_memory:
        gpus, cpus, memory, pods = gpus - x.pod_gpu, cpus - x.pod_vcpu, memory - x.pod_memory, pods + 1
    assert devices.stranded(x).value("pods_per_node") == pods


@inputs
def test_decayed_usage_settles(number: int) -> None:
    life, use = 3 + 4 * number, 10.0
    held, step = 0.0, 0.01
    for _ in range(int(40 * life / step)):
        held = held * 2 ** (-step / life) + use * step
    x = fairshare.SlurmFairshare(normalised_usage=0.5, normalised_shares=0.25, half_life=life * 86_400.0, steady_use=use * 3_600 / 86_400)
    assert fairshare.slurm_fairshare(x).value("settled_usage") / 3_600 == pytest.approx(held, rel=2e-3)


def test_known_divisions() -> None:
    claim = fairshare.Claim
    assert fairshare.water_fill(100, [claim(70, 3), claim(30, 2), claim(40, 1)])[0] == pytest.approx([52.5, 30, 17.5])
    assert fairshare.water_fill(100, [claim(100, 3, 10), claim(100, 1, 10)])[0] == pytest.approx([70, 30])
    # Higher priorities are filled first, then the rest by weight.
    assert fairshare.water_fill(5, [claim(1, 1, 1, 2), claim(3, 2, 1, 1), claim(2, 1, 0, 1)])[0] == pytest.approx([1, 1 + 2, 1])
    # After the loss of a node quotas exceed what is left; it still divides.
    assert fairshare.water_fill(12, [claim(20, 1, 16), claim(20, 1, 8)])[0] == pytest.approx([8, 4])
    assert fairshare.whole_shares([52.5, 30, 17.5]) == [53, 30, 17]


@pytest.mark.parametrize(("double", "mixes", "placements"), [(False, 14, 19), (True, 38, 78)])
def test_maximal_mixes_by_trying_every_set_of_starts(double: bool, mixes: int, placements: int) -> None:
    profiles = tuple(p for p in partition.facts.H100_80GB.profiles if double or p.name != "1g.20gb")
    pairs = [(p, start) for p in profiles for start in p.starts]

    def legal(chosen: tuple[tuple[partition.facts.Profile, int], ...]) -> bool:
        slots = [slot for p, start in chosen for slot in range(start, start + p.memory)]
        return len(slots) == len(set(slots)) and sum(p.compute for p, _ in chosen) <= 7

    sets = [chosen for count in range(8) for chosen in itertools.combinations(pairs, count) if legal(chosen)]
    maximal = [chosen for chosen in sets if not any(legal((*chosen, pair)) for pair in pairs if pair not in chosen)]
    assert len(maximal) == placements == len(partition.maximal_placements(partition.facts.H100_80GB, profiles))
    assert len({tuple(sorted(p.name for p, _ in chosen)) for chosen in maximal}) == mixes


def test_a_fragment_by_its_definition() -> None:
    rng = stream("fragment", 0)
    for _ in range(50):
        left = tuple(rng.below(11) / 10 for _ in range(4))
        shape = fragmentation.Shape(p=1, cpu=float(rng.below(12)), gpus=rng.below(3), per_gpu=(1 + rng.below(10)) / 10)
        cpu = float(rng.below(12))
        able = shape.gpus > 0 and cpu >= shape.cpu and sum(free >= shape.per_gpu - 1e-9 for free in left) >= shape.gpus
        want = sum(left) - (sum(free for free in left if free >= shape.per_gpu - 1e-9) if able else 0)
        assert fragmentation.fragment_for(cpu, left, shape) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_all_reduce_step_by_step(ranks: int) -> None:
    """Reduce-scatter and all-gather: each of 2 (n - 1) steps sends one n-th of the message over every link."""
    message, bus, latency = 64e6, 450e9, 3e-6
    time = sum(message / ranks / bus + latency for _ in range(2 * (ranks - 1)))
    assert parallel.ring_all_reduce(message, ranks, bus, latency) == pytest.approx(time, rel=1e-12)


@pytest.mark.parametrize(("mtbf_h", "daly_min", "exact_min"), [(24.0, 116.7, 116.69), (6.0, 56.7, 56.71), (0.25, 9.14, 9.17)])
def test_the_intervals_that_daly_published(mtbf_h: float, daly_min: float, exact_min: float) -> None:
    """His paper gives 117, 57 and 9.1 minutes for a checkpoint of five."""
    assert spot.daly_interval(300, mtbf_h * 3_600) / 60 == pytest.approx(daly_min, abs=0.05)
    assert spot.best_interval(300, mtbf_h * 3_600) / 60 == pytest.approx(exact_min, abs=0.01)


def test_break_even_is_where_the_factor_meets_the_limit() -> None:
    rate = spot.break_even_rate(3_600, 60, 600, 2.5)
    assert spot.factor_exact(3_600, 60, 600, rate) == pytest.approx(2.5, rel=1e-9)
    assert spot.break_even_rate(60, 120, 0, 2.5) == 0.0  # Checkpoints alone cost more than the discount gives.


def test_replicas_are_the_fewest_below_the_load_aimed_at() -> None:
    for rate in (0.1, 1.0, 3.0, 3.1, 20.0, 299.0):
        count = serving.replicas_needed(rate, 4.0, 0.75)
        assert rate / (count * 4.0) <= 0.75 + 1e-9
        assert count == 1 or rate / ((count - 1) * 4.0) > 0.75
    assert serving.replicas_needed(0.0, 4.0, 0.75) == 0
