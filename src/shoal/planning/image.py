"""
Why an image takes minutes to pull, which layer decides, what cached layers save, and what a whole fleet costs the registry.

Layers start in manifest order with a few in flight; unpacking is one chain in the same order. What a cache hit saves follows the
critical path and not the share of bytes, so the answer comes from an event simulation rather than from a sum.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from shoal.planning.answer import Answer, Refusal, Work, unless
from shoal.planning.inputs import Ask, assumed
from shoal.planning.topic import Topic, nothing_refused

LAYERS_MAX: Final = 1_000
"""An image has at most 127 layers by the usual overlay limit; a list of artifacts somewhat more."""


class ImagePull(msgspec.Struct, frozen=True, kw_only=True):
    """One node that pulls one image."""

    layers_compressed: Annotated[tuple[float, ...], Ask("GB", "compressed size of each layer, in manifest order")]
    cached: Annotated[tuple[int, ...], Ask("index", "layers that the node has, counted from 0")] = ()
    max_concurrent: Annotated[int, Ask("1", "layers in flight at once", least=1)] = 3
    per_connection: Annotated[float, Ask("MB/s", "one connection", above=True)] = assumed("62.5 MB/s")
    nic: Annotated[float, Ask("GB/s", "network of the node", above=True)] = assumed("3.125 GB/s")
    unpack_rate_uncompressed: Annotated[float, Ask("MB/s", "uncompressed bytes unpacked; gzip about 250, zstd 1,000", above=True)] = (
        assumed("250 MB/s")
    )
    expansion: Annotated[float, Ask("1", "uncompressed over compressed size", above=True)] = assumed("2")


class LayerTimes(NamedTuple):
    """When a layer's download starts and ends, and when its unpacking starts and ends, in seconds."""

    size: float
    start: float
    fetched: float
    unpack: float
    ready: float


def pull_layers(
    sizes: tuple[float, ...], at_once: int, per_connection: float, nic: float, unpack_seconds_per_byte: float
) -> list[LayerTimes]:
    """
    The pull of layers in order, event by event.

    Every active connection has the same rate min(per_connection, nic / active); a layer that ends makes room for the next. Cost:
    layers x `at_once` steps.
    """
    starts, ends = [0.0] * len(sizes), [0.0] * len(sizes)
    left: dict[int, float] = {}
    now, following = 0.0, 0
    while left or following < len(sizes):
        while following < len(sizes) and len(left) < at_once:
            left[following], starts[following] = sizes[following], now
            following += 1
        rate = min(per_connection, nic / len(left))
        least = min(left.values())
        now += least / rate
        for layer in [layer for layer, size in left.items() if size <= least * (1 + 1e-12)]:
            del left[layer]
            ends[layer] = now
        left = {layer: size - least for layer, size in left.items()}
    times, ready = [], 0.0
    for size, start, fetched in zip(sizes, starts, ends, strict=True):
        begin = max(ready, fetched)
        ready = begin + size * unpack_seconds_per_byte
        times.append(LayerTimes(size, start, fetched, begin, ready))
    return times


def _pull(x: ImagePull, cached: frozenset[int]) -> list[LayerTimes]:
    sizes = tuple(size for at, size in enumerate(x.layers_compressed) if at not in cached)
    return pull_layers(sizes, x.max_concurrent, x.per_connection, x.nic, x.expansion / x.unpack_rate_uncompressed)


def image_pull(x: ImagePull) -> Answer:
    """Seconds until the image is on disk and until it is unpacked, with every layer's bar."""
    work = Work()
    cached = frozenset(x.cached)
    whole, times = _pull(x, frozenset()), _pull(x, cached)
    sizes = tuple(one.size for one in times)
    total, all_bytes = sum(sizes), sum(x.layers_compressed)
    download = max((one.fetched for one in times), default=0.0)
    ready = times[-1].ready if times else 0.0
    work.put("to_fetch", total, "GB", "" if cached else "sum(layers_compressed)", "bytes that the node lacks")
    work.find("download", download, "s", f"event simulation of {len(sizes)} layers, {x.max_concurrent} in flight", "all bytes are here")
    work.find("ready", ready, "s", "event simulation: ready_i = max(ready_(i-1), fetched_i) + unpack_i", "all is unpacked")
    work.put("one_connection", total / x.per_connection, "s", "to_fetch / per_connection", "bound: one connection")
    bounds = {
        "the sum of bytes over all connections": work.put(
            "bound_bytes",
            total / min(x.max_concurrent * x.per_connection, x.nic),
            "s",
            "to_fetch / min(max_concurrent * per_connection, nic)",
        ),
        "the largest layer on its one connection": work.find(
            "bound_largest", max(sizes, default=0.0) / min(x.per_connection, x.nic), "s", "largest layer / one connection"
        ),
        "unpacking": work.put(
            "bound_unpack", total * x.expansion / x.unpack_rate_uncompressed, "s", "to_fetch * expansion / unpack_rate_uncompressed"
        ),
    }
    saved = (whole[-1].ready if whole else 0.0) - ready
    work.put("byte_hits", 1 - total / all_bytes if all_bytes else 0.0, "1", words="share of bytes that the node has")
    work.find(
        "saved_by_cache", saved, "s", "the same simulation without the cached layers", "time follows the critical path, not the bytes"
    )
    names = [at for at in range(len(x.layers_compressed)) if at not in cached]
    columns = ("layer", "size [GB]", "download from [s]", "to [s]", "unpack from [s]", "to [s]")
    work.table(
        "layers", columns, [(at, *(t.size / 1e9, t.start, t.fetched, t.unpack, t.ready)) for at, t in zip(names, times, strict=True)]
    )
    return work.done(
        "layers in list order, at most K in flight at min(connection, NIC / active) each; unpacking is one chain in layer order",
        "constant bandwidth, a registry that is not the limit, a layer is unpacked when it is whole",
        max(bounds, key=lambda name: bounds[name]) if total else "everything is cached",
        lead="ready",
    )


def validate_image_pull(x: ImagePull) -> tuple[Refusal, ...]:
    """There must be layers, not too many, and cached ones must be among them."""
    count = len(x.layers_compressed)
    return (
        unless(count > 0, "no_layers", "an image without layers: give their compressed sizes in manifest order", "layers_compressed")
        + unless(count <= LAYERS_MAX, "too_many_layers", f"{count} layers, at most {LAYERS_MAX}", "layers_compressed")
        + unless(all(at < count for at in x.cached), "no_such_layer", f"cached layers count from 0 to {count - 1}", "cached")
    )


class FleetPull(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that pull the same image at the same time."""

    nodes: Annotated[int, Ask("1", "nodes", least=1)]
    image: Annotated[float, Ask("GB", "compressed size")]
    registry_egress: Annotated[float, Ask("GB/s", "what the registry sends in all", above=True)]
    node_up: Annotated[float, Ask("GB/s", "what a node can send", above=True)] = assumed("3.125 GB/s")
    node_down: Annotated[float, Ask("GB/s", "what a node can receive", above=True)] = assumed("3.125 GB/s")


def image_pull_fleet(x: FleetPull) -> Answer:
    """Seconds until the last node has the image, from the registry alone and as peers."""
    work = Work()
    registry, down = x.nodes * x.image / x.registry_egress, x.image / x.node_down
    central = work.put("client_server", max(registry, down), "s", "max(nodes * image / registry_egress, image / node_down)")
    bounds = {
        "the registry's first copy": x.image / x.registry_egress,
        "a node's own link": down,
        "the sum of all uplinks": x.nodes * x.image / (x.registry_egress + x.nodes * x.node_up),
    }
    together = "nodes * image / (registry_egress + nodes * node_up)"
    peers = work.put("p2p_bound", max(bounds.values()), "s", f"max(image / registry_egress, image / node_down, {together})")
    work.put("speed_up", central / peers if peers else 1.0, "1", "client_server / p2p_bound" if peers else "")
    work.note("the peer-to-peer figure is a lower bound; real swarms take about 1.2 to 2 times as long")
    return work.done(
        "client-server: max(N S / R, S / D); peers: max(S / R, S / D, N S / (R + N U))",
        "all nodes start at once, no layer is cached, links inside the fabric are not the limit",
        max(bounds, key=lambda name: bounds[name]),
    )


IMAGE_PULL: Final = Topic(ImagePull, image_pull, "per_connection", validate_image_pull)
IMAGE_PULL_FLEET: Final = Topic(FleetPull, image_pull_fleet, "nodes", nothing_refused)
