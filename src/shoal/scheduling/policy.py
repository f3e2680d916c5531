"""
What an operator may decide about the cycle; every default with its reason. Handed to `cycle.schedule`, never read from anywhere else.

Only what is built is here. The constants below are no policy: they are part of what an ask means, and must be the same for everybody
who reads a job (`asks`, `explain`, `check`).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shoal.base.limits import HALF_LIFE_MS
from shoal.scheduling.packing.table import TableFile

CPU_MILLI_WITHOUT_GPUS: Final = 1_000
"""A CPU-only task that names no `cpus` holds one core: without a charge a node would take any number of them."""
CPU_MILLI_WITH_GPUS: Final = 0
"""A member with GPUs that names no `cpus` takes what there is: its GPUs already bound how many fit on a node."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """See module. Two cycles with the same board, policy, time and stream give the same plan to the byte."""

    fair_share: Literal["dominant", "decayed", "fair-tree"] = "dominant"
    """
    How queues compare, by weight and of the resource that they use most of.

    Dominant: by what they hold beyond their guarantee, now. Decayed: guarantees first as before, then by what they hold and have used of
    late, so that who waited for weeks goes before who ran all the time. Fair-tree: by that alone, level by level, as it is when the cycle
    begins: where one queue stands before another, every job below it does.
    """
    half_life_ms: int = HALF_LIFE_MS
    """Use that lies so far back counts half."""
    credit_max: float = 1.0
    """
    How far little use of late may put a queue before the neighbour who used most, as a part of the fleet per weight; for policies that look
    back. 1: as far as it comes to, so that who idled for weeks may burst over the whole fleet. 0: as if all had used as much.
    """
    age_unit_ms: int = 0
    """
    A job that has waited so much longer than another counts as one step of priority higher inside its queue; 0: age only breaks ties. What
    may stop it is still its priority alone.
    """
    priority_across_queues: bool = False
    """Off: a queue's priorities order its own jobs only, else everybody's jobs become urgent. On: a higher priority in any queue
    goes first, for installations of one team."""
    packing: Literal["best-fit", "spread", "fragmentation", "value"] = "best-fit"
    """
    Which of the nodes that fit a member gets, once topology has said where to look.

    Best-fit: the fullest, so that big holes stay whole for gangs. Spread: the emptiest. Fragmentation (FGD) and value: where most is left
    for what comes, by the mix in `packing_table`; for fleets that run many small tasks and parts of GPUs.
    """
    packing_table: TableFile | None = None
    """What pieces are worth and which shapes come, trained from a fleet's own history; None: the ones that ship with Shoal."""
    near_by_default: bool = True
    """A gang of several nodes that names no level is still put into the tightest domain with room: its all-reduce is faster there and
    no other wish is hurt."""
    reserve: Literal["none", "easy", "conservative"] = "easy"
    """Who is kept room for while he waits. EASY: the first blocked gang of each queue, so that it starts as soon as can be known and
    the rest fills what it leaves. Conservative: every blocked gang in turn, so that nobody is delayed by who comes after him; less
    is filled. Each cycle seats all of them anew, so that with racks or windows a start is told later in rare cases."""
    estimate: Literal["limit", "history"] = "limit"
    """
    How long a job is planned to run. Limit: as it asked, which is a promise: nobody who has room kept starts late for another's sake.
    History: as the last runs of its kind did (`expected_ms`), twice that once it has run longer, never above its limit; limits that are
    asked far too high then keep no room, and a start that was told may come later. Limits are still what stops jobs, and what windows of
    maintenance go by.
    """
    reservations: int = 16
    """Blocked gangs with a reservation at a time, over all queues; see limits.RESERVATIONS_MAX, which it cannot exceed."""
    reserve_window_ms: int = 86_400_000
    """No room is kept for a start further away than a day: jobs without a time limit would not be let on it for as long."""
    preempt: bool = True
    """A gang that has the right may stop others: lower priorities of its own queue, and what other queues hold over their share."""
    move: bool = True
    """Under `preempt`: before anybody is stopped, jobs are moved where that alone frees the shape. Who is moved loses what a stop would
    lose, and keeps his place; off, shapes are freed by ends and by stops alone."""
    restart_ms: int = 600_000
    """What a stopped job loses beyond the work since its last checkpoint: the way back to where it was."""
    patience_max_ms: int = 600_000
    """
    A gang with a known start no further away than this waits for it instead of stopping others, where waiting costs less GPU time than
    they would lose. As long as a way back: for less than that nobody gains. With the grace of who is stopped it is the longest that a
    guarantee is withheld (a job's `tolerance` waits longer); 0 takes what is owed at once.
    """
    min_run_ms: int = 0
    """A running job is not stopped before it has run so long, unless its queue says otherwise (`min_run_ms`). Off: charged by what they
    lose, the young are stopped first, and a guarantee is kept at once."""
    regroup_ms: int = 30_000
    """What a gang that loses a member in place loses with it: the time in which the others form anew, once for each member."""
    claim_ms: int = 1_500_000
    """How long freed room is kept for who preempted: as long as who is stopped may take to save and then to stop, and five minutes more
    (limits.CHECKPOINT_WAIT_MS_MAX). After that the room is anybody's."""
    grow_after_save_ms: int = 60_000
    """A gang that is resized by restart grows by itself only so soon after a checkpoint that it reported: then little work is lost."""
    placed_per_cycle: int = 1_000
    """See limits.PLACED_PER_CYCLE_MAX, which it cannot exceed."""
    waits_per_plan: int = 16
    """Reasons worked out in a cycle for jobs that were tried and did not fit: a screen of them. Each costs about as much as the try
    itself, and `explain` gives any job's reason when asked."""
