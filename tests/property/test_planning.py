"""
What must hold of planning whatever the inputs: monotone where life is, exact at its limits, fair in its divisions, and never a crash.

The last property puts wild inputs to every topic: each gives finite numbers or a refusal.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planning_examples import EXAMPLES
from shoal.base.errors import NotFound
from shoal.facts.mig import H100_80GB
from shoal.planning import backfill, coldstart, commitment, deadline, fairshare, gang, image, partition, quota, spot
from shoal.planning.answer import Answer, Refused
from shoal.planning.catalogue import topic_named
from shoal.planning.inputs import fields_of, read
from shoal.planning.plan import plan
from shoal.planning.quantity import convert, parse_amount, unit_of

few = settings(max_examples=40, deadline=None)
positive = st.floats(0.01, 1e6)
share = st.floats(0.0, 1.0)


# --- more is never worse --------------------------------------------------------------------------------------------------
@few
@given(
    sizes=st.lists(st.floats(1e6, 5e9), min_size=1, max_size=8),
    at_once=st.integers(1, 8),
    rates=st.tuples(st.floats(1e6, 1e9), st.floats(1e6, 1e10), st.floats(1e7, 1e9)),
    more=st.tuples(st.floats(1, 10), st.floats(1, 10), st.floats(1, 10)),
)
def test_more_bandwidth_never_makes_a_pull_slower(
    sizes: list[float], at_once: int, rates: tuple[float, ...], more: tuple[float, ...]
) -> None:
    slow = image.pull_layers(tuple(sizes), at_once, rates[0], rates[1], 1 / rates[2])
    fast = image.pull_layers(tuple(sizes), at_once, rates[0] * more[0], rates[1] * more[1], 1 / (rates[2] * more[2]))
    assert all(b.fetched <= a.fetched * (1 + 1e-9) and b.ready <= a.ready * (1 + 1e-9) for a, b in zip(slow, fast, strict=True))
    bound = max(sum(sizes) / min(at_once * rates[0], rates[1]), max(sizes) / rates[0], sum(sizes) / rates[2])
    assert slow[-1].ready >= bound * (1 - 1e-9)


@few
@given(weights=st.floats(1e8, 1e12), image_size=st.floats(1e8, 1e11), faster=st.floats(1, 100), overlap=st.booleans())
def test_a_faster_link_never_makes_a_cold_start_later(weights: float, image_size: float, faster: float, overlap: bool) -> None:
    def total(**more: float) -> float:
        x = coldstart.ColdStart(image_compressed=image_size, weights=weights, overlap=overlap, **more)
        return coldstart.chain_seconds(coldstart.links_of(x), x.overlap)

    for name, now in (("connection_bandwidth", 62.5e6), ("weights_bandwidth", 2e8), ("host_to_device", 2.5e10)):
        assert total(**{name: now * faster}) <= total(**{name: now}) + 1e-9
    plain = coldstart.ColdStart(image_compressed=image_size, weights=weights)
    assert total() <= coldstart.chain_seconds(coldstart.links_of(plain), False) + 1e-9


@few
@given(rate=st.floats(0.001, 5), time=st.floats(1, 200), target=st.floats(0.001, 0.5), more=st.floats(1, 3))
def test_more_starts_never_need_fewer_slots(rate: float, time: float, target: float, more: float) -> None:
    def slots(offered: float) -> tuple[float, float]:
        answer = coldstart.warm_pool(coldstart.WarmPool(start_rate=offered, refill_time=time, miss_target=target))
        assert answer.value("miss_at_pool_loss") <= target
        assert answer.value("miss_at_pool_backorder") <= target
        return answer.value("pool_loss"), answer.value("pool_backorder")

    low, high = slots(rate), slots(rate * more)
    assert low[0] <= high[0]
    assert low[1] <= high[1]
    assert low[0] <= low[1]  # Losing is easier than waiting for the next slot.


# --- spot -----------------------------------------------------------------------------------------------------------------
@few
@given(interval=positive, checkpoint=st.floats(0, 1e3), restart=st.floats(0, 1e3), rate=st.floats(1e-9, 1e-3), more=st.floats(1, 10))
def test_more_preemptions_never_waste_less(interval: float, checkpoint: float, restart: float, rate: float, more: float) -> None:
    now, then = (spot.factor_exact(interval, checkpoint, restart, one) for one in (rate, rate * more))
    assert 1 <= now <= then * (1 + 1e-12)
    assert now >= spot.factor_exact(interval, checkpoint, restart, 0.0) * (1 - 1e-9)
    assert now >= spot.factor_first_order(interval, checkpoint, restart, rate) * (1 - 1e-9)


@given(interval=positive)
def test_without_failures_nothing_is_wasted(interval: float) -> None:
    assert spot.factor_exact(interval, 0.0, 600.0, 0.0) == 1.0
    assert spot.factor_exact(interval, 0.0, 0.0, 1e-12 / interval) == pytest.approx(1.0, abs=1e-9)


@few
@given(checkpoint=st.floats(1, 600), mtbf=st.floats(3_600, 1e7), restart=st.floats(0, 600), times=st.floats(0.2, 5))
def test_no_interval_is_better_than_the_best(checkpoint: float, mtbf: float, restart: float, times: float) -> None:
    best = spot.best_interval(checkpoint, mtbf)
    least = spot.factor_exact(best, checkpoint, restart, 1 / mtbf)
    for other in (best * times, spot.young_interval(checkpoint, mtbf), max(1e-3, spot.daly_interval(checkpoint, mtbf))):
        assert least <= spot.factor_exact(other, checkpoint, restart, 1 / mtbf) * (1 + 1e-9)


@few
@given(discount=st.floats(0.05, 0.95), restart=st.floats(10, 3_600), rate=st.floats(1e-7, 1e-4))
def test_the_largest_gang_pays_and_one_node_more_does_not(discount: float, restart: float, rate: float) -> None:
    x = spot.SpotGang(node_rate=rate, nodes=1, checkpoint=30, restart=restart, discount=discount)
    largest = spot.largest_gang(x)
    for nodes, pays in ((largest, True), (largest + 1, False)):
        if nodes:
            total = nodes * rate
            factor = spot.factor_exact(spot.best_interval(30, 1 / total), 30, restart, total) if 30 * total < 2 else math.inf
            assert (factor <= 1 / (1 - discount)) is pays


@few
@given(trace=st.lists(st.integers(0, 1), min_size=20, max_size=80), extra=st.integers(0, 60))
def test_a_later_deadline_is_never_dearer_where_switching_is_free(trace: list[int], extra: int) -> None:
    def job(hours: float) -> deadline.SpotDeadline:
        return deadline.SpotDeadline(work=3_600 * 4, deadline=3_600 * hours, changeover=0, available=tuple(trace), tick=600)

    early, late = job(5), job(5 + extra / 6)
    assert deadline.lower_bound(late) <= deadline.lower_bound(early) + 1e-9
    assert deadline.follow(late, deadline.greedy).cost <= deadline.follow(early, deadline.greedy).cost + 1e-9


@few
@given(trace=st.lists(st.integers(0, 1), min_size=1, max_size=100), hours=st.floats(5, 12), change=st.floats(0, 0.3))
def test_every_policy_is_on_time_and_none_beats_the_bound(trace: list[int], hours: float, change: float) -> None:
    x = deadline.SpotDeadline(work=3_600 * 4, deadline=3_600 * hours, changeover=3_600 * change, available=tuple(trace), tick=600)
    for policy in (deadline.greedy, deadline.uniform_progress, deadline.on_demand):
        run = deadline.follow(x, policy)
        assert run.on_time
        assert run.cost >= deadline.lower_bound(x) - 1e-9


# --- shares ---------------------------------------------------------------------------------------------------------------
claims = st.lists(
    st.builds(fairshare.Claim, st.floats(0, 100), st.floats(0.1, 10), st.floats(0, 30), st.sampled_from([0.0, 1.0])), min_size=1, max_size=7
)


@few
@given(capacity=st.floats(0, 500), queues=claims, rng=st.randoms(use_true_random=False))
def test_shares_are_conserved_kept_to_demand_and_blind_to_order(capacity: float, queues: list[fairshare.Claim], rng: Any) -> None:
    shares, _ = fairshare.water_fill(capacity, queues)
    total = math.fsum(shares)
    assert total == pytest.approx(min(capacity, math.fsum(one.demand for one in queues)), abs=1e-6)
    assert all(-1e-9 <= got <= one.demand + 1e-6 for got, one in zip(shares, queues, strict=True))
    order = list(range(len(queues)))
    rng.shuffle(order)
    again, _ = fairshare.water_fill(capacity, [queues[at] for at in order])
    assert again == pytest.approx([shares[at] for at in order], abs=1e-6)
    whole = fairshare.whole_shares(shares)
    assert sum(whole) == math.floor(total + 1e-9)
    assert all(abs(have - got) < 1 + 1e-6 for have, got in zip(whole, shares, strict=True))


@few
@given(capacity=st.floats(0, 500), more=st.floats(0, 200), queues=claims)
def test_quotas_hold_nobody_envies_and_more_capacity_hurts_nobody(capacity: float, more: float, queues: list[fairshare.Claim]) -> None:
    shares, _ = fairshare.water_fill(capacity, queues)
    base = [min(one.quota, one.demand) for one in queues]
    if math.fsum(base) <= capacity:
        assert all(got >= least - 1e-6 for got, least in zip(shares, base, strict=True))
        for (a, got_a, least_a), (b, got_b, least_b) in itertools.permutations(zip(queues, shares, base, strict=True), 2):
            if a.priority == b.priority and got_a < a.demand - 1e-6:
                assert (got_a - least_a) / a.weight >= (got_b - least_b) / b.weight - 1e-6
        grown, _ = fairshare.water_fill(capacity + more, queues)
        assert all(after >= before - 1e-6 for before, after in zip(shares, grown, strict=True))


@few
@given(teams=st.integers(1, 50), mean=st.floats(1, 100), spread=st.floats(0, 0.5), correlation=share)
def test_a_pool_needs_no_more_than_its_parts(teams: int, mean: float, spread: float, correlation: float) -> None:
    def pooled(rho: float) -> float:
        answer = quota.pooling(quota.Pooling(teams=teams, mean=mean, sd=mean * spread, correlation=rho))
        assert answer.value("pooled") <= answer.value("separate") * (1 + 1e-9)
        return answer.value("pooled")

    assert pooled(0) <= pooled(correlation) * (1 + 1e-12) <= pooled(1) * (1 + 1e-9)
    whole = quota.pooling(quota.Pooling(teams=teams, mean=mean, sd=mean * spread, correlation=1))
    assert whole.value("saving") == pytest.approx(0, abs=1e-9)


# --- gangs, slices, queues, money -----------------------------------------------------------------------------------------
@few
@given(cluster=st.integers(1, 60), gangs=st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_deadlock_is_impossible_exactly_where_its_probability_is_nothing(cluster: int, gangs: list[int]) -> None:
    fitting = tuple(min(one, cluster) for one in gangs)
    safe = gang.p_no_deadlock(cluster, fitting)
    assert 0 <= safe <= 1
    assert (safe == 1.0) is not gang.deadlock_possible(cluster, fitting)
    assert safe == pytest.approx(gang.p_no_deadlock(cluster, fitting[::-1]), rel=1e-12)


@few
@given(wishes=st.lists(st.sampled_from(H100_80GB.profiles), max_size=8))
def test_instances_never_overlap_and_the_best_start_is_one_of_those_there_are(wishes: list[Any]) -> None:
    placed: partition.Placed = ()
    for want in wishes:
        starts = partition.starts_for(H100_80GB, placed, want)
        best = partition.best_start(H100_80GB, placed, want)
        assert best == max(starts, default=None)
        if best is not None:
            placed = (*placed, (want, best))
    slots = [slot for profile, start in placed for slot in range(start, start + profile.memory)]
    assert len(slots) == len(set(slots))
    assert sum(profile.compute for profile, _ in placed) <= 7


jobs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 8), st.integers(0, 20)), min_size=1, max_size=12)


@few
@given(rows=jobs, easy=st.booleans())
def test_no_schedule_runs_more_than_there_is_or_starts_before_the_submit(rows: list[tuple[int, int, int, int]], easy: bool) -> None:
    listed = tuple(
        backfill.ListedJob(job=at, submit=submit, run=run, processors=size, requested=run + slack)
        for at, (submit, run, size, slack) in enumerate(rows)
    )
    starts = backfill.run_list(8, listed, easy=easy)
    assert all(start >= job.submit for start, job in zip(starts, listed, strict=True))
    for now in starts:
        running = [job.processors for start, job in zip(starts, listed, strict=True) if start <= now < start + job.run]
        assert sum(running) <= 8
    if not easy:
        order = sorted(range(len(listed)), key=lambda at: (listed[at].submit, at))
        assert [starts[at] for at in order] == sorted(starts)


@few
@given(need=st.integers(1, 24), sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 90)), min_size=1, max_size=7))
def test_no_set_of_victims_loses_less(need: int, sizes: list[tuple[int, int]]) -> None:
    running = tuple(
        backfill.RunningJob(id=f"j{at}", gpus=gpus, since_checkpoint=float(since), restart=5.0) for at, (gpus, since) in enumerate(sizes)
    )
    if sum(job.gpus for job in running) < need:
        return
    every = (subset for count in range(len(running) + 1) for subset in itertools.combinations(running, count))
    enough = [subset for subset in every if sum(job.gpus for job in subset) >= need]
    least = min(sum(job.gpus * (job.since_checkpoint + job.restart) for job in subset) for subset in enough)
    lost, ids = backfill.cheapest_victims(need, running)
    assert lost == pytest.approx(least)
    assert sum(job.gpus for job in running if job.id in ids) >= need


@few
@given(mean=st.floats(10, 1e4), spread=st.floats(0.01, 0.3), price=st.floats(0.05, 0.94), dearer=st.floats(1, 1.05))
def test_a_dearer_commitment_is_never_a_larger_one(mean: float, spread: float, price: float, dearer: float) -> None:
    def answer(committed: float) -> Answer:
        return commitment.committed(commitment.Committed(mean=mean, sd=mean * spread, committed_price=committed, on_demand_price=1.0))

    now, then = answer(price), answer(price * dearer)
    assert then.value("reserve") <= now.value("reserve") * (1 + 1e-9)
    assert now.value("cost") <= now.value("all_on_demand") * (1 + 1e-6)


PAIRS = [("GB", "GiB"), ("Gbit/s", "MB/s"), ("USD/month", "USD/h"), ("mGPU", "GPU"), ("%", "1")]


# --- units ----------------------------------------------------------------------------------------------------------------
@few
@given(
    value=st.floats(1e-6, 1e6),
    pair=st.sampled_from([("GB", "GiB"), ("Gbit/s", "MB/s"), ("USD/month", "USD/h"), ("mGPU", "GPU"), ("%", "1")]),
)
def test_a_unit_there_and_back_is_the_same(value: float, pair: tuple[str, str]) -> None:
    assert convert(convert(value, *pair), *pair[::-1]) == pytest.approx(value, rel=1e-12)
    assert parse_amount(f"{value!r} {pair[0]}", pair[1])[0] == pytest.approx(value * unit_of(pair[0]).scale, rel=1e-12)


@given(text=st.text(max_size=30))
def test_no_text_breaks_the_reader_of_amounts(text: str) -> None:
    reading = read(coldstart.KeepAlive, {"mean_gap": text, "keep_alive": "1s", "cold_latency": "1s"})
    assert (reading.value is None) is bool(reading.refusals)


# --- every topic, wild inputs ---------------------------------------------------------------------------------------------
def wild(word: str, factors: list[float]) -> dict[str, Any]:
    """The example's inputs, every number times a factor."""
    topic = topic_named(word)
    record = read(topic.inputs, EXAMPLES[word].inputs).value
    given: dict[str, Any] = {}
    for field, factor in zip(fields_of(topic.inputs), itertools.cycle(factors)):
        value = getattr(record, field.name)
        if field.name in EXAMPLES[word].inputs:
            given[field.name] = EXAMPLES[word].inputs[field.name]
        if value is not None and not field.many and field.kind in (float, int):
            scaled = value * factor / unit_of(field.ask.unit).scale
            given[field.name] = {"value": round(scaled) if field.kind is int else scaled, "unit": field.ask.unit}
    return given


@pytest.mark.parametrize("word", EXAMPLES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(factors=st.lists(st.sampled_from([0.0, 0.003, 0.3, 0.9, 1.0, 1.0, 1.1, 3.0, 40.0]), min_size=3, max_size=9))
def test_every_topic_answers_with_finite_numbers_or_refuses(word: str, factors: list[float]) -> None:
    outcome = plan(word, wild(word, factors), sensitivity=False)
    if isinstance(outcome, Refused):
        assert all(refusal.code and refusal.message for refusal in outcome.refusals)
        return
    for number in outcome.numbers:
        values = number.value if isinstance(number.value, tuple) else (number.value,)
        assert all(isinstance(value, str) or math.isfinite(value) for value in values), number


def test_an_unknown_topic_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(NotFound, match="did you mean 'spot_gang'"):
        plan("spot_gng", {})
