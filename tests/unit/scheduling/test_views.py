"""Queues as people see them."""

from __future__ import annotations

from shoal.model.job import JobState
from shoal.scheduling.views import queue_views
from shoal.testing.clusters import Cluster, a_host, a_queue


def test_a_queue_shows_what_it_holds_may_start_borrows_and_what_waits_in_it():
    cluster = Cluster(a_host("n0"), a_host("n1"), a_queue("org"), a_queue("a", "org", gpu=(4,)), a_queue("b", "org", gpu=(6,)))
    for _ in range(3):
        cluster.submit(2, queue="a")
    cluster.cycle()
    cluster.submit(8, nodes=(1, 2), queue="a")
    cluster.submit(1, queue="a", state=JobState.HELD)
    cluster.submit(1, queue="a", not_before_ms=10_000)
    views = {view.name: view for view in queue_views(cluster.board)}
    a, org = views["a"], views["org"]
    assert (a.used["gpu"], a.available["gpu"], a.borrowed["gpu"]) == (6_000, 4_000, 2_000)
    assert (a.running_jobs, a.pending_jobs, a.pending_gpus) == (3, 3, 10)
    assert (org.used["gpu"], org.available["gpu"], org.running_jobs) == (6_000, 4_000, 0)
    assert (a.parent, a.version) == ("org", cluster.queues["a"].version)
    assert set(views) == {"a", "b", "org", "default"}


def test_an_arrays_parent_is_not_counted_as_waiting():
    cluster = Cluster(a_host("n0", 1))
    cluster.submit_array("0-2")
    (view,) = queue_views(cluster.board)
    assert (view.name, view.pending_jobs, view.pending_gpus) == ("default", 3, 3)
