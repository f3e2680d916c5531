"""
Six ways to get more than one's share (arithmetic, section 10), each played twice through the cycle: what it gains without the policy that
is against it, and that it gains nothing, or no more than is meant, with it.

    more queues            shares by owner: his queues under one parent
    many small jobs        GPUs of a user are limited, not his jobs
    padded asks            shares are of what is asked, not of jobs
    held and not used      what is held counts as used, for a while after it was given back too
    urgency for all        urgency is paid for out of a budget
    a burst after idling   what waiting earns has a bound
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.model.attempt import AllocationState
from shoal.model.job import JobState
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueLimits, QueueSpec
from shoal.planning.fairshare import QueueSplitting, queue_splitting
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, waits_of

HOUR = 3_600_000


def held_by(cluster: Cluster, owner: str) -> int:
    """GPUs that a user's jobs hold."""
    return sum(cluster.gpus_of(job.id) for job in cluster.jobs.values() if job.owner == owner)


def hosts(count: int) -> list[Node]:
    return [a_host(f"n{at:02}") for at in range(count)]


def test_more_queues_gain_nothing_where_shares_are_by_owner():
    """One of four owners opens a second queue: 40 % of the fleet in place of 25 %, unless his queues are under one parent."""

    def share_of_a(*queues: Queue) -> float:
        cluster = Cluster(*hosts(5), *queues)
        for _ in range(40):
            for queue in queues:
                if queue.id[0] in "abcd":
                    cluster.submit(1, queue=queue.id)
        cluster.settle()
        return (cluster.gpus_in("a1") + cluster.gpus_in("a2")) / 40

    others = [a_queue(name) for name in "bcd"]
    flat = share_of_a(a_queue("a1"), a_queue("a2"), *others)
    told = queue_splitting(QueueSplitting(owners=4, queues=2))
    assert flat == pytest.approx(told.value("share_split")) == pytest.approx(0.4)
    by_owner = share_of_a(a_queue("owner-a"), a_queue("a1", "owner-a"), a_queue("a2", "owner-a"), *others)
    assert by_owner == pytest.approx(told.value("share_honest")) == pytest.approx(0.25)


def one_queue(**limits: int) -> Queue:
    return Queue(id="default", spec=QueueSpec(limits=QueueLimits(**limits)))


def test_many_small_jobs_gain_nothing_where_a_users_gpus_are_limited():
    """32 jobs of one GPU in place of 4 of eight, submitted a moment before the others: all of the fleet, or half of it."""

    def held(*, limited: bool, split: bool) -> tuple[int, int]:
        cluster = Cluster(*hosts(2), one_queue(**({"gpus_per_user": 8} if limited else {})))
        for _ in range(32 if split else 4):
            cluster.submit(1 if split else 8, owner="mallory")
        for _ in range(4):
            cluster.submit(8, owner="bob")
        cluster.settle()
        return held_by(cluster, "mallory"), held_by(cluster, "bob")

    assert held(limited=False, split=True) == (16, 0)
    assert held(limited=True, split=True) == held(limited=True, split=False) == (8, 8)


def test_padded_asks_cost_their_owner_where_shares_are_of_what_is_asked():
    """Eight asked where five are used: 1.6 times the GPUs in a queue by turns; the same GPUs, and five eighths of the work, by shares."""

    def held(*, by_owner: bool) -> tuple[int, int]:
        queues = (a_queue("mallory"), a_queue("bob")) if by_owner else ()
        cluster = Cluster(a_host("n1", 40), a_host("n2", 40), *queues)
        for _ in range(16):
            cluster.submit(8, owner="mallory", queue="mallory" if by_owner else "default")
            cluster.submit(5, owner="bob", queue="bob" if by_owner else "default")
        cluster.settle()
        return held_by(cluster, "mallory"), held_by(cluster, "bob")

    padded, honest = held(by_owner=False)
    assert padded / honest == pytest.approx(queue_splitting(QueueSplitting(owners=2, queues=1, asked=8, used=5)).value("padding"))
    padded, honest = held(by_owner=True)
    assert abs(padded - honest) <= 8, "the same, within a job"
    assert padded * 5 / 8 <= 0.75 * honest, "and of that he uses five eighths"


def after_a_day(policy: Policy, *, held: str) -> Cluster:
    """One of two held the whole fleet for a day, used or not; then both have work for all of it."""
    cluster = Cluster(*hosts(2), a_queue("mallory"), a_queue("bob"), policy=policy)
    sleepers = [cluster.submit(8, queue=held) for _ in range(2)]
    cluster.settle()
    cluster.now_ms += 24 * HOUR
    for job in sleepers:
        members = (a for a in cluster.allocations.values() if a.job == job)
        released = (replace(member, state=AllocationState.RELEASED, released_ms=cluster.now_ms) for member in members)
        cluster.put(replace(cluster.jobs[job], state=JobState.SUCCEEDED, ended_ms=cluster.now_ms), *released)
    for _ in range(16):
        cluster.submit(1, queue="mallory")
        cluster.submit(1, queue="bob")
    cluster.settle()
    return cluster


def test_what_was_held_and_not_used_is_paid_for():
    """A day of sleepers costs nothing where only this moment counts; where shares look back, the other goes first."""
    now_only = after_a_day(Policy(preempt=False), held="mallory")
    assert (now_only.gpus_in("mallory"), now_only.gpus_in("bob")) == (8, 8)
    looking_back = after_a_day(Policy(preempt=False, fair_share="decayed", half_life_ms=24 * HOUR), held="mallory")
    assert looking_back.gpus_in("bob") >= 12
    assert looking_back.gpus_in("mallory") + looking_back.gpus_in("bob") == 16


def test_urgency_for_every_job_gains_no_more_than_its_budget():
    """All of one user's jobs at priority 10 pass everybody's; with a budget of 40 GPU-steps, four of his GPUs do."""

    def play(**limits: int) -> Cluster:
        cluster = Cluster(*hosts(2), one_queue(**limits))
        for _ in range(16):
            cluster.submit(1, owner="bob")
        for _ in range(16):
            cluster.submit(1, owner="mallory", priority=10)
        cluster.settle()
        return cluster

    free, paid = play(), play(priority_budget_per_user=40)
    assert (held_by(free, "mallory"), held_by(free, "bob")) == (16, 0)
    assert (held_by(paid, "mallory"), held_by(paid, "bob")) == (4, 12)
    waiting = next(job for job in paid.jobs.values() if job.owner == "mallory" and not paid.gpus_of(job.id))
    (reason, *_) = paid.why(waiting.id).reasons
    assert (reason.code, reason.capacity, reason.asked, reason.free) == ("limit.user.priority-budget", 40, 10, 0)
    assert "(priority_budget_per_user); there are 40 GPU-steps in use, and it asks for 10: 1 GPUs x priority 10" in reason.message
    assert reason.hints[0] == f"costs nothing at priority 0: shoal update {waiting.address} --priority 0"


def test_a_job_that_cannot_be_stopped_is_paid_for_too():
    cluster = Cluster(*hosts(2), one_queue(priority_budget=40))
    for _ in range(8):
        cluster.submit(1, owner="mallory", preemptible=False)
    cluster.settle()
    assert held_by(cluster, "mallory") == 4, "ten steps for each GPU"
    waiting = next(job for job in cluster.jobs.values() if not cluster.gpus_of(job.id))
    assert "1 GPUs x 10 since it cannot be stopped" in cluster.why(waiting.id).reasons[0].message


def test_who_cannot_pay_holds_up_nobody_and_starts_when_somebody_urgent_has_ended():
    cluster = Cluster(*hosts(1), Queue(id="default", spec=QueueSpec(order="strict", limits=QueueLimits(priority_budget=8))))
    first = cluster.submit(4, priority=2)
    second = cluster.submit(2, priority=2)
    calm = cluster.submit(2)
    cluster.settle()
    assert set(cluster.running()) == {first, calm}
    assert second not in waits_of(cluster.plan())
    cluster.end(first)
    cluster.settle()
    assert set(cluster.running()) == {second, calm}


def test_a_budget_that_is_cut_stops_nobody_and_lets_only_the_calm_start():
    cluster = Cluster(*hosts(1), one_queue(priority_budget=8))
    urgent = cluster.submit(4, priority=2)
    cluster.settle()
    cluster.put(one_queue(priority_budget=1))
    calm, more = cluster.submit(1), cluster.submit(1, priority=1)
    cluster.settle()
    assert set(cluster.running()) == {urgent, calm}
    cluster.end(urgent)
    cluster.settle()
    assert set(cluster.running()) == {calm, more}


def test_what_waiting_earns_has_a_bound():
    """Idle for a day while the other worked: the whole fleet at once, or no more ahead than the credit of a quarter of it."""
    look_back = {"preempt": False, "fair_share": "decayed", "half_life_ms": 2 * HOUR}
    unbounded = after_a_day(Policy(**look_back), held="bob")
    assert (unbounded.gpus_in("mallory"), unbounded.gpus_in("bob")) == (16, 0)
    bounded = after_a_day(Policy(**look_back, credit_max=0.25), held="bob")
    assert (bounded.gpus_in("mallory"), bounded.gpus_in("bob")) == (10, 6)
    none = after_a_day(Policy(**look_back, credit_max=0.0), held="bob")
    assert (none.gpus_in("mallory"), none.gpus_in("bob")) == (8, 8)
