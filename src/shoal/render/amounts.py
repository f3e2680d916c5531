"""Amounts as people read them: GPUs out of thousandths, cores, bytes, and what a job asks for in a few words."""

from __future__ import annotations

from shoal.model.job import GpuAsk, JobSpec, Resources

_SIZES = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_NOTHING = Resources()


def bytes_text(size_bytes: int) -> str:
    """`1.5GiB`: three figures at most, binary units."""
    for size, unit in _SIZES:
        if size_bytes >= size:
            count = size_bytes / size
            return f"{count:.0f}{unit}" if count >= 100 or size_bytes % size == 0 else f"{count:.1f}{unit}"
    return f"{size_bytes}B"


def thousandths_text(amount: int) -> str:
    """`4000` as `4`, `250` as `0.25`."""
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount / 1000:g}"


def resource_text(resource: str, amount: int) -> str:
    """An amount of `gpu/h100`, `gpu`, `cpu` (thousandths) or `memory` (bytes), without the resource's name."""
    return bytes_text(amount) if resource == "memory" else thousandths_text(amount)


def gpus_text(ask: GpuAsk) -> str:
    """What one node gives: `8 h100`, `2 gpu`, `1 mig 1g.10gb`, `0.25 l40s`."""
    kind = "|".join(ask.model) or "gpu"
    if ask.mig:
        return f"{ask.count} {kind if ask.model else ''} mig {ask.mig}".replace("  ", " ")
    if ask.share is not None:
        return f"{thousandths_text(ask.share)} {kind}"
    if ask.share_memory is not None:
        return f"{bytes_text(ask.share_memory.bytes)} of {kind}"
    memory = f" {ask.memory.plain()}" if ask.memory is not None else ""
    return f"{ask.count} {kind}{memory}{' per task' if ask.per == 'task' else ''}"


def asks_text(spec: JobSpec) -> str:
    """What a job asks for in a few words: `2 x 8 h100`, `4 nodes`, `3 groups`, `2 cpu`."""
    if spec.groups:
        return " + ".join(f"{group.name} {_part_text(group)}" for group in spec.groups)
    if spec.any_of or spec.ordered:
        entries = spec.any_of or spec.ordered
        return (" | " if spec.any_of else " > ").join(_part_text(entry, spec) for entry in entries)
    return _part_text(spec)


def pool_text(spec: JobSpec) -> str:
    """The pool that a job names, or those of its alternatives; empty for any."""
    parts = spec.any_of or spec.ordered or spec.groups
    named = dict.fromkeys(part.pool or spec.pool for part in parts) if parts else {spec.pool: None}
    return " or ".join(pool for pool in named if pool)


def _part_text(part: Resources, whole: Resources = _NOTHING) -> str:
    nodes, gpus = part.nodes or whole.nodes, part.gpus or whole.gpus
    cpus, memory = part.cpus or whole.cpus, part.memory or whole.memory
    count = str(nodes.plain()) if nodes is not None else "1"
    if gpus is not None and (gpus.count or gpus.share is not None or gpus.share_memory is not None):
        each = gpus_text(gpus)
    elif cpus:
        each = f"{cpus} cpu"
    elif memory is not None:
        each = bytes_text(memory.bytes)
    else:
        return "1 node" if count == "1" else f"{count} nodes"
    return each if count == "1" else f"{count} x {each}"
