"""What `shoal why` says would start a job does start it: every hint of random worlds is carried out, and a cycle is run."""

from __future__ import annotations

import copy
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.base.units import parse_duration_ms
from shoal.model.job import Job
from shoal.model.node import NodeState
from shoal.model.queue import Quota
from shoal.model.values import CountRange
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue

asks = st.tuples(
    st.integers(1, 8), st.integers(1, 3), st.sampled_from(["a", "b"]), st.sampled_from([None, 60, 600, 3_600]), st.integers(0, 2)
)


def _world(nodes: int, closed: int, quota: int | None, running: list, waiting: list, reserve: str) -> Cluster:
    hosts = [a_host(f"n{at}") for at in range(nodes + closed)]
    queues = [a_queue("a", gpu=(quota, 0)) if quota is not None else a_queue("a"), a_queue("b")]
    cluster = Cluster(*hosts, *queues, policy=Policy(reserve=reserve, preempt=False))
    for asked in (running, waiting):
        for gpus, count, queue, limit_s, priority in asked:
            limit = {} if limit_s is None else {"limit_s": limit_s}
            cluster.submit(gpus, nodes=count, queue=queue, priority=priority, **limit)
        cluster.cycle()
        for at in range(closed):
            cluster.close(f"n{nodes + at}")
    cluster.cycle()
    return cluster


def _addressed(cluster: Cluster, text: str) -> list[Job]:
    names = re.search(r"jobs? ([\d, ]+)", text)
    assert names is not None
    return [job for job in cluster.jobs.values() if job.address in names[1].strip().split(", ")]


def _carry_out(cluster: Cluster, job: str, text: str) -> None:
    """Does what a hint says."""
    spec = cluster.jobs[job].spec
    if match := re.search(r"queue (\w+) had ([\d.]+) (\S+) more", text):
        queue = cluster.queues[match[1]]
        resource = "gpu" if match[3].startswith("GPU") else f"gpu/{match[3]}"
        quota = queue.spec.quotas.get(resource, Quota())
        more = replace(quota, nominal=quota.nominal + int(float(match[2]) * 1_000))
        cluster.put(replace(queue, spec=replace(queue.spec, quotas={**queue.spec.quotas, resource: more})))
    if " ended" in text:
        for other in _addressed(cluster, text):
            cluster.end(other.id)
    if "came back" in text:
        for node in re.findall(r"(n\d+) \(", text):
            cluster.change_node(node, state=NodeState.READY)
    if match := re.search(r"the gang were (\d+) node", text):
        count = int(match[1])
        cluster.change_job(job, spec=replace(spec, nodes=CountRange(count, count)))
    if match := re.search(r"it asked for (\d+) GPU", text):
        cluster.change_job(job, spec=replace(spec, gpus=replace(spec.gpus, count=int(match[1]))))
    if match := re.search(r"its time limit were (\S+) or less", text):
        cluster.change_job(job, time_limit_ms=parse_duration_ms(match[1]))


@settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.integers(0, 2),
    st.none() | st.integers(0, 16),
    st.lists(asks, min_size=1, max_size=5),
    st.lists(asks, min_size=1, max_size=4),
    st.sampled_from(["none", "easy", "conservative"]),
)
def test_every_change_that_is_said_to_start_a_job_starts_it(nodes, closed, quota, running, waiting, reserve):
    cluster = _world(nodes, closed, quota, running, waiting, reserve)
    before = cluster.board.contents()
    for job in sorted(job.id for job in cluster.jobs.values() if job.state == "QUEUED"):
        why = cluster.why(job)
        assert cluster.board.contents() == before
        for hint in why.hints:
            if hint.startswith("starts if "):
                trial = copy.deepcopy(cluster)
                _carry_out(trial, job, hint)
                trial.cycle()
                assert job in trial.running(), hint


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 2)), min_size=2, max_size=7), st.integers(1, 8), st.integers(1, 2))
def test_no_smaller_set_than_the_smallest_is_in_the_way(running: list[tuple[int, int]], gpus: int, nodes: int):
    cluster = Cluster(*[a_host(f"n{at}") for at in range(2)], policy=Policy(preempt=False))
    for count, over in running:
        cluster.submit(count, nodes=over)
    cluster.cycle()
    job = cluster.submit(gpus, nodes=nodes)
    cluster.cycle()
    if job in cluster.running():
        return
    why = cluster.why(job)
    assert why.blockers
    holding = [other for other in cluster.running() if other != job]
    for mask in range(1 << len(holding)):
        gone = [other for at, other in enumerate(holding) if mask >> at & 1]
        if len(gone) < len(why.blockers):
            trial = copy.deepcopy(cluster)
            for other in [j.id for j in trial.jobs.values() if j.state == "QUEUED" and j.id != job]:
                trial.end(other)
            for other in gone:
                trial.end(other)
            trial.cycle()
            assert not (why.blockers_smallest and job in trial.running()), "a smaller set would have done"
