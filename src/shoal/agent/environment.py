"""
What a task finds in its environment: a pure function from the allocation to variables. Called by `runtimes.host`.

All families at once, so that a script from any of these worlds starts without change: plain torch (`RANK`, `MASTER_ADDR`), torchrun
(`PET_*`), JAX, Slurm's names with Slurm's meanings, MPI's hostfile, and Shoal's own. Order of force: the machine's basics, the
families, the job's `env`, and last `SHOAL_*`, which nobody may set. The table of all names is `docs/reference/environment.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shoal.agent.devices import instance_key
from shoal.agent.hosts import pack_hosts, tasks_per_node
from shoal.model.attempt import TaskPlace
from shoal.model.command import Member, Prepare
from shoal.model.mesh import coordinates, mesh_text

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the gang meets: known at Commit. `members` carry addresses."""

    address: str
    port: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Directories and files made for the allocation on this node."""

    work: str
    scratch: str
    hostfile: str
    secrets: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """Who runs it. `inherited` is what an agent that serves its own user passes on (PATH, locale, an active environment)."""

    name: str
    home: str
    shell: str
    inherited: dict[str, str]


def task_environment(
    order: Prepare, task: TaskPlace, meeting: Meeting, places: Places, login: Login, seen: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Everything that one task is started with. `seen` has the UUIDs of its MIG instances, by `instance_key`."""
    groups = {group.name: group.env for group in order.spec.groups}
    env = base_environment(places, login)
    env |= _torch(order, task, meeting)
    env |= _torchrun(order, task, meeting)
    env |= _jax(order, task, meeting)
    env |= _slurm(order, task, meeting)
    env |= _mpi(places)
    env |= _devices(task, seen)
    env |= order.spec.env
    env |= groups.get(order.claim.group, {})
    return env | _limits(task) | _shoal(order, task, meeting, places) | _share(task)


def setup_environment(
    order: Prepare, meeting: Meeting, places: Places, login: Login, seen: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """As the node's first task would find it, with all the node's devices: the setup script runs once per node."""
    first = order.claim.tasks[0] if order.claim.tasks else TaskPlace(rank=0, local_rank=0)
    whole = TaskPlace(rank=first.rank, local_rank=0, devices=order.claim.devices, parts=order.claim.parts)
    return task_environment(order, whole, meeting, places, login, seen)


def base_environment(places: Places, login: Login) -> dict[str, str]:
    """What every program expects: who, where, which programs. Temporary files go where they are removed with the job."""
    return {
        "PATH": DEFAULT_PATH,
        "LANG": "C.UTF-8",
        **login.inherited,
        "HOME": login.home or places.scratch,
        "USER": login.name,
        "LOGNAME": login.name,
        "SHELL": login.shell,
        "PWD": places.work,
        "TMPDIR": places.scratch,
    }


def checkpoint_file(scratch: str) -> str:
    """The file that a job touches when it has saved its work: it needs nothing but `touch` for that."""
    return f"{scratch}/.checkpoint"


def rendezvous_id(order: Prepare) -> str:
    """New for each attempt: what is left of an earlier one cannot meet the new one."""
    return f"shoal-{order.claim.job_number}-{order.attempt}"


def _gpus_of(task: TaskPlace) -> int:
    """What a task sees as GPUs: whole ones, instances, and each shared GPU once."""
    return len(task.devices) + len({(part.device, part.start) for part in task.parts})


def _torch(order: Prepare, task: TaskPlace, meeting: Meeting) -> dict[str, str]:
    return {
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "RANK": str(task.rank),
        "LOCAL_RANK": str(task.local_rank),
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_WORLD_SIZE": str(len(order.claim.tasks)),
        "NODE_RANK": str(order.claim.node_rank),
        "GROUP_RANK": str(order.claim.node_rank),
        "NNODES": str(len(meeting.members)),
        "NPROC_PER_NODE": str(_gpus_of(task) or 1),
    }


def _torchrun(order: Prepare, task: TaskPlace, meeting: Meeting) -> dict[str, str]:
    """torchrun reads each of its options from PET_<OPTION>; it then starts a worker per GPU of its task."""
    nodes, rendezvous = str(len(meeting.members)), {}
    if order.spec.elastic is not None and order.spec.elastic.how == "in_place" and order.spec.nodes is not None:
        nodes = f"{order.spec.nodes.low}:{order.spec.nodes.high}"  # Its static rendezvous takes no range.
        rendezvous = {"PET_RDZV_BACKEND": "c10d"}
    return {
        **rendezvous,
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": str(_gpus_of(task) or 1),
        "PET_NODE_RANK": str(order.claim.node_rank),
        "PET_MASTER_ADDR": meeting.address,
        "PET_MASTER_PORT": str(meeting.port),
        "PET_RDZV_ID": rendezvous_id(order),
        "PET_RDZV_ENDPOINT": f"{meeting.address}:{meeting.port}",
    }


def _jax(order: Prepare, task: TaskPlace, meeting: Meeting) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{meeting.address}:{meeting.port}",
        "JAX_COORDINATOR_PORT": str(meeting.port),
        "JAX_NUM_PROCESSES": str(order.world_size),
        "JAX_PROCESS_ID": str(task.rank),
    }


def _slurm(order: Prepare, task: TaskPlace, meeting: Meeting) -> dict[str, str]:
    claim = order.claim
    nodes = pack_hosts(tuple(member.node for member in meeting.members))
    env = {
        "SLURM_JOB_ID": str(claim.job_number),
        "SLURM_JOBID": str(claim.job_number),
        "SLURM_JOB_NAME": order.spec.name,
        "SLURM_JOB_PARTITION": claim.queue,
        "SLURM_NNODES": str(len(meeting.members)),
        "SLURM_JOB_NUM_NODES": str(len(meeting.members)),
        "SLURM_NODEID": str(claim.node_rank),
        "SLURM_PROCID": str(task.rank),
        "SLURM_LOCALID": str(task.local_rank),
        "SLURM_NTASKS": str(order.world_size),
        "SLURM_NPROCS": str(order.world_size),
        "SLURM_NTASKS_PER_NODE": str(len(claim.tasks)),
        "SLURM_TASKS_PER_NODE": tasks_per_node(meeting.members),
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_STEP_NODELIST": nodes,
        "SLURMD_NODENAME": claim.node,
        "SLURM_RESTART_COUNT": str(order.restarts),
        "SLURM_GPUS_ON_NODE": str(len(claim.devices) + len(claim.parts)),
    }
    if claim.cpu_milli:
        env["SLURM_CPUS_ON_NODE"] = str(max(1, claim.cpu_milli // 1000))
    if order.array_index is not None:
        array, _, _ = order.address.partition("_")
        env |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": str(order.array_index)}
        env["SLURM_ARRAY_TASK_COUNT"] = str(order.array_count or 1)
    return env


def _mpi(places: Places) -> dict[str, str]:
    """Open MPI would see Slurm's names and try to start its daemons by srun, which is not there."""
    return {"OMPI_MCA_orte_default_hostfile": places.hostfile, "OMPI_MCA_plm": "^slurm", "OMPI_MCA_ras": "^slurm"}


def _devices(task: TaskPlace, seen: Mapping[str, str]) -> dict[str, str]:
    """By UUID, which means the same in and out of containers. Without GPUs the variable is empty: none is visible."""
    parts = (seen.get(instance_key(part), part.device) if part.mode == "mig" else part.device for part in task.parts)
    uuids = ",".join(dict.fromkeys((*task.devices, *parts)))
    return {"CUDA_VISIBLE_DEVICES": uuids, "NVIDIA_VISIBLE_DEVICES": uuids or "void"}


def _limits(task: TaskPlace) -> dict[str, str]:
    """
    What the MPS server holds a task's share to. The shared GPU is the only one that the task sees, so it is number 0.

    The threads are limited where the job asked for thousandths; where it asked for memory alone it may use what others leave.
    """
    shares = [part for part in task.parts if part.mode == "mps"]
    if not shares:
        return {}
    env = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={sum(part.memory_bytes for part in shares) >> 20}M"}
    if all(part.capped for part in shares):
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{min(1_000, sum(part.thousandths for part in shares)) / 10:g}"
    return env


def _share(task: TaskPlace) -> dict[str, str]:
    """What part of a GPU the task has, for programs that divide memory themselves: of its first part, where it has several."""
    if not task.parts:
        return {}
    part = task.parts[0]
    env: dict[str, str] = {"SHOAL_GPU_SHARE_MODE": part.mode}
    if part.mode == "mig":
        env |= {"SHOAL_GPU_SHARE_PROFILE": part.profile}
    else:
        env |= {"SHOAL_GPU_SHARE": str(part.thousandths)}
    return env | ({"SHOAL_GPU_SHARE_MEMORY_BYTES": str(part.memory_bytes)} if part.memory_bytes else {})


def _shoal(order: Prepare, task: TaskPlace, meeting: Meeting, places: Places) -> dict[str, str]:
    claim = order.claim
    env = {
        "SHOAL_ALLOCATION": claim.id,
        "SHOAL_JOB_ID": order.job,
        "SHOAL_JOB_NUMBER": str(claim.job_number),
        "SHOAL_JOB_ADDRESS": order.address,
        "SHOAL_ATTEMPT": str(order.attempt),
        "SHOAL_PROJECT": claim.project,
        "SHOAL_QUEUE": claim.queue,
        "SHOAL_NODE": claim.node,
        "SHOAL_GROUP": claim.group,
        "SHOAL_RANK": str(task.rank),
        "SHOAL_WORLD_SIZE": str(order.world_size),
        "SHOAL_HOSTS": ",".join(member.address or member.node for member in meeting.members),
        "SHOAL_HOSTFILE": places.hostfile,
        "SHOAL_SCRATCH": places.scratch,
        "SHOAL_CHECKPOINT": checkpoint_file(places.scratch),
        "SHOAL_RESTART_COUNT": str(order.restarts),
        "SHOAL_SECRETS": places.secrets,
        "SHOAL_RENDEZVOUS_ID": rendezvous_id(order),
        "SHOAL_PYTHON": sys.executable,  # The agent's own: a Python with NumPy for a first job on a bare machine.
    }
    env |= _mesh(order, task)
    if order.spec.elastic is not None and order.spec.nodes is not None:
        env["SHOAL_ELASTIC"] = f"{order.spec.nodes.low}:{order.spec.nodes.high}"
    if order.array_index is not None:
        env["SHOAL_ARRAY_INDEX"] = str(order.array_index)
    return env


def _mesh(order: Prepare, task: TaskPlace) -> dict[str, str]:
    """
    The place on each parallel axis of the task's first GPU, which is its only one where every GPU has a task.

    GPUs are counted as `RANK` counts them where each has a process: a task of several starts one each (torchrun does), and the n-th
    of them stands n further along the axes, tp first.
    """
    mesh = order.spec.topology.mesh if order.spec.topology is not None else {}
    if not mesh:
        return {}
    first = task.rank * max(1, _gpus_of(task))
    at = coordinates(mesh, first)
    return {
        "SHOAL_MESH": mesh_text(mesh),
        "SHOAL_MESH_GPU": str(first),
        "SHOAL_TP_RANK": str(at["tp"]),
        "SHOAL_EP_RANK": str(at["ep"]),
        "SHOAL_PP_RANK": str(at["pp"]),
        "SHOAL_DP_RANK": str(at["dp"]),
    }
