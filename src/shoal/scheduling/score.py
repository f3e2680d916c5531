"""
How good a place is: one number per node, the least is best; ties go to the first row, which is the lowest node id.

Best fit: the node that has fewest GPUs left afterwards, then fewest free cores, so that big holes stay whole. A member without GPUs
goes where fewest GPUs are free: cores beside idle GPUs are what the next GPU job needs. The other packings of `policy.packing` are scorers
of `packing`, asked through `packed`; none of them sees more than columns and one need.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.scheduling.columns import Columns
from shoal.scheduling.rooms import Need

_GPU_WEIGHT = 1 << 40
"""One GPU outweighs any number of millicores (CPUS_PER_NODE_MAX x 1,000 is below 2^23)."""
_TIGHT_SHIFT = 48
"""And how a part sits on its GPU any number of GPUs: 64 of them are 2^46, EMPTY_GPU and one above 2^13."""


def score_rows(columns: Columns, rows: NDArray[np.int64], need: Need) -> NDArray[np.int64] | NDArray[np.float64]:
    """
    Per row of `rows`, all of which fit, by the packing that the columns carry; best fit: GPUs left, then cores left, and for parts of GPUs
    first how tightly they sit on a shared one.
    """
    if columns.packing is not None:
        return -columns.packing.scores(columns, rows, need)
    scores: NDArray[np.int64] = (columns.free_gpus[rows] - need.member.gpus) * _GPU_WEIGHT + columns.cpu_free[rows]
    if need.member.pieces:
        scores += columns.parts.tight[need][rows] << _TIGHT_SHIFT
    return scores


def best_row(columns: Columns, rows: NDArray[np.int64], need: Need) -> int:
    """The best of `rows`, which are ascending and not empty."""
    return int(rows[score_rows(columns, rows, need).argmin()])


def best_rows(columns: Columns, rows: NDArray[np.int64], need: Need, count: int) -> NDArray[np.int64]:
    """The best `count` of `rows`, best first."""
    order = score_rows(columns, rows, need).argsort(kind="stable")
    chosen: NDArray[np.int64] = rows[order[:count]]
    return chosen
