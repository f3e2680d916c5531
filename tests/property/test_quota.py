"""
The quota tree at every depth against the algebra of the specification, written again in a few lines that keep no state at all.

Trees are one to five levels deep, with limits on any vertex and charges to any vertex, inner ones too. And whom the tree's order serves
is water filling: the same shares as `planning.fairshare` gives on paper, under whatever names and in whatever order the queues come.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.rng import Rng
from shoal.model.queue import Queue, QueueSpec, Quota
from shoal.planning.fairshare import Claim, water_fill
from shoal.scheduling.cycle import schedule
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge, QuotaTree, charge_of
from shoal.testing.clusters import Cluster, a_host, a_queue, places_of

SOME = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
KINDS = ("h100", "a100")
RESOURCES = ("gpu", *(f"gpu/{kind}" for kind in KINDS), "cpu")


# --- the specification, once more -----------------------------------------------------------------------------------------
class Paper(NamedTuple):
    """`available` by definition: everything is worked out from what each queue itself holds, every time."""

    queues: dict[str, Queue]
    own: dict[str, dict[str, int]]

    def quota(self, name: str, resource: str) -> Quota:
        return self.queues[name].spec.quotas.get(resource, Quota())

    def children(self, name: str) -> list[str]:
        return [other for other, queue in self.queues.items() if queue.spec.parent == name]

    def is_named(self, name: str, resource: str) -> bool:
        spec = self.queues[name].spec
        return resource in spec.quotas or (spec.parent is not None and self.is_named(spec.parent, resource))

    def subtree(self, name: str, resource: str) -> int:
        lent = sum(self.subtree(child, resource) - self.local(child, resource) for child in self.children(name))
        return self.quota(name, resource).nominal + lent

    def local(self, name: str, resource: str) -> int:
        lending = self.quota(name, resource).lending_limit
        return 0 if lending is None else max(0, self.subtree(name, resource) - lending)

    def usage(self, name: str, resource: str) -> int:
        own = self.own.get(name, {}).get(resource, 0) if self.is_named(name, resource) else 0
        return own + sum(self.seen(child, resource) for child in self.children(name))

    def seen(self, name: str, resource: str) -> int:
        """The part of a vertex's usage that its parent sees."""
        return max(0, self.usage(name, resource) - self.local(name, resource))

    def available(self, name: str, resource: str) -> int:
        subtree, local = self.subtree(name, resource), self.local(name, resource)
        parent = self.queues[name].spec.parent
        if parent is None:
            return subtree - self.usage(name, resource)
        above = self.available(parent, resource)
        borrowing = self.quota(name, resource).borrowing_limit
        if borrowing is not None:
            above = min(above, borrowing + subtree - local - self.seen(name, resource))
        return max(0, local - self.usage(name, resource)) + above


# --- trees and what befalls them ------------------------------------------------------------------------------------------
amounts = st.integers(0, 12).map(lambda gpus: gpus * 1_000)
limits = st.one_of(st.none(), amounts)
quotas = st.builds(Quota, nominal=amounts, borrowing_limit=limits, lending_limit=limits)


@st.composite
def trees(draw: Any) -> tuple[Queue, ...]:
    """Up to nine queues, one to five levels deep; each resource is named by some of them."""
    depth: dict[str, int] = {}
    queues = []
    for number in range(draw(st.integers(1, 9))):
        name = f"q{number}"
        above = draw(st.sampled_from([None, *(n for n, d in depth.items() if d < 5)])) if number else None
        depth[name] = 1 if above is None else depth[above] + 1
        named = draw(st.lists(st.sampled_from(RESOURCES), unique=True, max_size=3))
        spec = QueueSpec(parent=above, weight=draw(st.sampled_from((0, 500, 1_000, 3_000))), quotas={r: draw(quotas) for r in named})
        queues.append(Queue(id=name, spec=spec))
    return tuple(queues)


charges = st.builds(charge_of, st.integers(1, 6), st.sampled_from(KINDS), st.sampled_from((0, 1_000, 4_000)), st.just(0))
steps = st.lists(st.tuples(st.integers(0, 8), charges), max_size=25)


def start(queues: tuple[Queue, ...], asked: list[tuple[int, Charge]]) -> tuple[QuotaTree, list[tuple[str, Charge]]]:
    """A tree in which of each ask what fits has started, and what did."""
    tree, started = QuotaTree(queues, {}), []
    for number, charge in asked:
        name = queues[number % len(queues)].id
        if tree.short_of(name, charge) is None:
            tree.add(name, charge)
            started.append((name, charge))
    return tree, started


def held_by(started: list[tuple[str, Charge]]) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {}
    for name, charge in started:
        for resource, amount in charge:
            mine = held.setdefault(name, {})
            mine[resource] = mine.get(resource, 0) + amount
    return held


def agree(tree: QuotaTree, queues: tuple[Queue, ...], held: dict[str, dict[str, int]]) -> None:
    paper = Paper({queue.id: queue for queue in queues}, held)
    for queue in queues:
        for resource in RESOURCES:
            want = paper.available(queue.id, resource) if paper.is_named(queue.id, resource) else None
            assert tree.available(queue.id, resource) == want, (queue.id, resource)


@SOME
@given(trees(), steps, st.data())
def test_the_tree_is_the_algebra_of_the_specification(queues, asked, data):
    """After any starts and ends, also of more than fits: what is over a cut is counted as well."""
    tree, started = start(queues, asked[::2])
    for number, charge in asked[1::2]:
        name = queues[number % len(queues)].id
        tree.add(name, charge)
        started.append((name, charge))
    agree(tree, queues, held_by(started))
    ends = data.draw(st.lists(st.sampled_from(started), unique_by=id)) if started else []
    for ended in ends:
        tree.remove(*ended)
        started.remove(ended)
    agree(tree, queues, held_by(started))
    assert all(tree.numbers(name) == QuotaTree(queues, held_by(started)).numbers(name) for name in tree.vertices)


@SOME
@given(trees(), steps)
def test_what_is_promised_is_never_exceeded(queues, asked):
    """At every vertex: no more than it brings and may borrow goes beyond it, and no more than it lends is used by others."""
    tree, started = start(queues, asked)
    paper = Paper({queue.id: queue for queue in queues}, held_by(started))
    for queue in queues:
        for resource in (r for r in RESOURCES if paper.is_named(queue.id, r)):
            subtree, local = paper.subtree(queue.id, resource), paper.local(queue.id, resource)
            borrowing = paper.quota(queue.id, resource).borrowing_limit
            if queue.spec.parent is None:
                assert paper.usage(queue.id, resource) <= subtree
            elif borrowing is not None:
                assert paper.seen(queue.id, resource) <= subtree - local + borrowing
            room = tree.available(queue.id, resource)
            assert room is not None
            assert room >= max(0, local - paper.usage(queue.id, resource)), "what it does not lend is there for it, whoever came first"
            potential = tree.potential(queue.id, resource)
            assert potential is not None
            assert paper.usage(queue.id, resource) + room <= potential


@SOME
@given(trees(), steps, st.data())
def test_after_a_cut_room_is_negative_and_nothing_starts_until_ends_have_paid_for_it(queues, asked, data):
    _, started = start(queues, asked)
    cut = tuple(replace(q, spec=replace(q.spec, quotas={r: Quota() for r in q.spec.quotas})) for q in queues)
    tree = QuotaTree(cut, held_by(started))
    agree(tree, cut, held_by(started))
    for queue in cut:
        for resource in RESOURCES:
            room = tree.available(queue.id, resource)
            if room is not None:
                assert room <= 0, "nobody brings anything any more"
                assert tree.short_of(queue.id, ((resource, 1),)) == (resource, 1 - room)
    for name, charge in data.draw(st.permutations(started)):
        before = {q.id: tree.left(q.id) for q in cut}
        tree.remove(name, charge)
        assert all(left >= before[q.id][r] for q in cut for r, left in tree.left(q.id).items())
    assert all(left == 0 for q in cut for left in tree.left(q.id).values())


@SOME
@given(trees(), steps, st.data())
def test_in_whatever_order_queues_are_listed_the_tree_is_the_same(queues, asked, data):
    tree, started = start(queues, asked)
    other = QuotaTree(data.draw(st.permutations(queues)), held_by(data.draw(st.permutations(started))))
    for queue in queues:
        assert tree.numbers(queue.id) == other.numbers(queue.id)
        assert tree.left(queue.id) == other.left(queue.id)
        assert tree.tree_of(queue.id) == other.tree_of(queue.id)


@SOME
@given(trees(), steps, st.integers(0, 8), charges)
def test_a_trial_on_the_tree_leaves_no_trace(queues, asked, number, charge):
    tree, _ = start(queues, asked)
    name = queues[number % len(queues)].id
    before = {q.id: tree.numbers(q.id) for q in queues}
    short, room = tree.short_of(name, charge), tree.left(name)
    tree.count(name, charge)
    assert all(
        tree.left(name)[r] == room[r] - dict(charge).get(r, 0) for r in room if tree.available(name, r) is not None and short is None
    )
    tree.count(name, charge, -1)
    assert {q.id: tree.numbers(q.id) for q in queues} == before


# --- shares -----------------------------------------------------------------------------------------------------------------
rows = st.lists(st.tuples(st.integers(0, 8), st.sampled_from((500, 1_000, 2_000, 3_000)), st.integers(0, 30)), min_size=2, max_size=5)


def filled(named: dict[str, tuple[int, int, int]], gpus: int) -> dict[str, int]:
    """GPUs of each queue (guarantee, weight, jobs of one GPU) once the cycle has nothing more to place."""
    top = a_queue("top", gpu=(max(0, gpus - sum(guarantee for guarantee, _, _ in named.values())),))
    queues = [a_queue(name, "top", gpu=(guarantee,), weight=weight) for name, (guarantee, weight, _) in named.items()]
    cluster = Cluster(*(a_host(f"n{at}") for at in range(gpus // 8)), top, *queues)
    jobs = {name: [cluster.submit(1, queue=name) for _ in range(count)] for name, (_, _, count) in named.items()}
    placed = places_of(schedule(cluster.board, Policy(), cluster.now_ms, Rng(1)))
    return {name: sum(job in placed for job in mine) for name, mine in jobs.items()}


@FEW
@given(rows, st.sampled_from((16, 40)))
def test_whom_the_cycle_serves_gets_the_share_that_is_worked_out_on_paper(numbers, gpus):
    """
    Whole jobs for drops: nobody gets a job more than his share, and who is short envies nobody more than the other's last job.

    (With equal weights that puts everybody within a job of the paper; who weighs much may lack the last jobs of many who weigh little.)
    """
    named = {f"q{at}": row for at, row in enumerate(numbers)}
    if sum(guarantee for guarantee, _, _ in numbers) > gpus:
        return  # A guarantee of more than there is: water_fill divides that by guarantee, and validate() refuses it.
    shares, _ = water_fill(gpus, [Claim(jobs, weight, guarantee) for guarantee, weight, jobs in numbers])
    got = list(filled(named, gpus).values())
    assert sum(got) == min(gpus, sum(jobs for _, _, jobs in numbers)) == round(math.fsum(shares))
    alike = len({weight for _, weight, _ in numbers}) == 1
    for have, share, (guarantee, weight, jobs) in zip(got, shares, numbers, strict=True):
        assert have >= min(guarantee, jobs)
        assert have < share + 1
        assert have > share - (1 if alike else len(numbers))
        if have < jobs:
            level = max(0, have - guarantee) / weight
            others = zip(got, numbers, strict=True)
            assert all((theirs - 1 - lent) / heavy <= level + 1e-9 for theirs, (lent, heavy, _) in others if theirs > lent)


@FEW
@given(rows, st.data())
def test_a_queues_name_and_place_in_the_list_earn_it_nothing(numbers, data):
    """Under other names, listed in another order: the same shares; by name only ties of the last job are broken."""
    order = data.draw(st.permutations(range(len(numbers))))
    names = data.draw(st.permutations([f"q{at}" for at in range(len(numbers))]))
    plain = filled({f"q{at}": row for at, row in enumerate(numbers)}, 16)
    other = filled({names[at]: numbers[at] for at in order}, 16)
    for at, _ in enumerate(numbers):
        assert abs(plain[f"q{at}"] - other[names[at]]) <= 1
    backwards = dict(sorted({f"q{at}": row for at, row in enumerate(numbers)}.items(), reverse=True))
    assert filled(backwards, 16) == plain


@pytest.mark.parametrize(
    ("capacity", "rows", "want"),
    [
        pytest.param(128, ((48, 90), (32, 10), (32, 40), (16, 30)), (59, 10, 39.33, 19.67), id="four teams, quotas are weights"),
        pytest.param(100, ((0, 70, 3), (0, 30, 2), (0, 40, 1)), (52.5, 30, 17.5), id="weights alone, one is satisfied"),
        pytest.param(100, ((10, 100, 3), (10, 100, 1)), (70, 30), id="the rest by weight, not the whole"),
    ],
)
def test_the_figures_of_the_paper_come_out_of_the_cycle(capacity, rows, want):
    named = {f"q{at}": (row[0], (row[2] if len(row) > 2 else row[0]) * 1_000, row[1]) for at, row in enumerate(rows)}
    got = filled(named, 128) if capacity == 128 else None
    shares, _ = water_fill(capacity, [Claim(jobs, weight, guarantee) for guarantee, weight, jobs in named.values()])
    assert shares == pytest.approx(want, abs=0.005)
    assert got is None or all(abs(have - share) < 1 for have, share in zip(got.values(), want, strict=True))
