"""
Step 6 of the cycle: room for a gang that has the right to it, by stopping others.

    who may be stopped    lower priorities of the gang's own queue; and jobs of a queue that is over its guarantee, as long as that
                          queue's claim after the loss is at least the claim of the gang's queue after the gain. Two queues are
                          compared where their ways to the root part. Equal claims do not displace.
    who is stopped        members above the least of gangs that shrink in place; then least (work since its last checkpoint + restart) x
                          GPUs first; then everybody who can be spared is, the dearest first
    what is freed already is counted before anybody is stopped, and where it is enough nobody is
    patience              who has a known start waits for it where that costs less GPU time than stopping loses

`victims` says who may be stopped, and what each loses. The gang is placed on the ledger with its victims gone before one of them is
told: with all of it or not at all. What it will get is claimed, so that nobody else takes it meanwhile. It settles, because each
eviction lowers a measure that nothing here raises: the claims of the queues, sorted downwards; then the negative sum of running priorities.

Prior art: Kueue's rule S2-a (its S2-b loops and is left out) and fill-back; kube-scheduler's reprieve.
"""

from __future__ import annotations

from shoal.base import limits
from shoal.scheduling.clearing import Clearing, Trials
from shoal.scheduling.options import options_of
from shoal.scheduling.order import Candidate
from shoal.scheduling.place import Placement
from shoal.scheduling.victims import Victim


class Preemptor:
    """See module. One per cycle, over the cycle's trials."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._victims = trials.victims
        self._weighed = 0

    @property
    def bound(self) -> bool:
        """True if more running jobs may be victims than could be weighed."""
        return self._weighed >= limits.VICTIMS_PER_CYCLE_MAX

    def find(self, candidate: Candidate) -> Clearing | None:
        """
        Who would be stopped for the gang, and the room that it would have; None where stopping does not help or is not needed.

        Not needed: what is ending anyhow is enough. Nothing is decided.
        """
        job = self._trials.board.jobs[candidate.job_id]
        victims = self._victims.eligible(job, max(limits.VICTIMS_LOOKED_AT_MAX, 4 * candidate.lane.state.gpus_least))
        self._weighed += len(victims)
        if not victims:
            return None
        with self._trials.ledger.trial():
            return self._search(candidate, victims)

    # --- the trial ---------------------------------------------------------------------------------------------------------------
    def _search(self, candidate: Candidate, victims: list[Victim]) -> Clearing | None:
        """None where nobody needs to be stopped or where stopping does not help. Leaves the ledger moved: the caller rewinds."""
        self._trials.give_what_ends()
        if self._trials.place(candidate) is not None:
            return None
        gone, found = self._stop_until_it_fits(candidate, victims)
        if found is None:
            return None
        kept, found = self._trials.spare(candidate, gone, found)
        return Clearing(candidate, tuple(sorted(kept, key=lambda victim: victim.job_id)), found)

    def _stop_until_it_fits(self, candidate: Candidate, victims: list[Victim]) -> tuple[list[Victim], Placement | None]:
        gone: list[Victim] = []
        wanted = 1
        charge = options_of(candidate.lane.state, self._trials.board.columns)[0].charge_least
        members: set[str] = set()
        for victim in victims:
            if members.issuperset(victim.surplus) and self._victims.may_lose(candidate.queue, charge, victim):
                self._victims.stop(self._trials.ledger, victim)
                members.add(victim.member)
                gone.append(victim)
                if len(gone) == wanted:
                    found = self._trials.place(candidate)
                    if found is not None:
                        return gone, found
                    wanted *= 2
        return gone, self._trials.place(candidate) if gone else None
