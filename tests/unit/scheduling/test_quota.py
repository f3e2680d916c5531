"""The quota tree: one row of numbers per rule."""

from __future__ import annotations

import pytest

from shoal.model.reason import ReasonCode
from shoal.scheduling.quota import QuotaTree
from shoal.testing.clusters import Cluster, a_host, a_queue


def tree(*queues, **held: int) -> QuotaTree:
    """Whole GPUs held by queue."""
    return QuotaTree(queues, {name: {"gpu": gpus * 1_000} for name, gpus in held.items()})


def gpus(amount: int | None) -> float | None:
    return None if amount is None else amount / 1_000


COHORT = (a_queue("all"), a_queue("a", "all", gpu=(4,)), a_queue("b", "all", gpu=(6,)))


@pytest.mark.parametrize(
    ("queues", "held", "want"),
    [
        pytest.param(COHORT, {}, {"a": 10, "b": 10, "all": None}, id="idle quota of siblings can be borrowed"),
        pytest.param(COHORT, {"b": 8}, {"a": 2, "b": 2}, id="what a sibling borrows is gone"),
        pytest.param(COHORT, {"a": 10}, {"a": 0, "b": 0}, id="a full cohort has nothing for its lender either"),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4, 3)), a_queue("b", "all", gpu=(6,))),
            {},
            {"a": 7, "b": 10},
            id="a borrowing limit caps nominal plus borrowed",
        ),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4, 0)), a_queue("b", "all", gpu=(6,))),
            {"a": 1},
            {"a": 3, "b": 9},
            id="borrowing nothing leaves the nominal",
        ),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4,)), a_queue("b", "all", gpu=(6, None, 2))),
            {},
            {"a": 6, "b": 10},
            id="a lending limit keeps the rest for the lender",
        ),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4,)), a_queue("b", "all", gpu=(6, None, 2))),
            {"b": 4},
            {"a": 6, "b": 6},
            id="usage under what is not lent stays unseen by the parent",
        ),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4,)), a_queue("b", "all", gpu=(6, None, 2))),
            {"b": 5},
            {"a": 5, "b": 5},
            id="usage over what is not lent is seen by the parent",
        ),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4,)), a_queue("b", "all", gpu=(6, None, 2))),
            {"a": 6},
            {"a": 0, "b": 4},
            id="what is lent can be out, what is not lent cannot",
        ),
        pytest.param((a_queue("a", gpu=(4,)),), {"a": 6}, {"a": -2}, id="after a cut available is negative"),
        pytest.param(
            (a_queue("all", gpu=(10,)), a_queue("a", "all")), {}, {"a": 10}, id="a queue that names nothing is bound by the one above it"
        ),
        pytest.param((a_queue("all"), a_queue("a", "all")), {"a": 99}, {"a": None}, id="what nobody on the way names is unlimited"),
        pytest.param(
            (a_queue("all"), a_queue("a", "all", gpu=(4,)), a_queue("free", "all")),
            {"free": 50},
            {"a": 4, "free": None},
            id="an unlimited sibling eats nobody's guarantee",
        ),
        pytest.param((a_queue("a", "gone", gpu=(4,)),), {}, {"a": 4}, id="a parent that is not there is none"),
        pytest.param(
            (a_queue("a", "b", gpu=(4,)), a_queue("b", "a", gpu=(2,))), {}, {"a": 6, "b": 6}, id="a circle is cut and not followed"
        ),
    ],
)
def test_available(queues, held, want):
    quota = tree(*queues, **held)
    assert {name: gpus(quota.available(name, "gpu")) for name in want} == want


def test_three_levels_borrow_through_the_middle():
    quota = tree(
        a_queue("org"),
        a_queue("x", "org", gpu=(2, 1)),
        a_queue("y", "org", gpu=(10,)),
        a_queue("x1", "x", gpu=(3,)),
        a_queue("x2", "x", gpu=(0,)),
    )
    assert gpus(quota.available("x2", "gpu")) == 2 + 3 + 1
    assert gpus(quota.potential("x2", "gpu")) == 6
    quota.add("x1", (("gpu", 3_000),))
    assert gpus(quota.available("x2", "gpu")) == 3


def test_a_charge_and_its_inverse_leave_no_trace():
    quota = tree(*COHORT, a=3)
    before = {name: quota.numbers(name) for name in quota.vertices}
    for amount in (500, 2_000, 9_000):
        quota.add("a", (("gpu", amount),))
    for amount in (2_000, 500, 9_000):
        quota.remove("a", (("gpu", amount),))
    assert {name: quota.numbers(name) for name in quota.vertices} == before


def test_default_is_there_without_limits_until_it_is_stored():
    assert tree().available("default", "gpu") is None
    assert gpus(tree(a_queue("default", gpu=(3,))).available("default", "gpu")) == 3


# --- in the cycle -----------------------------------------------------------------------------------------------------------
def test_a_job_over_its_quota_waits_with_the_numbers_and_holds_nothing():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(6,)))
    first, second = cluster.submit(4, queue="q"), cluster.submit(4, queue="q")
    cluster.cycle()
    assert (cluster.gpus_of(first), cluster.gpus_of(second)) == (4, 0)
    why = cluster.why(second)
    reason = why.reasons[0]
    assert (reason.code, reason.asked, reason.free, reason.quota_short_by) == (ReasonCode.QUOTA, 4, 2, 2)
    assert [(holder.queue, holder.gpus) for holder in reason.holders] == [("q", 4)]
    assert "starts if queue q had 2 GPUs more" in why.hints


def test_a_model_can_have_a_quota_of_its_own():
    cluster = Cluster(
        a_host("n0"), a_host("n1", model="a100"), a_queue("q", quotas={"gpu/h100": a_queue("x", gpu=(2,)).spec.quotas["gpu"]})
    )
    job = cluster.submit(4, queue="q", models=("h100", "a100"))
    cluster.cycle()
    assert cluster.nodes_of(job) == ("n1",)


def test_more_than_a_queue_can_ever_have_is_told_as_never():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(2,)))
    job = cluster.submit(4, queue="q")
    cluster.cycle()
    assert cluster.why(job).reasons[0].code == ReasonCode.QUOTA_NEVER


def test_what_a_quota_refuses_at_one_size_it_may_still_grant_at_a_smaller():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(3,)))
    jobs = [cluster.submit(gpus, queue="q") for gpus in (4, 3, 1)]
    cluster.cycle()
    assert [cluster.gpus_of(job) for job in jobs] == [0, 3, 0]


def test_a_range_of_nodes_is_cut_to_what_the_quota_allows():
    cluster = Cluster(*(a_host(f"n{i}") for i in range(4)), a_queue("q", gpu=(24,)))
    job = cluster.submit(8, nodes=(2, 4), queue="q")
    cluster.cycle()
    assert cluster.gpus_of(job) == 24


def test_a_job_in_a_queue_that_does_not_exist_waits_until_it_does():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1, queue="late")
    cluster.cycle()
    assert cluster.why(job).reasons[0].code == ReasonCode.UNKNOWN_QUEUE
    cluster.put(a_queue("late"))
    cluster.cycle()
    assert cluster.gpus_of(job) == 1


def test_a_closed_queue_takes_jobs_and_starts_none_nor_do_those_below_it():
    cluster = Cluster(a_host("n0"), a_queue("top", closed=True), a_queue("q", "top"))
    job = cluster.submit(1, queue="q")
    cluster.cycle()
    assert cluster.gpus_of(job) == 0
    assert cluster.why(job).reasons[0].code == ReasonCode.QUEUE_CLOSED


def test_a_plan_says_when_it_borrows():
    cluster = Cluster(a_host("n0"), *COHORT)
    inside, over = cluster.submit(4, queue="a"), cluster.submit(2, queue="a")
    plan = cluster.cycle()
    borrowed = {decision.job: decision.borrowed for decision in plan.decisions}
    assert borrowed == {inside: False, over: True}
