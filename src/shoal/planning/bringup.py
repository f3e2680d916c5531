"""Nodes brought up by hand against an operator, upgrades in waves, and the order of checks on a node whose GPUs nobody sees."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic


class BringUp(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that need a driver, a toolkit and a plugin."""

    nodes: Annotated[int, Ask("1", "nodes", least=1)]
    minutes_by_hand: Annotated[float, Ask("min", "a person's time for one node")] = assumed("48 min")
    step_success: Annotated[float, Ask("1", "probability that a step by hand goes right", most=1)] = assumed("0.98")
    steps: Annotated[int, Ask("1", "steps for one node", least=1)] = 5
    upgrade: Annotated[float, Ask("min", "an operator's time for one node")] = assumed("12 min")
    parallel: Annotated[int, Ask("1", "nodes that an operator does at once", least=1)] = 1
    max_unavailable: Annotated[float, Ask("1", "share of nodes that may be down at once (disruption budget)", most=1, above=True)] = 1.0
    new_nodes: Annotated[float, Ask("nodes/day", "nodes that autoscaling adds")] = 0.0
    node_start: Annotated[float, Ask("min", "until a new node's GPUs are usable")] = assumed("6 min")
    gpus_per_node: Annotated[int, Ask("GPU", "GPUs of a node", least=1)] = 8
    price: Annotated[float, Ask("USD/GPU/h", "price of a GPU")] = assumed("2.5 USD/GPU/h")


def bring_up(x: BringUp) -> Answer:
    """Hours of people and of an operator, nodes that end up faulty, and what slow starts of new nodes cost."""
    work = Work()
    work.put("hand_hours", x.nodes * x.minutes_by_hand, "h", "nodes * minutes_by_hand", "one person")
    work.put("expected_faulty", x.nodes * (1 - x.step_success**x.steps), "nodes", "nodes * (1 - step_success ** steps)")
    budget = max(1, math.floor(x.nodes * x.max_unavailable + 1e-9))
    at_once = work.put("at_once", min(x.parallel, budget), "nodes", "min(parallel, max(1, floor(nodes * max_unavailable + 1e-9)))")
    waves = work.put("waves", math.ceil(x.nodes / at_once), "1", "ceil(nodes / at_once)")
    work.put("operator_hours", waves * x.upgrade, "h", "waves * upgrade")
    lost = work.put(
        "start_loss",
        x.new_nodes * x.node_start * x.gpus_per_node,
        "GPU*h/day",
        "new_nodes * node_start * gpus_per_node",
        "new nodes' starts",
    )
    work.put("start_loss_year", lost * x.price * 8_760 * 3_600, "USD", "start_loss * price * 8760 * 3600")
    return work.done(
        "by hand: n x minutes, each of k steps right with probability p; operator: waves of m nodes, each taking the upgrade time",
        "independent steps; drained nodes are free at once: long jobs make a wave as long as the longest of them",
        "the disruption budget" if budget < x.parallel else "nodes at once",
    )


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One place to look."""

    name: Annotated[str, Ask("name", "what is checked")]
    p: Annotated[float, Ask("1", "probability that the fault is here", most=1)]
    time: Annotated[float, Ask("s", "time of the check", above=True)]


class CheckOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of a node whose GPUs nobody sees, bottom first."""

    checks: Annotated[tuple[Check, ...], Ask("list", "checks from the lowest layer up, one of which has the fault")]


def expected_time(checks: tuple[Check, ...]) -> float:
    """Mean time until the fault is found, in this order."""
    passed, total = 0.0, 0.0
    for check in checks:
        passed += check.time
        total += check.p * passed
    return total


def check_order(x: CheckOrder) -> Answer:
    """The order that finds the fault soonest, on average, against bottom-up."""
    work = Work()
    best = tuple(sorted(x.checks, key=lambda check: (-check.p / check.time, check.name)))
    work.find("expected", expected_time(best), "s", "sum of p x time until that check is done, in descending p / time")
    work.find("bottom_up", expected_time(x.checks), "s", "the same in the order given")
    work.find("order", tuple(check.name for check in best), "1", "descending p / time, ties by name")
    work.note("an upper layer shows the symptom of a lower fault: when an upper check fails, look below it before blaming it")
    return work.done(
        "one fault, independent checks: expected time is least in descending probability over time",
        "probabilities learnt from incidents, summing to one",
    )


def validate_check_order(x: CheckOrder) -> tuple[Refusal, ...]:
    """The fault is somewhere."""
    total = math.fsum(check.p for check in x.checks)
    return unless(abs(total - 1) < 1e-6, "probabilities_off", f"probabilities sum to {total:g}, 1 is due", "checks")


BRING_UP: Final = Topic(BringUp, bring_up, "parallel")
CHECK_ORDER: Final = Topic(CheckOrder, check_order, "", validate_check_order)
