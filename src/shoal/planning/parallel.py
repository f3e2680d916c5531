"""
What splitting a model over GPUs costs in bandwidth: tensor parallel training and decoding, the bytes of each kind of parallelism, and
the placement that follows (tensor and expert groups inside an island, pipeline neighbours near, data parallel anywhere).

Bandwidths are bus bandwidths as nccl-tests prints them: a ring all-reduce of S bytes over n takes 2 (n-1)/n S / bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic, nothing_refused

BYTES_PER_VALUE: Final = 2
"""bf16."""


def ring_all_reduce(message: float, ranks: int, bus: float, latency: float = 0.0) -> float:
    """Seconds of a ring all-reduce of `message` bytes."""
    return 2 * (ranks - 1) / ranks * message / bus + 2 * (ranks - 1) * latency if ranks > 1 else 0.0


def hierarchical_all_reduce(message: float, nodes: int, per_node: int, bus: float, nic: float) -> float:
    """Seconds of reduce-scatter and all-gather inside nodes with an all-reduce over one NIC per GPU between."""
    inside = 2 * (per_node - 1) / per_node * message / bus
    return inside + 2 * (nodes - 1) / nodes * (message / per_node) / nic


def split_all_reduce(message: float, parts: Sequence[int], bus: float, nic: float, paths: float) -> float:
    """
    Seconds of an all-reduce over ranks that lie in islands of `parts` each, with `paths` network paths per island.

    Over less than two paths it is one ring at their speed; over more, the better of that and reduction inside first.
    """
    ranks = sum(parts)
    if len(parts) == 1:
        return ring_all_reduce(message, ranks, bus)
    ring = ring_all_reduce(message, ranks, nic)
    if paths < 2:
        return ring
    least = min(parts)
    return min(ring, hierarchical_all_reduce(message, len(parts), least, bus, nic * min(1.0, paths / least)))


class TensorParallel(msgspec.Struct, frozen=True, kw_only=True):
    """One training micro-batch of a dense transformer, tensor parallel over `tp` GPUs on one node or split in halves over two."""

    hidden: Annotated[int, Ask("1", "width of the model", least=1)]
    layers: Annotated[int, Ask("1", "layers", least=1)]
    tokens: Annotated[int, Ask("1", "tokens of a micro-batch", least=1)]
    tp: Annotated[int, Ask("GPU", "GPUs of the tensor group", least=2)] = 8
    nvlink_bus: Annotated[float, Ask("GB/s", "bus bandwidth inside the island", above=True)] = assumed("450 GB/s")
    nic: Annotated[float, Ask("GB/s", "one network path between nodes", above=True)] = assumed("50 GB/s")
    params: Annotated[float, Ask("1e9", "parameters", above=True)]
    mfu: Annotated[float, Ask("1", "share of peak that computing reaches", most=1, above=True)] = assumed("0.4")
    peak: Annotated[float, Ask("TFLOP/s", "dense peak of a GPU", above=True)] = assumed("989 TFLOP/s")
    full_recompute: Annotated[bool, Ask("bool", "activations are computed again in the backward pass")] = False
    heads: Annotated[int | None, Ask("1", "attention heads, to refuse a split that does not divide them", least=1)] = None


def relative_speed(x: TensorParallel, parts: Sequence[int], paths: float) -> float:
    """Speed of a tensor parallel group that lies in islands of `parts`, with so many network paths each, against one island: 0 to 1."""
    message = float(x.tokens * x.hidden * BYTES_PER_VALUE)
    count = (6 if x.full_recompute else 4) * x.layers
    compute = 6 * x.params * x.tokens / (x.tp * x.mfu * x.peak)
    whole, split = (compute + count * split_all_reduce(message, p, x.nvlink_bus, x.nic, paths) for p in ((x.tp,), parts))
    return whole / split


def tensor_parallel(x: TensorParallel) -> Answer:
    """Step time inside one island, over one network path, and over one path per GPU."""
    work = Work()
    message = work.put("message", float(x.tokens * x.hidden * BYTES_PER_VALUE), "MB", "tokens * hidden * 2", "one all-reduce, bf16")
    count = work.put("all_reduces", (6 if x.full_recompute else 4) * x.layers, "1", f"{6 if x.full_recompute else 4} * layers")
    compute = work.put("compute", 6 * x.params * x.tokens / (x.tp * x.mfu * x.peak), "ms", "6 * params * tokens / (tp * mfu * peak)")
    ring = "2 * (tp - 1) / tp * message"
    inside = work.put("allreduce_nvlink", ring_all_reduce(message, x.tp, x.nvlink_bus), "ms", f"{ring} / nvlink_bus", "inside one island")
    one_nic = work.put("allreduce_one_nic", ring_all_reduce(message, x.tp, x.nic), "ms", f"{ring} / nic", "two halves, one network path")
    half = x.tp // 2
    rails = work.put("allreduce_rails", hierarchical_all_reduce(message, 2, half, x.nvlink_bus, x.nic), "ms", words="a path per GPU",
                     formula="2 * (tp // 2 - 1) / (tp // 2) * message / nvlink_bus + message / (tp // 2) / nic")  # fmt: skip
    steps = {}
    for name, each in (("nvlink", inside), ("one_nic", one_nic), ("rails", rails)):
        steps[name] = work.put(f"step_{name}", compute + count * each, "ms", f"compute + all_reduces * allreduce_{name}")
    work.put("relative_speed_one_nic", steps["nvlink"] / steps["one_nic"], "1", "step_nvlink / step_one_nic")
    work.put("relative_speed_rails", steps["nvlink"] / steps["rails"], "1", "step_nvlink / step_rails")
    slack = 2 * steps["nvlink"] - compute
    work.put(
        "bus_for_half_speed", 2 * (x.tp - 1) / x.tp * message * count / slack, "GB/s", f"{ring} * all_reduces / (2 * step_nvlink - compute)"
    )
    work.note("bus bandwidth is not link bandwidth x 2 (N-1)/N: the algorithm's bandwidth is bus x N / (2 (N-1))")
    return work.done(
        "bf16; 4 all-reduces per layer and micro-batch (6 with full recompute), not overlapped; ring, or hierarchical with one NIC per GPU",
        "messages of megabytes, where latency is small; in-network reduction can exceed the ring's bus figure",
        "computing" if compute > count * inside else "the all-reduces",
        lead="step_nvlink",
    )


def validate_tensor_parallel(x: TensorParallel) -> tuple[Refusal, ...]:
    """The group splits heads and halves evenly; a parameter count without its billions is a slip."""
    divides = x.heads is None or x.heads % x.tp == 0
    return (
        unless(x.tp % 2 == 0, "odd_group", f"tp {x.tp} cannot be split in halves over two nodes", "tp")
        + unless(divides, "heads_not_divided", f"tp {x.tp} does not divide {x.heads} heads", "tp")
        + plausible_params(x.params)
    )


def plausible_params(params: float) -> tuple[Refusal, ...]:
    """Refuses `70` where 70 billion were meant."""
    return unless(params >= 1e6, "implausible", f"{params:g} parameters: write 70e9 or '70 billion'", "params")


class TensorParallelDecode(msgspec.Struct, frozen=True, kw_only=True):
    """One decode step, tensor parallel inside an island or split over the fabric."""

    hidden: Annotated[int, Ask("1", "width of the model", least=1)]
    layers: Annotated[int, Ask("1", "layers", least=1)]
    batch: Annotated[int, Ask("tokens", "sequences decoded together", least=1)]
    tp: Annotated[int, Ask("GPU", "GPUs of the tensor group", least=1)] = 8
    params: Annotated[float, Ask("1e9", "parameters", above=True)]
    hbm: Annotated[float, Ask("TB/s", "memory bandwidth of a GPU", above=True)] = assumed("3.35 TB/s")
    nvlink_bus: Annotated[float, Ask("GB/s", "bus bandwidth inside the island", above=True)] = assumed("450 GB/s")
    nvlink_latency: Annotated[float, Ask("us", "an all-reduce inside, without bytes")] = assumed("8 us")
    fabric_bus: Annotated[float, Ask("GB/s", "bus bandwidth across", above=True)] = assumed("50 GB/s")
    fabric_latency: Annotated[float, Ask("us", "an all-reduce across, without bytes")] = assumed("25 us")


def tensor_parallel_decode(x: TensorParallelDecode) -> Answer:
    """Time per output token inside an island and split over the fabric."""
    work = Work()
    read = work.put("weight_read", x.params * BYTES_PER_VALUE / x.tp / x.hbm, "ms", "params * 2 / tp / hbm", "weights read once a step")
    message = work.put("message", float(x.batch * x.hidden * BYTES_PER_VALUE), "kB", "batch * hidden * 2", "one all-reduce")
    ring = "2 * (tp - 1) / tp * message"
    inside = work.put(
        "allreduce_inside", x.nvlink_latency + ring_all_reduce(message, x.tp, x.nvlink_bus), "us", f"nvlink_latency + {ring} / nvlink_bus"
    )
    across = work.put(
        "allreduce_split", x.fabric_latency + ring_all_reduce(message, x.tp, x.fabric_bus), "us", f"fabric_latency + {ring} / fabric_bus"
    )
    tpot = work.put("tpot_inside", read + 2 * x.layers * inside, "ms", "weight_read + 2 * layers * allreduce_inside")
    split = work.put("tpot_split", read + 2 * x.layers * across, "ms", "weight_read + 2 * layers * allreduce_split")
    work.put("slowdown", split / tpot, "1", "tpot_split / tpot_inside")
    share = x.fabric_latency / across
    work.note(f"latency is {share:.0%} of an all-reduce across: more bandwidth does not help, fewer hops do", share > 0.5)
    parts = {"reading weights": read, "all-reduces": 2 * x.layers * inside}
    return work.done(
        "weight read + 2 all-reduces per layer, each a fixed latency plus the ring's bytes",
        "decoding bound by memory; short contexts, whose cache is small beside the weights",
        max(parts, key=lambda name: parts[name]),
        lead="tpot_inside",
    )


class ParallelismTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step of a dense model on tp x pp x dp GPUs."""

    params: Annotated[float, Ask("1e9", "parameters", above=True)]
    layers: Annotated[int, Ask("1", "layers", least=1)]
    hidden: Annotated[int, Ask("1", "width of the model", least=1)]
    tokens: Annotated[int, Ask("1", "tokens of a micro-batch", least=1)]
    tp: Annotated[int, Ask("1", "tensor parallel", least=1)]
    pp: Annotated[int, Ask("1", "pipeline parallel", least=1)]
    dp: Annotated[int, Ask("1", "data parallel", least=1)]
    micro_batches: Annotated[int, Ask("1", "micro-batches of a step", least=1)]
    nvlink_bus: Annotated[float, Ask("GB/s", "bandwidth inside the island", above=True)] = assumed("450 GB/s")
    nic: Annotated[float, Ask("GB/s", "network path of a GPU", above=True)] = assumed("50 GB/s")
    island: Annotated[int, Ask("GPU", "GPUs of an island", least=1)] = 8
    mfu: Annotated[float, Ask("1", "share of peak that computing reaches", most=1, above=True)] = assumed("0.4")
    peak: Annotated[float, Ask("TFLOP/s", "dense peak of a GPU", above=True)] = assumed("989 TFLOP/s")


def parallelism_traffic(x: ParallelismTraffic) -> Answer:
    """Bytes that a GPU sends per optimizer step by kind of parallelism, the bubble, and the step they make."""
    work = Work()
    work.put("gpus", x.tp * x.pp * x.dp, "GPU", "tp * pp * dp")
    message = float(x.tokens * x.hidden * BYTES_PER_VALUE)
    work.put("message", message, "MB", "tokens * hidden * 2")
    tp = work.put("tp_bytes", 2 * (x.tp - 1) / x.tp * message * 4 * (x.layers / x.pp) * x.micro_batches, "GB", words="tensor parallel",
                  formula="2 * (tp - 1) / tp * message * 4 * layers / pp * micro_batches")  # fmt: skip
    hops = 2 if x.pp > 1 else 0
    pp = work.put(
        "pp_bytes", hops * message * x.micro_batches / x.tp, "GB", f"{hops} * message * micro_batches / tp", "pipeline, scattered over tp"
    )
    work.put(
        "pp_bytes_unscattered", hops * message * x.micro_batches, "GB", f"{hops} * message * micro_batches", "pipeline without scatter"
    )
    shard = x.params * BYTES_PER_VALUE / (x.tp * x.pp)
    dp = work.put("dp_bytes", 2 * (x.dp - 1) / x.dp * shard, "GB", "2 * (dp - 1) / dp * params * 2 / (tp * pp)", "gradients of a shard")
    bubble = work.put("bubble", (x.pp - 1) / (x.micro_batches + x.pp - 1), "1", "(pp - 1) / (micro_batches + pp - 1)")
    bus = x.nvlink_bus if x.tp <= x.island else x.nic
    name = "nvlink_bus" if x.tp <= x.island else "nic"
    flops = 6 * x.params * x.tokens * x.micro_batches / (x.tp * x.pp * x.mfu * x.peak)
    work.put("compute", flops, "s", "6 * params * tokens * micro_batches / (tp * pp * mfu * peak)", "of one replica's share")
    busy = flops + tp / bus + pp / x.nic
    work.put(
        "step", busy / (1 - bubble) + dp / x.nic, "s", f"(compute + tp_bytes / {name} + pp_bytes / nic) / (1 - bubble) + dp_bytes / nic"
    )
    work.table("links", ("kind", "sends [GB]", "inside the island [s]", "over the network [s]"),
               [(kind, size / 1e9, size / x.nvlink_bus, size / x.nic) for kind, size in (("tp", tp), ("pp", pp), ("dp", dp))])  # fmt: skip
    work.note("place: tp inside one island (required), pp between neighbours, dp anywhere and overlapped with the backward pass")
    work.note(f"tp {x.tp} is larger than an island of {x.island}: its all-reduces go over the network", x.tp > x.island)
    sizes = {"tensor parallel": tp / bus, "pipeline": pp / x.nic, "data parallel": dp / x.nic}
    return work.done(
        "bf16; TP: 4 ring all-reduces per layer and micro-batch; PP: an activation and a gradient per micro-batch; DP: ring all-reduce",
        "dense model, even stages, gradients in bf16; nothing overlapped in `step`",
        max(sizes, key=lambda kind: sizes[kind]),
        lead="tp_bytes",
    )


def validate_traffic(x: ParallelismTraffic) -> tuple[Refusal, ...]:
    """Stages hold whole layers."""
    even = unless(x.layers % x.pp == 0, "uneven_stages", f"pp {x.pp} does not divide {x.layers} layers", "pp")
    return even + plausible_params(x.params)


class ExpertParallel(msgspec.Struct, frozen=True, kw_only=True):
    """The all-to-all of a mixture of experts, one micro-batch."""

    moe_layers: Annotated[int, Ask("1", "layers with experts", least=1)]
    top_k: Annotated[int, Ask("1", "experts that a token goes to", least=1)]
    hidden: Annotated[int, Ask("1", "width of the model", least=1)]
    tokens: Annotated[int, Ask("1", "tokens of a micro-batch on one GPU", least=1)]
    ep: Annotated[int, Ask("1", "GPUs that the experts are spread over", least=1)]
    nvlink_bus: Annotated[float, Ask("GB/s", "bandwidth inside the island", above=True)] = assumed("450 GB/s")
    nic: Annotated[float, Ask("GB/s", "network path of a GPU", above=True)] = assumed("50 GB/s")


def expert_parallel(x: ExpertParallel) -> Answer:
    """Bytes that a GPU sends for dispatch and combine, forward and backward, and how long that takes inside and across."""
    work = Work()
    away = "4 * moe_layers * tokens * top_k * hidden * 2 * (ep - 1) / ep"
    size = 4 * x.moe_layers * x.tokens * x.top_k * x.hidden * BYTES_PER_VALUE * (x.ep - 1) / x.ep
    work.put("ep_bytes", size, "GB", away, "dispatch and combine, forward and backward")
    work.put("inside", size / x.nvlink_bus, "s", "ep_bytes / nvlink_bus")
    work.put("across", size / x.nic, "s", "ep_bytes / nic")
    return work.done(
        "bf16; four all-to-alls per layer; a token's copies go to `top_k` experts spread evenly",
        "even load of experts; sending one copy per node instead of one per expert reduces it",
        "the fabric" if x.ep > 8 else "the island",
    )


TENSOR_PARALLEL: Final = Topic(TensorParallel, tensor_parallel, "nvlink_bus", validate_tensor_parallel, ("step_one_nic", "step_rails"))
TENSOR_PARALLEL_DECODE: Final = Topic(TensorParallelDecode, tensor_parallel_decode, "batch", lambda x: plausible_params(x.params))
PARALLELISM_TRAFFIC: Final = Topic(ParallelismTraffic, parallelism_traffic, "micro_batches", validate_traffic)
EXPERT_PARALLEL: Final = Topic(ExpertParallel, expert_parallel, "ep", nothing_refused)
