"""
Formulas against simulations that share nothing with them: within three standard errors, on three random inputs each.

Inputs and runs come from one seed, so a failure is the same on every machine. A longer run only needs a larger TIMES.
"""

from __future__ import annotations

import math

import pytest

from shoal.base.rng import Rng
from shoal.planning import (
    bringup,
    coldstart,
    commitment,
    engine,
    fragmentation,
    gang,
    image,
    queueing,
    quota,
    rayidle,
    reclaim,
    sandbox,
    serving,
    special,
    spot,
)
from shoal.planning.answer import Answer
from shoal.planning.trials import demand, gangs, queues, spots, starts
from shoal.planning.trials.draws import exponential, lognormal

TIMES = 4_000
inputs = pytest.mark.parametrize("number", range(3))


def stream(name: str, number: int) -> Rng:
    return Rng(1).stream(f"{name}/{number}")


def between(rng: Rng, low: float, high: float) -> float:
    return low + (high - low) * rng.unit()


def value(answer: Answer, name: str) -> float:
    return answer.value(name)


@inputs
@pytest.mark.parametrize("refills", ["fixed", "exponential", "lognormal"])
def test_a_warm_pool_loses_what_erlang_says_whatever_the_refills(number: int, refills: str) -> None:
    rng = stream(f"loss/{refills}", number)
    rate, mean, slots = between(rng, 0.5, 2), between(rng, 3, 6), 4 + rng.below(5)
    draw = {"fixed": lambda _: mean, "exponential": lambda r: exponential(r, mean), "lognormal": lambda r: lognormal(r, mean, 1.5)}[refills]
    assert starts.pool_misses(rng, rate, draw, slots, 5 * TIMES).agrees(special.erlang_b(rate * mean, slots))


@inputs
def test_a_warm_pool_with_backorders_misses_the_poisson_tail(number: int) -> None:
    rng = stream("backorder", number)
    rate, mean, slots = between(rng, 0.5, 2), between(rng, 3, 6), 6 + rng.below(5)
    run = starts.pool_misses(rng, rate, lambda _: mean, slots, 5 * TIMES, backorder=True)
    assert run.agrees(special.poisson_tail(rate * mean, slots))


@inputs
def test_kept_instances(number: int) -> None:
    rng = stream("keep", number)
    x = coldstart.KeepAlive(mean_gap=between(rng, 100, 3_000), keep_alive=between(rng, 60, 2_000), cold_latency=40)
    answer = coldstart.keep_alive(x)
    assert starts.cold_share(rng, x.mean_gap, x.keep_alive, TIMES).agrees(value(answer, "p_cold"))
    assert starts.idle_per_request(rng, x.mean_gap, x.keep_alive, TIMES).agrees(value(answer, "idle_per_request"))


@inputs
def test_an_image_pull_by_events_is_the_pull_by_small_steps(number: int) -> None:
    rng = stream("pull", number)
    x = image.ImagePull(
        layers_compressed=tuple(between(rng, 0.05e9, 4e9) for _ in range(3 + rng.below(5))),
        max_concurrent=1 + rng.below(4),
        per_connection=between(rng, 50e6, 400e6),
        nic=between(rng, 0.3e9, 3e9),
    )
    step = 0.02
    rates = (x.per_connection, x.nic)
    download, ready = starts.pull_by_steps(x.layers_compressed, x.max_concurrent, rates, x.expansion / x.unpack_rate_uncompressed, step)
    answer = image.image_pull(x)
    slack = 2 * step * len(x.layers_compressed)
    assert value(answer, "download") == pytest.approx(download, abs=slack)
    assert value(answer, "ready") == pytest.approx(ready, abs=slack)


@inputs
@pytest.mark.parametrize("zipf", [0.0, 1.0])
def test_a_router_cache_hits_as_che_says(number: int, zipf: float) -> None:
    rng = stream(f"cache/{zipf}", number)
    prefixes, slots = 200 + rng.below(200), 20 + rng.below(60)
    weights = tuple(k**-zipf for k in range(1, prefixes + 1))
    run = starts.cache_hits(rng, weights, slots, 5 * TIMES)
    assert abs(run.mean - serving.hit_ratio(prefixes, slots, zipf)) <= 3 * run.error + 0.002  # Che's is an approximation


@inputs
def test_gangs_placed_pod_by_pod(number: int) -> None:
    rng = stream("deadlock", number)
    cluster = 12 + rng.below(20)
    sizes = tuple(cluster // 3 + rng.below(cluster // 3) for _ in range(2 + number))
    assert gangs.no_deadlock(rng, cluster, sizes, TIMES).agrees(gang.p_no_deadlock(cluster, sizes))


def test_gangs_that_are_never_all_stuck_are_never_seen_stuck() -> None:
    assert gangs.no_deadlock(stream("safe", 0), 64, (32, 32), 500).mean == 1.0
    assert gang.p_no_deadlock(64, (32, 32)) == 1.0
    assert gang.p_no_deadlock(64, (33, 33)) == pytest.approx(0.4923, rel=1e-3)


@inputs
def test_a_gang_starts_with_its_last_pod(number: int) -> None:
    rng = stream("gang-start", number)
    x = engine.GangStart(pods=2 + rng.below(60), mean_start=between(rng, 5, 60))
    assert gangs.gang_start(rng, x.pods, x.mean_start, TIMES // 4).agrees(value(engine.gang_start(x), "expected_gang_start"))


@inputs
def test_draining_for_a_gang(number: int) -> None:
    rng = stream("drain", number)
    cluster = 8 + rng.below(40)
    x = queueing.Drain(cluster=cluster, gang=1 + rng.below(cluster), mean_remaining=7_200)
    wait, idle = gangs.drain(rng, x.cluster, x.gang, x.mean_remaining, TIMES // 4)
    answer = queueing.drain(x)
    assert wait.agrees(value(answer, "wait"))
    assert idle.agrees(value(answer, "idle"))


@inputs
def test_whole_gpus_and_nodes_left_by_random_slots(number: int) -> None:
    rng = stream("whole", number)
    gpus, slots = 8 + rng.below(24), 2 + rng.below(7)
    pods = rng.below(gpus * 2)
    run = gangs.whole_free(rng, gpus, slots, pods, TIMES // 4)
    assert run.agrees(fragmentation.whole_free_random(gpus, slots, pods))
    assert run.agrees(value(rayidle.ray_empty_nodes(rayidle.RayEmptyNodes(nodes=gpus, gpus=slots, actors=pods)), "random"))


@inputs
def test_nodes_by_hand_and_the_order_of_checks(number: int) -> None:
    rng = stream("hand", number)
    x = bringup.BringUp(nodes=50 + rng.below(100), step_success=between(rng, 0.9, 0.99), steps=1 + rng.below(8))
    run = gangs.faulty_nodes(rng, x.nodes, x.step_success, x.steps, 200)
    assert run.agrees(value(bringup.bring_up(x), "expected_faulty"))
    checks = tuple(bringup.Check(name=str(at), p=p, time=between(rng, 5, 60)) for at, p in enumerate((0.5, 0.3, 0.2)))
    answer = bringup.check_order(bringup.CheckOrder(checks=checks))
    best = sorted(checks, key=lambda check: -check.p / check.time)
    assert gangs.time_to_find(rng, tuple((one.p, one.time) for one in best), TIMES).agrees(value(answer, "expected"))
    assert gangs.time_to_find(rng, tuple((one.p, one.time) for one in checks), TIMES).agrees(value(answer, "bottom_up"))


@inputs
def test_the_exact_spot_factor_and_not_the_first_order(number: int) -> None:
    rng = stream("factor", number)
    terms = spots.Terms(
        interval=between(rng, 20, 120), checkpoint=between(rng, 0.5, 5), restart=between(rng, 2, 15), rate=between(rng, 0.3, 1) / 60
    )
    run = spots.factor(rng, terms, 5 * TIMES)
    assert run.agrees(spot.factor_exact(*terms))
    load = terms.rate * (terms.interval + terms.checkpoint + terms.restart)
    assert load < 0.5 or not run.agrees(spot.factor_first_order(*terms))


@inputs
def test_the_spot_factor_with_a_notice(number: int) -> None:
    rng = stream("notice", number)
    terms = spots.Terms(between(rng, 20, 120), between(rng, 0.5, 1.8), between(rng, 2, 30), between(rng, 0.3, 2) / 60)
    x = spot.SpotBreakeven(
        discount=0.6, interval=terms.interval, checkpoint=terms.checkpoint, restart=terms.restart, rate=terms.rate, notice=2.0
    )
    assert spots.factor_with_notice(rng, terms, TIMES).agrees(value(spot.spot_breakeven(x), "factor_exact"))


@inputs
def test_the_best_interval_is_the_best_of_its_neighbours(number: int) -> None:
    rng = stream("interval", number)
    checkpoint, mtbf = between(rng, 0.5, 10), between(rng, 30, 2_000)
    best = spot.best_interval(checkpoint, mtbf)
    cost = [spot.factor_exact(best * times, checkpoint, 5, 1 / mtbf) for times in (0.97, 1.0, 1.03)]
    assert cost[1] == min(cost)


@inputs
def test_a_gang_on_spot(number: int) -> None:
    rng = stream("spot-gang", number)
    nodes, rate, shock = 2 + rng.below(40), between(rng, 0.005, 0.05), between(rng, 0, 0.2)
    hour = 3_600.0
    x = spot.SpotGang(node_rate=rate / hour, shock_rate=shock / hour, nodes=nodes, horizon=hour, checkpoint=60, restart=600, discount=0.6)
    answer = spot.spot_gang(x)
    assert spots.gang_survives(rng, rate, nodes, shock, 1.0, TIMES // 2).agrees(value(answer, "p_survive"))
    alone = spot.spot_gang(spot.SpotGang(node_rate=rate / hour, nodes=nodes, horizon=hour, checkpoint=60, restart=600, discount=0.6))
    assert spots.first_event(rng, rate, nodes, TIMES // 4).agrees(value(alone, "gang_mtbf") / hour)


@inputs
def test_waits_of_two_classes(number: int) -> None:
    rng = stream("waits", number)
    servers = 4 + rng.below(8)
    load = queues.Load(between(rng, 0.2, 0.35) * servers, between(rng, 0.3, 0.45) * servers, 1.0, servers)
    run = queues.waits(rng, load, 8 * TIMES)
    x = queueing.QueueWait(high_rate=load.high_rate, low_rate=load.low_rate, service_rate=load.service_rate, servers=servers)
    answer = queueing.queue_wait(x)
    for name, found in (("p_wait", run.waiting), ("wait_high", run.high), ("wait_low", run.low), ("wait", run.all)):
        assert found.agrees(value(answer, name)), name


@inputs
def test_headroom_keeps_the_delay_at_its_goal_and_not_below(number: int) -> None:
    rng = stream("ramp", number)
    x = reclaim.Reclaim(ramp=between(rng, 0.05, 0.3), delay_slo=between(rng, 0.5, 3), serving_gpus=between(rng, 30, 100))
    answer = reclaim.reclaim(x)
    time, room = value(answer, "reclaim_time"), value(answer, "headroom")
    assert queues.worst_delay(time, x.ramp, x.serving_gpus, room, 0.01) == pytest.approx(x.delay_slo, rel=5e-3)
    assert queues.worst_delay(value(answer, "time_to_break"), x.ramp, x.serving_gpus, 0.0, 0.01) == pytest.approx(x.delay_slo, rel=5e-3)


@inputs
def test_what_a_floor_holds_is_the_mean_over_a_day(number: int) -> None:
    rng = stream("floor", number)
    x = reclaim.FloorBorrow(
        mean=between(rng, 50, 80), amplitude=between(rng, 10, 45), buffer=between(rng, 0, 15), floor=between(rng, 20, 90)
    )
    day = demand.swing(x.mean, x.amplitude, 20_000)
    peak = x.mean + x.amplitude
    held = math.fsum(min(peak, max(x.floor, level + x.buffer)) for level in day) / len(day)
    assert value(reclaim.floor_borrow(x), "held_mean") == pytest.approx(held, rel=1e-6)


@inputs
def test_a_pool_is_enough_for_its_quantile(number: int) -> None:
    rng = stream("pool", number)
    x = quota.Pooling(
        teams=2 + rng.below(10), mean=between(rng, 10, 40), sd=between(rng, 2, 5), quantile=0.9, correlation=between(rng, 0, 0.5)
    )
    pooled = value(quota.pooling(x), "pooled")
    assert demand.pool_is_enough(rng, x.teams, (x.mean, x.sd), x.correlation, pooled, TIMES // 2).agrees(0.9)


@inputs
def test_what_a_commitment_costs(number: int) -> None:
    rng = stream("commit", number)
    x = commitment.Committed(
        mean=between(rng, 100, 500), sd=between(rng, 10, 80), committed_price=between(rng, 0.5, 2.5), on_demand_price=3.0
    )
    answer = commitment.committed(x)
    reserve, cost = value(answer, "reserve"), value(answer, "cost")
    assert demand.committed_cost(rng, (x.mean, x.sd), reserve, (x.committed_price, 3.0), TIMES).agrees(cost)
    around = [commitment.normal_cost(x.mean, x.sd, reserve + change, x.committed_price, 3.0) for change in (-1, 0, 1)]
    assert around[1] == min(around)


@inputs
def test_a_commitment_under_a_swing(number: int) -> None:
    rng = stream("swing", number)
    x = commitment.CommittedDiurnal(mean=60, amplitude=between(rng, 5, 60), committed_price=between(rng, 0.5, 2.5), on_demand_price=3.0)
    answer = commitment.committed_diurnal(x)
    day = demand.swing(x.mean, x.amplitude, 10_000)

    def cost(reserve: float) -> float:
        return x.committed_price * reserve + 3.0 * math.fsum(max(0.0, level - reserve) for level in day) / len(day)

    reserve = value(answer, "reserve")
    assert value(answer, "cost") == pytest.approx(cost(reserve), rel=1e-5)
    assert cost(reserve) <= min(cost(reserve - 1), cost(reserve + 1))


@inputs
def test_an_idle_timeout(number: int) -> None:
    rng = stream("idle", number)
    x = rayidle.RayIdle(mean_gap=between(rng, 50, 500), idle_timeout=between(rng, 0, 300), scale_up=between(rng, 20, 400))
    answer = rayidle.ray_idle(x)
    assert demand.idle_cost(rng, x.mean_gap, x.idle_timeout, x.scale_up, TIMES).agrees(value(answer, "seconds_per_gap"))


@inputs
def test_overcommitted_memory(number: int) -> None:
    rng = stream("memory", number)
    mean, sd = between(rng, 400, 700), between(rng, 50, 250)
    count = sandbox.safe_count(60_000, mean, sd, special.normal_quantile(0.9))
    run = demand.memory_is_enough(rng, count, (mean, sd), 60_000, 400)
    assert run.mean >= 0.9 - 3 * run.error
    more = demand.memory_is_enough(rng, count + 3, (mean, sd), 60_000, 400)
    assert more.mean <= 0.9 + 3 * more.error
