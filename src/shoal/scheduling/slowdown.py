"""
What a mesh loses by where it was placed: the speed of its tensor parallel groups against the same groups inside one island each.

The arithmetic is `planning.parallel`'s, for one reference model, since a job does not say what it trains: a dense transformer of 70e9
parameters (width 8,192, 80 layers, micro-batches of 4,096 tokens, 40 % of peak). A smaller width or fewer tokens lose less. Expert and
pipeline traffic is not counted: they are placed near, and nothing is predicted for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from shoal.facts.links import NETWORK_PATH_GB_S, is_known, links_of
from shoal.planning.parallel import TensorParallel, relative_speed
from shoal.scheduling.columns import Columns

_REFERENCE = "70e9 parameters, width 8192, 80 layers, 4096 tokens"

Seated = tuple[int, tuple[int, ...]]
"""A member: its node's row, and its devices' positions in rank order."""


class Prediction(NamedTuple):
    """`speed` of the slowest tensor parallel group: 1.0 is whole. `text` is empty where nothing is lost."""

    speed: float
    text: str = ""


def predict(columns: Columns, tp: int, model: str, members: Sequence[Seated]) -> Prediction:
    """What splitting the tensor parallel groups of `members`, in rank order, costs."""
    gpus = [(row, at) for row, positions in members for at in positions]
    groups = (gpus[i : i + tp] for i in range(0, len(gpus), tp))
    found = {_split_of(columns, group): None for group in groups}
    return min((_predicted(model, split) for split in found), key=lambda p: (p.speed, p.text), default=Prediction(1.0))


class _Split(NamedTuple):
    """The group's GPUs by island and by host, most first. `paths`: network paths of the host that has fewest for them."""

    by_island: tuple[int, ...]
    by_host: tuple[int, ...]
    paths: float


def _split_of(columns: Columns, group: Sequence[tuple[int, int]]) -> _Split:
    islands = next((scope.codes for scope in columns.levels if scope.name == "island"), None)

    def island(row: int, at: int) -> tuple[int, int]:
        if islands is not None and islands[row] >= 0:
            return -1, int(islands[row])
        return row, columns.layouts[row].devices[at].island

    parts = Counter(island(row, at) for row, at in group)
    by_host = Counter(row for row, _ in group)
    paths = min(max(1, columns.nodes[row].facts.nics) * count / len(columns.layouts[row].devices) for row, count in by_host.items())
    return _Split(_descending(parts.values()), _descending(by_host.values()), paths)


def _descending(counts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(counts, reverse=True))


@lru_cache(maxsize=4_096)
def _predicted(model: str, split: _Split) -> Prediction:
    links, hosts = links_of(model), len(split.by_host) > 1
    parts = split.by_island if links.island_gb_s else split.by_host  # Without NVLink a host is all the nearness there is.
    ranks = sum(parts)
    if len(parts) == 1:
        return Prediction(1.0)
    x = TensorParallel(
        hidden=8_192,
        layers=80,
        tokens=4_096,
        params=70e9,
        tp=ranks,
        nvlink_bus=(links.island_gb_s or links.host_gb_s) * 1e9,
        nic=(NETWORK_PATH_GB_S if hosts else links.host_gb_s) * 1e9,
        peak=links.peak_tflops * 1e12,
    )
    speed = relative_speed(x, parts, split.paths if hosts else 1)
    way = (f"{split.paths:g} network paths each" if split.paths >= 2 else "one network path") if hosts else "the host's PCIe"
    figures = "" if is_known(model) else f", with the links of an h100, since {model} is not known"
    text = (
        f"tensor parallel groups of {ranks} are split {'+'.join(str(part) for part in parts)} over {way}: "
        f"predicted speed {speed:.3f} of one inside an island ({_REFERENCE}{figures})"
    )
    return Prediction(speed, text)
