"""Every question by its word: where it is, in which group, and what it asks. Modules are loaded when their question is asked."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

from shoal.base.errors import NotFound
from shoal.base.words import did_you_mean
from shoal.planning.topic import Topic


class Entry(NamedTuple):
    """The topic is `module`'s attribute of the word in capitals."""

    module: str
    group: str
    question: str


_START, _SERVE, _IMAGE, _GPU = "Cold starts", "Serving", "Images", "One GPU for many"
_ENGINE, _GANG, _SPLIT, _QUOTA = "Engines and nodes", "Gangs and fragments", "Models over GPUs", "Quotas and shares"
_SANDBOX, _SPOT, _POOL, _QUEUE = "Sandboxes", "Spot and checkpoints", "Shared pools", "Queues"
_RAY, _COMMIT, _PLANE = "Ray", "Commitments", "Control plane"

CATALOGUE: Final[dict[str, Entry]] = {
    "cold_start": Entry("coldstart", _START, "How long until a replica answers, and which link to delete first?"),
    "warm_pool": Entry("coldstart", _START, "How many warm slots for this rate of starts?"),
    "keep_alive": Entry("coldstart", _START, "How long to keep an instance after a request?"),
    "replicas": Entry("serving", _SERVE, "How many replicas for this rate and ramp?"),
    "false_ready": Entry("serving", _SERVE, "What does a false ready cost?"),
    "prefix_router": Entry("serving", _SERVE, "Is a prefix router worth it?"),
    "image_pull": Entry("image", _IMAGE, "Why does the pull take minutes, and what do cached layers save?"),
    "image_pull_fleet": Entry("image", _IMAGE, "How long until every node has the image?"),
    "cuda_compat": Entry("compat", _IMAGE, "Will this image start on that driver?"),
    "stranded": Entry("devices", _GPU, "Which GPUs can no pod ever use?"),
    "stranded_fraction": Entry("devices", _GPU, "What do services lose that need a part of a GPU?"),
    "mig": Entry("partition", _GPU, "What does a MIG cut give up, and which are there?"),
    "mig_fragmentation": Entry("partition", _GPU, "Does this profile still fit, and where?"),
    "gpu_sharing": Entry("partition", _GPU, "MIG, MPS, time slicing or whole GPUs?"),
    "hybrid": Entry("engine", _ENGINE, "What does a static split of training and serving cost?"),
    "engine_choice": Entry("engine", _ENGINE, "Slurm, Kubernetes or both?"),
    "bring_up": Entry("bringup", _ENGINE, "Nodes by hand or by an operator?"),
    "check_order": Entry("bringup", _ENGINE, "In which order to check a node without GPUs?"),
    "gang_start": Entry("engine", _GANG, "When does a gang start whose pods start one by one?"),
    "gang_deadlock": Entry("gang", _GANG, "Can these gangs lock each other out?"),
    "fgd": Entry("fragmentation", _GANG, "Where does a task fragment a node least?"),
    "fleet_fragments": Entry("fleet", _GANG, "What of the fleet's free GPUs can the tasks that come not use?"),
    "spread_fragmentation": Entry("fragmentation", _GANG, "How many whole GPUs stay free?"),
    "defragmentation": Entry("fragmentation", _GANG, "Is moving small pods worth it?"),
    "tensor_parallel": Entry("parallel", _SPLIT, "What does splitting a tensor group over nodes cost?"),
    "tensor_parallel_decode": Entry("parallel", _SPLIT, "The same for decoding?"),
    "parallelism_traffic": Entry("parallel", _SPLIT, "What does each kind of parallelism send?"),
    "expert_parallel": Entry("parallel", _SPLIT, "What does a mixture of experts send?"),
    "pooling": Entry("quota", _QUOTA, "What would pooling save?"),
    "pooling_queue": Entry("quota", _QUOTA, "The same for jobs that queue?"),
    "pooling_blocking": Entry("quota", _QUOTA, "The same for requests that are lost?"),
    "fair_share": Entry("fairshare", _QUOTA, "What share does each queue get now?"),
    "slurm_fairshare": Entry("fairshare", _QUOTA, "What is Slurm's fair-share factor?"),
    "dominant_share": Entry("fairshare", _QUOTA, "What do tenants get by dominant resource?"),
    "queue_splitting": Entry("fairshare", _QUOTA, "What does gaming the shares gain?"),
    "sandbox": Entry("sandbox", _SANDBOX, "How many hosts for so many sessions?"),
    "sandbox_tiers": Entry("sandbox", _SANDBOX, "How many hosts for a mix of tiers?"),
    "sandbox_overcommit": Entry("sandbox", _SANDBOX, "How many sessions on a host by their real use?"),
    "spot_breakeven": Entry("spot", _SPOT, "Does this job belong on spot?"),
    "checkpoint_interval": Entry("spot", _SPOT, "How often to checkpoint?"),
    "spot_gang": Entry("spot", _SPOT, "Does this gang belong on spot, and how large may it be?"),
    "spot_trace": Entry("availability", _SPOT, "How often are all nodes of a gang up, and what stops it?"),
    "spot_deadline": Entry("deadline", _SPOT, "Which policy meets a deadline at least cost?"),
    "reclaim": Entry("reclaim", _POOL, "How much headroom while GPUs are reclaimed?"),
    "floor_borrow": Entry("reclaim", _POOL, "What does a floor keep from being lent?"),
    "queue_scan": Entry("queueing", _QUEUE, "How long does a cycle take on a long queue?"),
    "queue_wait": Entry("queueing", _QUEUE, "How long do jobs wait?"),
    "drain": Entry("queueing", _QUEUE, "What does draining for a gang cost?"),
    "ageing": Entry("queueing", _QUEUE, "When does age bring a job to the front?"),
    "backfill": Entry("backfill", _QUEUE, "What does backfill gain on these jobs?"),
    "victim": Entry("backfill", _QUEUE, "Which jobs to stop for room?"),
    "ray_idle": Entry("rayidle", _RAY, "Which idle timeout for Ray's workers?"),
    "ray_empty_nodes": Entry("rayidle", _RAY, "How many nodes do actors leave whole?"),
    "ray_placement_group": Entry("rayidle", _RAY, "What does a stranded placement group hold?"),
    "committed": Entry("commitment", _COMMIT, "How much to commit?"),
    "committed_diurnal": Entry("commitment", _COMMIT, "The same for demand that swings with the day?"),
    "committed_decline": Entry("commitment", _COMMIT, "From which use does a commitment pay while prices fall?"),
    "capacity_screening": Entry("commitment", _COMMIT, "Committed, capacity block or on-demand?"),
    "capacity_ladder": Entry("commitment", _COMMIT, "Which supply for which level of a load curve?"),
    "duplicate_creates": Entry("creates", _PLANE, "What do retries without keys cost?"),
    "key_collision": Entry("creates", _PLANE, "How likely do two keys collide?"),
    "offset_paging": Entry("creates", _PLANE, "How many rows repeat in paging by offset?"),
    "cancel_latency": Entry("creates", _PLANE, "How long does a cancelled job hold its GPUs?"),
}


FROM_FLEET: Final = ("fleet_fragments",)
"""Questions whose nodes may come from a running Shoal."""


def topic_named(word: str) -> Topic:
    """The question called `word`. Raises NotFound."""
    name = word.replace("-", "_")
    if name not in CATALOGUE:
        raise NotFound(f"there is no planning topic {word!r}{did_you_mean(word, CATALOGUE) or '; `shoal plan list` shows them'}")
    topic = getattr(import_module(f"shoal.planning.{CATALOGUE[name].module}"), name.upper())
    assert isinstance(topic, Topic)
    return topic
