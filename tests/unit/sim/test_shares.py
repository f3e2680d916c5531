"""Traces whose jobs ask for less than a GPU: they share one, and figures count what they have of it."""

from __future__ import annotations

import pytest

from shoal.formats.partition import partition_of
from shoal.formats.workload import GIB, NodeKind, TraceJob, ask_of, node_of, share_of
from shoal.model.job import GpuAsk, JobSpec
from shoal.model.part import Partition
from shoal.sim.metrics import Metrics, metrics_of
from shoal.sim.replay import Course, Replay
from shoal.sim.simulate import Setting, Simulation, read_fleet, read_trace, simulate

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
half,1000,1024,1,500,,LS,Running,0,100,0
third,1000,1024,1,300,,LS,Running,0,100,0
whole,1000,1024,1,1000,,LS,Running,10,60,10
tenth,1000,1024,1,200,,LS,Running,20,100,20
"""
TABLE = "submit_time,duration,num_gpus,user\n0,100,0.5,ada\n0,100,0.5,ada\n0,100,1.5,ada\n0,50,0,ada\n"


def figures(simulation: Simulation) -> Metrics:
    return simulation.runs[0].metrics


def test_pods_with_thousandths_share_one_gpu_and_are_counted_by_them() -> None:
    workload = read_trace(PODS.splitlines(), "pods.csv", 2)
    simulation = simulate(workload, "pods.csv", Setting(nodes=read_fleet("1x2"), check=True))
    metrics = figures(simulation)
    assert metrics.wait_s.most == 0  # 500 + 300 + 200 on one GPU, the whole one beside it
    held = 100 * 0.5 + 100 * 0.3 + 80 * 0.2 + 50
    assert metrics.allocation == metrics.utilisation == pytest.approx(held / 200, abs=1e-6)
    # Of the shared GPU 0.2 is free for 20 s, of the node 0.2 more or less with the other GPU: 1.2, 0.2 and 1 for 10, 10, 0 and 40 s.
    assert metrics.broken == pytest.approx(20 * 0.2 / (200 - held), abs=1e-6)
    assert metrics.fragmentation == pytest.approx(1.0)
    assert metrics.gpus_held_most == 2.0
    assert [(one.gpus, one.jobs) for one in metrics.by_size] == [("part", 3), ("1", 1)]
    assert any("3 jobs ask for a share of a GPU" in note for note in simulation.notes)


def test_gpus_that_are_not_given_in_parts_are_given_whole_to_who_asks_for_a_share() -> None:
    workload = read_trace(PODS.splitlines(), "pods.csv", 2)
    simulation = simulate(workload, "pods.csv", Setting(nodes=read_fleet("1x2"), parts=Partition(), check=True))
    assert figures(simulation).wait_s.most == 90.0
    assert figures(simulation).broken == 0
    assert any("they get a whole one" in note for note in simulation.notes)


def test_only_so_many_share_a_gpu_as_its_parts_say() -> None:
    workload = read_trace(PODS.splitlines(), "pods.csv", 2)
    simulation = simulate(workload, "pods.csv", Setting(nodes=read_fleet("1x2"), parts=partition_of("mps=2"), check=True))
    assert figures(simulation).wait_s.most == 40.0  # the third share waits for the whole GPU


def test_a_table_with_less_than_a_gpu_is_played_as_shares() -> None:
    workload = read_trace(TABLE.splitlines(), "jobs.csv", 8)
    assert [job.spec for job in workload.jobs] == [share_of(500), share_of(500), ask_of(2, 8), ask_of(0, 8)]
    assert workload.notes == ("1 jobs asked for GPUs and a part of one; rounded up to whole ones",)
    simulation = simulate(workload, "jobs.csv", Setting(nodes=read_fleet("1x3"), check=True))
    assert (figures(simulation).wait_s.most, figures(simulation).gpus_held_most) == (0.0, 3.0)


def test_instances_are_counted_by_their_charge() -> None:
    node = node_of("n0", NodeKind(gpus=1, model="a100", gpu_memory_bytes=80 * GIB, partition=partition_of("mig")))
    jobs = [
        TraceJob(submit_ms=0, run_ms=10_000, spec=JobSpec(run="true", gpus=GpuAsk(mig=name, count=1))) for name in ("4g.40gb", "2g.20gb")
    ]
    replay = Replay([node], (), jobs, Course(check=True))
    replay.run()
    metrics = metrics_of(replay.record, 1, {})
    assert metrics.allocation == pytest.approx(0.572 + 0.286, abs=1e-6)  # 4/7 and 2/7, each rounded up
    assert (metrics.fragmentation, metrics.broken) == (1.0, 1.0)


def test_counts_that_went_astray_are_found() -> None:
    replay = Replay([node_of("n0", NodeKind(gpus=2))], (), [TraceJob(submit_ms=0, run_ms=None, spec=ask_of(1, 2))], Course(check=True))
    replay.run(1_000)
    world = replay.world
    assert world.miscounted(world.snapshot()) == []
    world.gpu_milli_held += 1
    world.stranded_milli -= 2
    world.broken_milli += 3
    assert world.miscounted(world.snapshot()) == [
        "1000 thousandths of GPUs are held and 1001 are counted",
        "1000 thousandths of GPUs are stranded and 998 are counted",
        "0 thousandths of GPUs are broken and 3 are counted",
    ]
