"""What a task finds in its environment: a table per family, and who wins where two say something."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from orders import GPUS, LOGIN, MEETING, PLACES, members, prepare

from shoal.agent.devices import instance_key
from shoal.agent.environment import Login, Meeting, Places, setup_environment, task_environment
from shoal.model.job import Elastic, GroupSpec, JobSpec, Topology
from shoal.model.part import DevicePart
from shoal.model.values import CountRange

GANG = prepare(nodes=2, node_rank=1, tasks=2, gpus=8, cpu_milli=16_000)
"""The second of two nodes with two tasks of four GPUs each; we look at its second task, rank 3."""
WANT_OF_RANK_3 = {
    "torch": {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "23456",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "NNODES": "2",
        "NPROC_PER_NODE": "4",
    },
    "torchrun": {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "23456",
        "PET_RDZV_ID": "shoal-12-1",
        "PET_RDZV_ENDPOINT": "10.0.0.1:23456",
    },
    "jax": {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:23456",
        "JAX_COORDINATOR_PORT": "23456",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
    },
    "slurm": {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NAME": "train",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": "1",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "SLURM_STEP_NODELIST": "gpu[01-02]",
        "SLURM_RESTART_COUNT": "0",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_CPUS_ON_NODE": "16",
    },
    "mpi": {"OMPI_MCA_orte_default_hostfile": "/h/hosts", "OMPI_MCA_plm": "^slurm"},
    "devices": {"CUDA_VISIBLE_DEVICES": ",".join(GPUS[4:8]), "NVIDIA_VISIBLE_DEVICES": ",".join(GPUS[4:8])},
    "shoal": {
        "SHOAL_JOB_NUMBER": "12",
        "SHOAL_JOB_ADDRESS": "12",
        "SHOAL_ATTEMPT": "1",
        "SHOAL_PROJECT": "default",
        "SHOAL_QUEUE": "research",
        "SHOAL_NODE": "gpu02",
        "SHOAL_RANK": "3",
        "SHOAL_WORLD_SIZE": "4",
        "SHOAL_HOSTS": "10.0.0.1,10.0.0.2",
        "SHOAL_HOSTFILE": "/h/hosts",
        "SHOAL_SCRATCH": "/job",
        "SHOAL_SECRETS": "/run/s",
        "SHOAL_RENDEZVOUS_ID": "shoal-12-1",
    },
    "basics": {"HOME": "/home/anna", "USER": "anna", "SHELL": "/bin/bash", "TMPDIR": "/job", "PWD": "/job/w"},
}


@pytest.mark.parametrize("family", sorted(WANT_OF_RANK_3))
def test_a_task_of_a_gang_finds_all_of(family: str) -> None:
    env = task_environment(GANG, GANG.claim.tasks[1], MEETING, PLACES, LOGIN)
    want = WANT_OF_RANK_3[family]
    assert {name: env.get(name) for name in want} == want


def test_a_task_without_gpus_sees_none_and_torchrun_starts_one_worker() -> None:
    order = prepare()
    env = task_environment(order, order.claim.tasks[0], Meeting("127.0.0.1", 1, members(1, 1)), PLACES, LOGIN)
    assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"], env["PET_NPROC_PER_NODE"]) == ("", "void", "1")
    assert not any(name.startswith(("SLURM_ARRAY", "SHOAL_ARRAY")) for name in env)


def test_an_array_element_finds_its_place() -> None:
    order = prepare(address="12_7", array_index=7, array_count=10)
    env = task_environment(order, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert (env["SLURM_ARRAY_JOB_ID"], env["SLURM_ARRAY_TASK_ID"], env["SLURM_ARRAY_TASK_COUNT"]) == ("12", "7", "10")
    assert env["SHOAL_ARRAY_INDEX"] == "7"


def test_every_process_of_a_mesh_finds_its_place_on_each_axis_beside_its_rank() -> None:
    spec = JobSpec(name="train", run="true", topology=Topology(mesh={"tp": 2, "pp": 2, "dp": 2}))
    order = prepare(spec, nodes=2, node_rank=1, tasks=4, gpus=4)
    envs = [task_environment(order, task, MEETING, PLACES, LOGIN) for task in order.claim.tasks]
    assert [(env["RANK"], env["LOCAL_RANK"], env["CUDA_VISIBLE_DEVICES"]) for env in envs] == [
        (str(4 + i), str(i), order.claim.devices[i]) for i in range(4)
    ]
    places = [tuple(env[f"SHOAL_{axis}_RANK"] for axis in ("TP", "EP", "PP", "DP")) for env in envs]
    assert places == [("0", "0", "0", "1"), ("1", "0", "0", "1"), ("0", "0", "1", "1"), ("1", "0", "1", "1")]
    assert {env["SHOAL_MESH"] for env in envs} == {"tp=2,pp=2,dp=2"}


def test_a_task_of_several_gpus_finds_the_place_of_its_first() -> None:
    spec = JobSpec(name="train", run="true", topology=Topology(mesh={"tp": 4, "dp": 2}))
    order = prepare(spec, nodes=2, node_rank=1, tasks=1, gpus=4)
    env = task_environment(order, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert (env["RANK"], env["SHOAL_MESH_GPU"], env["SHOAL_TP_RANK"], env["SHOAL_DP_RANK"]) == ("1", "4", "0", "1")


def test_a_job_without_a_mesh_has_no_axes() -> None:
    order = prepare()
    env = task_environment(order, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert not any("MESH" in name or name.endswith(("_TP_RANK", "_DP_RANK")) for name in env)


def test_a_gang_that_is_resized_in_place_tells_torchrun_its_range() -> None:
    spec = JobSpec(run="true", nodes=CountRange(2, 8), elastic=Elastic(how="in_place"))
    order = prepare(spec, nodes=2)
    env = task_environment(order, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert (env["PET_NNODES"], env["PET_RDZV_BACKEND"], env["SHOAL_ELASTIC"]) == ("2:8", "c10d", "2:8")
    by_restart = replace(order, spec=replace(spec, elastic=Elastic()))
    env = task_environment(by_restart, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert (env["PET_NNODES"], "PET_RDZV_BACKEND" in env) == ("2", False)


def test_an_attempt_after_the_first_says_so() -> None:
    order = replace(prepare(restarts=2), attempt=3)
    env = task_environment(order, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert (env["SLURM_RESTART_COUNT"], env["SHOAL_ATTEMPT"], env["SHOAL_RENDEZVOUS_ID"]) == ("2", "3", "shoal-12-3")


def test_the_job_overrides_the_families_its_group_overrides_the_job_and_nobody_overrides_shoal() -> None:
    spec = JobSpec(
        run="true",
        env={"MASTER_PORT": "1", "A": "job", "SHOAL_RANK": "99", "SHOAL_ALLOCATION": "other"},
        groups=(GroupSpec(name="head", env={"A": "head"}), GroupSpec(name="tail", env={"A": "tail"})),
    )
    order = prepare(spec, group="tail")
    env = task_environment(order, order.claim.tasks[0], MEETING, PLACES, LOGIN)
    assert (env["MASTER_PORT"], env["A"], env["SHOAL_RANK"], env["SHOAL_ALLOCATION"]) == ("1", "tail", "0", order.allocation)


def test_setup_sees_all_devices_of_the_node() -> None:
    assert setup_environment(GANG, MEETING, PLACES, LOGIN)["CUDA_VISIBLE_DEVICES"] == ",".join(GPUS)


def test_what_the_agent_passes_on_comes_before_the_job() -> None:
    login = Login("me", "", "/bin/sh", {"PATH": "/venv/bin:/bin", "LANG": "de_DE.UTF-8"})
    order = prepare(JobSpec(run="true", env={"LANG": "C"}))
    env = task_environment(order, order.claim.tasks[0], MEETING, Places("/w", "/s", "/h"), login)
    assert (env["PATH"], env["LANG"], env["HOME"], env["SHOAL_SECRETS"]) == ("/venv/bin:/bin", "C", "/s", "")


# --- parts of GPUs --------------------------------------------------------------------------------------------------------
def of_parts(*parts: DevicePart, tasks: int = 1, spec: JobSpec | None = None) -> list[dict[str, str]]:
    """What each task on the node finds; instances have the UUID MIG-<start>."""
    order = prepare(spec, tasks=tasks, parts=parts)
    seen = {instance_key(part): f"MIG-{part.start}" for part in parts if part.mode == "mig"}
    meeting = Meeting("127.0.0.1", 1, members(1, tasks))
    return [task_environment(order, task, meeting, PLACES, LOGIN, seen) for task in order.claim.tasks]


def test_a_task_sees_its_mig_instance_by_the_uuid_that_it_has_now() -> None:
    one, other = of_parts(
        DevicePart(device=GPUS[0], mode="mig", profile="1g.10gb", start=6, memory_bytes=9_984 << 20),
        DevicePart(device=GPUS[0], mode="mig", profile="1g.10gb", start=5),
        tasks=2,
    )
    assert (one["CUDA_VISIBLE_DEVICES"], other["NVIDIA_VISIBLE_DEVICES"]) == ("MIG-6", "MIG-5")
    assert (one["PET_NPROC_PER_NODE"], one["SLURM_GPUS_ON_NODE"]) == ("1", "2")
    shares = {name: value for name, value in one.items() if name.startswith(("SHOAL_GPU_SHARE", "CUDA_MPS"))}
    assert shares == {
        "SHOAL_GPU_SHARE_MODE": "mig",
        "SHOAL_GPU_SHARE_PROFILE": "1g.10gb",
        "SHOAL_GPU_SHARE_MEMORY_BYTES": str(9_984 << 20),
    }
    assert "SHOAL_GPU_SHARE_MEMORY_BYTES" not in other  # the driver's figure for it is not known


def test_a_share_under_mps_is_held_to_its_threads_and_memory_whatever_the_job_says() -> None:
    share = DevicePart(device=GPUS[3], mode="mps", thousandths=125, memory_bytes=10 << 30, capped=True)
    own = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}
    (env,) = of_parts(share, spec=JobSpec(run="true", env=own))
    assert env["CUDA_VISIBLE_DEVICES"] == GPUS[3]
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "12.5"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert (env["SHOAL_GPU_SHARE"], env["SHOAL_GPU_SHARE_MODE"], env["SHOAL_GPU_SHARE_MEMORY_BYTES"]) == ("125", "mps", str(10 << 30))


def test_a_share_of_memory_alone_has_no_limit_of_threads_and_a_time_slice_none_at_all() -> None:
    (env,) = of_parts(DevicePart(device=GPUS[0], mode="mps", thousandths=125, memory_bytes=10 << 30))
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in env
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
    (env,) = of_parts(DevicePart(device=GPUS[0], mode="time-slice", thousandths=500, memory_bytes=40 << 30, capped=True))
    assert not any(name.startswith("CUDA_MPS") for name in env)
    assert env["SHOAL_GPU_SHARE"] == "500"


def test_setup_sees_all_parts_of_the_node_and_who_has_none_hears_of_none() -> None:
    parts = tuple(DevicePart(device=GPUS[0], mode="mig", profile="1g.10gb", start=start) for start in (6, 5))
    order = prepare(tasks=2, parts=parts)
    seen = {instance_key(part): f"MIG-{part.start}" for part in parts}
    assert setup_environment(order, MEETING, PLACES, LOGIN, seen)["CUDA_VISIBLE_DEVICES"] == "MIG-6,MIG-5"
    env = task_environment(GANG, GANG.claim.tasks[1], MEETING, PLACES, LOGIN)
    assert not any(name.startswith(("SHOAL_GPU_SHARE", "CUDA_MPS")) for name in env)
