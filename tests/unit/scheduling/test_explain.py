"""Why a job waits, with the numbers that decided and what would start it."""

from __future__ import annotations

import pytest

from shoal.base.errors import NotFound
from shoal.model.job import GpuAsk, JobState
from shoal.model.node import NodeState
from shoal.model.reason import ReasonCode
from shoal.model.values import Duration, MemoryRange
from shoal.scheduling.brief import brief_reasons
from shoal.scheduling.fit import could_ever_fit
from shoal.scheduling.policy import Policy
from shoal.testing.clusters import Cluster, a_host, a_queue, an_ask, waits_of


def reason_of(cluster: Cluster, job: str):
    return cluster.why(job).reasons[0]


def test_sixteen_free_over_four_nodes_is_fragmentation_and_says_what_would_free_it():
    """Platform case 39: 16 free over 4 nodes with 4 each, the job wants 2x8."""
    cluster = Cluster(*(a_host(f"n{i}") for i in range(4)))
    for _ in range(4):
        cluster.submit(5)
    cluster.cycle()
    small = [cluster.submit(3) for _ in range(4)]
    cluster.cycle()
    for job in [j for j in cluster.running() if j not in small]:
        cluster.end(job)
    ones = [cluster.submit(1) for _ in range(4)]
    cluster.cycle()
    for job in ones:
        cluster.end(job)
    wanted = cluster.submit(8, nodes=2)
    cluster.cycle()
    why = cluster.why(wanted)
    reason = why.reasons[0]
    assert reason.code == ReasonCode.FRAGMENTATION
    assert (reason.asked, reason.free, reason.nodes_asked, reason.nodes_fitting, reason.largest_free) == (16, 20, 2, 0, 5)
    assert all(f"n{i}" in reason.message for i in range(4))
    addresses = [cluster.jobs[job].address for job in small]
    assert any("ended" in hint and addresses[0] in hint and addresses[1] in hint for hint in why.hints)
    assert "starts if it asked for 5 GPUs or fewer on each node" in why.hints
    cluster.end(small[0])
    cluster.end(small[1])
    cluster.cycle()
    assert cluster.gpus_of(wanted) == 16, "what the hint named was enough"


def test_too_few_free_in_all_is_resources_with_holders():
    cluster = Cluster(a_host("n0"), a_queue("a"), a_queue("b"))
    cluster.submit(4, queue="a", project="red")
    cluster.submit(2, queue="b", project="blue")
    cluster.cycle()
    job = cluster.submit(4)
    cluster.cycle()
    reason = reason_of(cluster, job)
    assert (reason.code, reason.resource) == (ReasonCode.RESOURCES, "gpu/h100")
    assert (reason.asked, reason.free, reason.capacity) == (4, 2, 8)
    assert [(h.project, h.queue, h.jobs, h.gpus) for h in reason.holders] == [("red", "a", 1, 4), ("blue", "b", 1, 2)]


def test_a_gang_larger_than_the_fleet_waits_as_never_and_is_no_error():
    cluster = Cluster(a_host("n0"), a_host("n1"))
    job = cluster.submit(8, nodes=4)
    cluster.cycle()
    reason = reason_of(cluster, job)
    assert (reason.code, reason.nodes_asked, reason.nodes_fitting, reason.capacity) == (ReasonCode.FLEET_NEVER, 4, 2, 16)
    cluster.put(a_host("n2"), a_host("n3"))
    cluster.cycle()
    assert cluster.gpus_of(job) == 32


def test_more_gpus_on_one_node_than_any_node_has_is_never():
    """C27: two nodes of four, one member of eight; it holds no quota and another starts at once."""
    cluster = Cluster(a_host("n0", 4), a_host("n1", 4), a_queue("q", gpu=(8,)))
    big, behind = cluster.submit(8, queue="q"), cluster.submit(4, queue="q")
    cluster.cycle()
    assert reason_of(cluster, big).code == ReasonCode.FLEET_NEVER
    assert (cluster.gpus_of(big), cluster.gpus_of(behind)) == (0, 4)


def test_a_model_the_fleet_does_not_have_is_never_and_names_what_there_is():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1, models=("b200",))
    cluster.cycle()
    reason = reason_of(cluster, job)
    assert reason.code == ReasonCode.FLEET_NEVER
    assert "b200" in reason.message
    assert "h100" in reason.message


def test_gpus_with_too_little_memory_are_no_room_and_the_memory_is_named():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(GpuAsk(count=2, memory=MemoryRange(100 * 10**9, None)))
    cluster.cycle()
    reason = reason_of(cluster, job)
    assert reason.code == ReasonCode.FLEET_NEVER
    assert "needs 1 node with 2 h100 of at least 100GB; 0 h100 free with that memory in all" in reason.message


def test_a_begin_time_is_told_in_hours_not_in_seconds():
    cluster = Cluster(a_host("n0"))
    spec = an_ask(1, begin="+2h")
    job = cluster.submit(spec=spec, not_before_ms=cluster.now_ms + 7_190_001)
    assert reason_of(cluster, job).message == "begins in 1h59m51s, as asked"


def test_cordoned_nodes_are_no_never_and_coming_back_is_a_hint():
    cluster = Cluster(a_host("n0"), a_host("n1", state=NodeState.CORDONED))
    job = cluster.submit(8, nodes=2)
    cluster.cycle()
    why = cluster.why(job)
    assert why.reasons[0].code == ReasonCode.RESOURCES
    assert "starts if node n1 (CORDONED) came back" in why.hints
    assert "starts if the gang were 1 node or fewer" in why.hints


def test_free_gpus_without_cores_beside_them_are_told_as_cores():
    cluster = Cluster(a_host("n0", cpus=8))
    cluster.submit(1, cpus=6)
    cluster.cycle()
    job = cluster.submit(1, cpus=4)
    cluster.cycle()
    reason = reason_of(cluster, job)
    assert (reason.code, reason.resource, reason.asked, reason.free) == (ReasonCode.RESOURCES, "cpu", 4_000, 2_000)


def test_quota_and_room_are_both_told_when_both_are_short():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(8,)), a_queue("other"))
    cluster.submit(6, queue="q")
    cluster.submit(2, queue="other")
    cluster.cycle()
    job = cluster.submit(4, queue="q")
    cluster.cycle()
    assert [reason.code for reason in cluster.why(job).reasons] == [ReasonCode.QUOTA, ReasonCode.RESOURCES]


def test_a_job_that_need_not_end_is_not_named_among_those_that_must():
    cluster = Cluster(a_host("n0", cpus=40))
    wide, hungry = cluster.submit(5, cpus=2), cluster.submit(1, cpus=36)
    cluster.cycle()
    why = cluster.why(cluster.submit(1, cpus=20))
    assert f"starts if job {cluster.jobs[hungry].address} on n0 ended" in why.hints
    assert not any(f"job {cluster.jobs[wide].address} " in hint for hint in why.hints)


def test_why_names_the_position_who_holds_what_and_when_it_starts_by_whose_limits():
    """Platform case 38."""
    cluster = Cluster(a_host("n0"))
    cluster.now_ms = 0
    long, short = cluster.submit(5, project="red", limit_s=7_200), cluster.submit(3, project="blue", limit_s=3_600)
    cluster.cycle()
    jobs = [cluster.submit(gpus) for gpus in (1, 2, 1, 8)]
    why = cluster.why(jobs[3])
    assert (why.position, why.ahead) == (4, tuple(cluster.jobs[job].address for job in jobs[:3]))
    assert [(h.project, h.jobs, h.gpus) for h in why.reasons[0].holders] == [("red", 1, 5), ("blue", 1, 3)]
    alone = cluster.why(jobs[1])
    assert alone.earliest_start_ms == 3_600_000
    (basis,) = [reason for reason in alone.reasons if reason.code == ReasonCode.EXPECTED]
    assert basis.blockers == (cluster.jobs[short].address,)
    assert "1h" in basis.message
    assert "time limit" in basis.message
    assert cluster.jobs[long].address not in basis.blockers


def test_the_smallest_set_in_the_way_is_found_where_going_node_by_node_finds_two():
    cluster = Cluster(a_host("n0"), a_host("n1"), policy=Policy(preempt=False))
    gang = cluster.submit(2, nodes=2)
    cluster.cycle()
    single = [cluster.submit(6), cluster.submit(6)]
    cluster.cycle()
    assert sorted(cluster.nodes_of(job)[0] for job in single) == ["n0", "n1"]
    why = cluster.why(cluster.submit(2, nodes=2))
    assert (why.blockers, why.blockers_smallest) == ((cluster.jobs[gang].address,), True)


def test_a_set_that_is_only_enough_says_so():
    cluster = Cluster(*[a_host(f"n{i}", 64) for i in range(6)], policy=Policy(preempt=False))
    for _ in range(64 * 6):
        cluster.submit(1)
    cluster.cycle()
    why = cluster.why(cluster.submit(4, nodes=6))
    assert why.blockers_smallest is True, "no fewer than 24 jobs of one GPU give 24"
    mixed = Cluster(*[a_host(f"n{i}", 64) for i in range(4)], policy=Policy(preempt=False))
    for _ in range(4):
        for size in (*[2] * 16, *[1] * 32):
            mixed.submit(size)
        mixed.cycle()
    why = mixed.why(mixed.submit(5, nodes=4))
    assert len(why.blockers) == 12
    assert why.blockers_smallest is False
    assert any("(enough; perhaps fewer would do)" in hint for hint in why.hints)


def test_a_shorter_limit_that_lets_it_through_beside_kept_room_is_told():
    cluster = Cluster(a_host("n0"), a_host("n1"), policy=Policy(preempt=False))
    cluster.now_ms = 0
    cluster.submit(8, limit_s=2_400)
    cluster.cycle()
    cluster.submit(8, nodes=2, limit_s=60)
    job = cluster.submit(8, limit_s=7_200)
    cluster.cycle()
    why = cluster.why(job)
    assert "starts if its time limit were 40m or less (it has 2h)" in why.hints


def test_a_change_that_gives_room_to_those_before_it_is_told_as_that():
    cluster = Cluster(a_host("n0"), policy=Policy(preempt=False))
    running = cluster.submit(8)
    cluster.cycle()
    first, second = cluster.submit(8), cluster.submit(8)
    name = cluster.jobs[running].address
    assert f"starts if job {name} on n0 ended" in cluster.why(first).hints
    assert f"has room if job {name} on n0 ended, once those before it have started" in cluster.why(second).hints


def test_a_quota_that_would_not_be_enough_alone_is_told_with_the_jobs_that_must_end_too():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(4, 0)), a_queue("other"), policy=Policy(preempt=False))
    cluster.submit(4, queue="q")
    other = cluster.submit(4, queue="other")
    cluster.cycle()
    why = cluster.why(cluster.submit(2, queue="q"))
    assert f"starts if queue q had 2 GPUs more and job {cluster.jobs[other].address} on n0 ended" in why.hints


def test_where_kept_room_is_in_the_way_too_it_is_told_for_whom():
    cluster = Cluster(a_host("n0"), a_host("n1"), policy=Policy(preempt=False))
    one, two = cluster.submit(8, limit_s=600), cluster.submit(8, limit_s=1_200)
    cluster.cycle()
    first = cluster.submit(8, nodes=2, limit_s=3_600)
    second = cluster.submit(2, nodes=2, limit_s=3_600)
    names = {job: cluster.jobs[job].address for job in (one, two, first)}
    want = f"jobs {names[one]}, {names[two]} on n0, n1 ended (no fewer would do) and none were kept for job {names[first]}, before it"
    assert f"has room if {want}" in cluster.why(second).hints
    assert not any("none were kept" in hint for hint in cluster.why(first).hints)


def test_room_that_another_starts_in_first_is_told_as_his():
    cluster = Cluster(a_host("n0"), a_queue("a"), a_queue("b"))
    first, second = cluster.submit(8, queue="a"), cluster.submit(8, queue="b")
    assert reason_of(cluster, second).message == f"the room there is goes to job {cluster.jobs[first].address} first"


def test_a_node_that_must_come_back_is_told_with_the_jobs_that_must_end_too():
    cluster = Cluster(a_host("n0"), a_host("n1", state=NodeState.CORDONED))
    running = cluster.submit(8, priority=9)
    cluster.cycle()
    job = cluster.submit(8, nodes=2)
    why = cluster.why(job)
    assert f"starts if node n1 (CORDONED) came back and job {cluster.jobs[running].address} on n0 ended" in why.hints
    assert why.blockers == (cluster.jobs[running].address,)
    assert "no earliest start is known: the nodes that take work now could not hold it, were they empty" in why.hints
    cluster.change_node("n1", state=NodeState.READY)
    cluster.end(running)
    cluster.cycle()
    assert cluster.gpus_of(job) == 16, "what the hint named was enough"


def test_who_has_no_time_limit_is_named_where_no_start_is_known():
    cluster = Cluster(a_host("n0"), policy=Policy(preempt=False))
    cores, gpus = cluster.submit(0, cpus=1), cluster.submit(8)
    cluster.cycle()
    hints = cluster.why(cluster.submit(8)).hints
    assert f"no earliest start is known, since job {cluster.jobs[gpus].address} has no time limit" in " ".join(hints)
    assert f"job {cluster.jobs[cores].address}" not in " ".join(hints), "its end gives no GPU"


@pytest.mark.parametrize(
    ("tolerance", "why"),
    [("2h", "since its start is within the wait it tolerates (2h)"), (None, "since they would lose more than its wait costs")],
)
def test_who_would_rather_wait_than_displace_says_whom_he_spares(tolerance, why):
    cluster = Cluster(a_host("n0"))
    running = cluster.submit(8, limit_s=3_600)
    cluster.cycle()
    cluster.now_ms += 3_590_000
    job = cluster.submit(8, priority=5, limit_s=60, **({"tolerance": Duration.parse(tolerance)} if tolerance else {}))
    cluster.cycle()
    assert cluster.gpus_of(running) == 8
    assert f"it could have the room of job {cluster.jobs[running].address}, and waits {why}" in cluster.why(job).hints


def test_what_will_never_be_is_told_of_the_empty_fleet():
    """C27: the largest node has four, and how full it is does not matter."""
    cluster = Cluster(a_host("n0", 4), a_host("n1", 4))
    cluster.submit(3)
    cluster.cycle()
    job = cluster.submit(8)
    there = "with nothing running 2 nodes would have 8 h100, at most 4 h100 on one (n0), and no node could take a member"
    assert reason_of(cluster, job).message == f"more than the whole fleet has: needs 1 node with 8 h100; {there}"
    (told,) = brief_reasons(cluster.board, cluster.policy, [job], cluster.now_ms).values()
    assert told.message == reason_of(cluster, job).message


def test_lists_tell_a_begin_time():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(spec=an_ask(1, begin="+2h"), not_before_ms=cluster.now_ms + 7_200_000)
    assert brief_reasons(cluster.board, cluster.policy, [job], cluster.now_ms)[job].message == "begins in 2h, as asked"


def test_lists_say_why_their_jobs_wait_once_per_ask():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(4, 0)))
    cluster.submit(8)
    cluster.cycle()
    jobs = [cluster.submit(2), cluster.submit(2), cluster.submit(8, queue="q"), cluster.submit(1, state=JobState.HELD)]
    told = brief_reasons(cluster.board, cluster.policy, jobs, cluster.now_ms)
    assert [told[job].code for job in jobs[:3]] == [ReasonCode.RESOURCES, ReasonCode.RESOURCES, ReasonCode.QUOTA_NEVER]
    assert jobs[3] not in told


def test_a_running_job_says_where_it_is():
    cluster = Cluster(a_host("n0"), a_host("n1"))
    job = cluster.submit(8, nodes=2)
    cluster.cycle()
    why = cluster.why(job)
    assert "n0, n1" in why.headline
    assert "16 GPUs" in why.headline
    assert why.position is None


def test_a_reason_is_gone_when_the_job_runs():
    """C16."""
    cluster = Cluster(a_host("n0", 1))
    runner = cluster.submit(1)
    cluster.cycle()
    job = cluster.submit(1)
    cluster.cycle()
    assert reason_of(cluster, job).code == ReasonCode.RESOURCES
    cluster.end(runner)
    cluster.cycle()
    assert all(reason.code == ReasonCode.PREPARING for reason in cluster.why(job).reasons)


def test_a_job_that_has_ended_is_not_explained_here():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(1)
    cluster.cycle()
    cluster.end(job)
    with pytest.raises(NotFound):
        cluster.why(job)


def test_the_plan_carries_reasons_for_the_first_that_did_not_fit():
    cluster = Cluster(a_host("n0"))
    job = cluster.submit(8, nodes=3)
    wait = waits_of(cluster.cycle())[job]
    assert (wait.reason.nodes_asked, wait.reason.nodes_fitting) == (3, 1)


def test_explaining_leaves_the_board_as_it_was():
    cluster = Cluster(a_host("n0"), a_queue("q", gpu=(4,)))
    cluster.submit(4, queue="q")
    cluster.cycle()
    jobs = [cluster.submit(8, nodes=(1, 3), queue="q"), cluster.submit(2, queue="q"), cluster.submit(1, state=JobState.HELD)]
    before = cluster.board.contents()
    for job in jobs:
        cluster.why(job)
    assert cluster.board.contents() == before


@pytest.mark.parametrize(
    ("ask", "want"),
    [
        ({"gpus": 8, "nodes": 2}, None),
        ({"gpus": 8, "nodes": 3}, ReasonCode.FLEET_NEVER),
        ({"gpus": 8, "nodes": (2, 9)}, None),
        ({"gpus": 9}, ReasonCode.FLEET_NEVER),
        ({"gpus": 4, "queue": "q"}, None),
        ({"gpus": 5, "queue": "q"}, ReasonCode.QUOTA_NEVER),
        ({"gpus": 1, "queue": "nowhere"}, ReasonCode.UNKNOWN_QUEUE),
        ({"gpus": 1, "memory": 2_000}, ReasonCode.FLEET_NEVER),
    ],
)
def test_could_ever_fit_looks_at_the_fleet_when_empty(ask, want):
    cluster = Cluster(a_host("n0"), a_host("n1", state=NodeState.DRAINING), a_queue("q", gpu=(4,)))
    job = cluster.jobs[cluster.submit(**ask)]
    reason = could_ever_fit(cluster.nodes.values(), cluster.queues.values(), job)
    assert (reason and reason.code) == want
