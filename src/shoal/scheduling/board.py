"""
The maintained picture that a cycle judges: built from a snapshot, or moved forward by changes. Both roads give equal boards.

    columns   nodes as rows: free devices, CPU, memory, topology        (`columns`, with `rooms` on top)
    quota     the tree with what each queue holds                       (`quota`)
    horizon   when held room comes back                                 (`horizon`)
    windows   reservations: nodes that are somebody's from a time on   (`windows`)
    pending   jobs that only room, order, quota or time keep waiting    (`pending`)
    gates     jobs that something else keeps waiting                    (`admit`)
    records   the records themselves, by id: what `check` and `explain` look at

The plane owns one board and moves it with every change; `cycle.schedule` tries things on it through a `Ledger` and leaves it as found.
Cost of `apply`: what changed, times the logarithm of the queue. Nothing here knows a store, a clock or a policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shoal.model.array import element_of, next_unborn, unborn_count
from shoal.model.attempt import HOLDING, Allocation
from shoal.model.change import Change, Record
from shoal.model.job import ENDED, LIVE, CancelMode, Job, JobState
from shoal.model.node import Node
from shoal.model.plan import Evict, Move, Place, Plan, Resize
from shoal.model.queue import Claim, Queue, QueueUsage
from shoal.model.snapshot import Snapshot
from shoal.scheduling.admit import Gate, gate_of
from shoal.scheduling.board_records import BoardRecords, contents_of
from shoal.scheduling.columns import Columns, Holding
from shoal.scheduling.crowd import Crowd, limits_of, steps_of
from shoal.scheduling.horizon import Horizon
from shoal.scheduling.moved import Moved, holds_the_same
from shoal.scheduling.pending import Bound, Pending
from shoal.scheduling.policy import Policy
from shoal.scheduling.quota import Charge, QuotaTree, charge_of_allocation
from shoal.scheduling.rooms import RoomTable
from shoal.scheduling.usage import UsageBook
from shoal.scheduling.windows import Windows, passes_of

if TYPE_CHECKING:
    from shoal.scheduling.reserve import Recall


class Board:
    """See module. Fields are for reading; `of`, `apply`, `mark_dirty` and `learn_ended` are the only ways to move it."""

    def __init__(self) -> None:
        self.version = 0
        self.cycle = 0
        """Cycles run on it so far: tells one cycle's notes from the next one's."""
        self.columns = Columns()
        self.rooms = RoomTable(self.columns)
        self.windows = Windows(self.columns)
        self.pending = Pending()
        self.queues: dict[str, Queue] = {}
        self.quota = QuotaTree((), {})
        self.charged: dict[str, dict[str, int]] = {}
        """What each queue itself holds, by resource; from allocations."""
        self.jobs: dict[str, Job] = {}
        self.gates: dict[str, Gate] = {}
        """Waiting jobs that are not in `pending`, with what keeps them."""
        self.allocations: dict[str, Allocation] = {}
        """Those that hold room."""
        self.claims: dict[str, Claim] = {}
        self.claims_by: dict[str, dict[str, None]] = {}
        """Claim ids by the job that room is kept for."""
        self.held_by: dict[str, dict[str, None]] = {}
        """Allocation ids by job."""
        self.held_on: dict[str, dict[str, None]] = {}
        self.recall: Recall | None = None
        """The first reservation of the last cycle that made one: `reserve`'s to read and to write."""
        """Allocation ids by node."""
        self.usage = UsageBook()
        """What queues have used of late."""
        self.crowd = Crowd()
        """What runs in each queue, by user."""
        self.array_live: dict[str, int] = {}
        """Elements that started and have not ended, by array id, where the array limits them."""
        self.fronts: dict[str, str] = {}
        """Of each array with unborn elements (`model.array`), the id of the first. It is in `jobs`, as it will be born, and waits in the
        array's name; a cycle that starts it goes on with `next_of_array`."""
        self._unborn: dict[str, tuple[Job, int]] = {}
        """Ids of jobs without a record: their array's parent and their position in it."""
        self._ahead: dict[str, None] = {}
        """Those of them behind a front, which a cycle has asked for. They are forgotten when the next begins."""
        self.horizon = Horizon(self)
        """When held room comes back."""
        self.ended: dict[str, JobState] = {}
        """End states of jobs that some live job depends on."""
        self._dependents: dict[str, dict[str, None]] = {}
        self._uncounted: dict[str, dict[str, int]] = {}
        """Charges of the change that is being taken in, by queue."""

    @staticmethod
    def of(snapshot: Snapshot) -> Board:
        """The board of a snapshot."""
        board = Board()
        board.version = snapshot.version
        board.ended = dict(snapshot.ended)
        for usage in snapshot.usages:
            board.usage.learn(usage)
        for allocation in snapshot.allocations:
            board._put_allocation(allocation)
        for claim in snapshot.claims:
            board._put_claim(claim)
        board.columns.load(snapshot.nodes)
        board.windows.load(snapshot.reservations)
        board.queues = {queue.id: queue for queue in snapshot.queues}
        board.quota = QuotaTree(board.queues.values(), board.charged)
        board._uncounted.clear()
        board.jobs = {job.id: job for job in snapshot.jobs if job.state not in ENDED}
        for job in board.jobs.values():
            board._link(job)
        for job in tuple(board.jobs.values()):
            if job.is_array:
                board._raise_front(job)
        board.ended = {job_id: state for job_id, state in board.ended.items() if job_id in board._dependents}
        for job in board.jobs.values():
            board._file(job)
        for job_id in board.held_by:
            board.horizon.note_job(job_id)
        for job in board.jobs.values():
            board.crowd.note(job.id, job, board)
        return board

    def apply(self, change: Change) -> None:
        """Moves forward by one change of the store. One that is already in is passed over."""
        if change.version <= self.version:
            return
        self._forget_ahead()
        self.version = change.version
        moved = Moved()
        for record in change.put:
            self._put(record, moved)
        for record in change.delete:
            self._delete(record, moved)
        if self._uncounted and not moved.queues:
            self._count_charges()
        self._uncounted.clear()
        if moved.queues:
            self.quota = QuotaTree(self.queues.values(), self.charged)
        for node in moved.nodes:
            row = self.columns.row.get(node)
            if row is not None:
                self.columns.refresh(row)
            self.horizon.note_node(node)
        if moved.limits:
            moved.jobs.update((job.id, None) for job in self.jobs.values() if job.queue in moved.limits)
        moved.jobs.update(self.windows.with_other_passes(self.pending, self.jobs) if moved.passes else {})
        for job_id in moved.jobs:
            self._refile(job_id)
            self.horizon.note_job(job_id)
            self.crowd.note(job_id, self.jobs.get(job_id), self)

    @property
    def records(self) -> BoardRecords:
        """What `check.check_plan` looks at."""
        return BoardRecords(self)

    def begin_cycle(self, now_ms: int) -> None:
        """Time moves to `now_ms`, and the tables over the columns take in what moved. Changes nothing that judgement depends on."""
        self.cycle += 1
        self._forget_ahead()
        self.pending.advance(now_ms)
        self.horizon.outlive(now_ms)
        self.rooms.bring_up()

    def use_policy(self, policy: Policy) -> None:
        """How age and past use count from now on. Costs the queue and what runs where that is another way than before, else nothing."""
        self.usage.use_half_life(policy.half_life_ms, self.allocations.values())
        by_history = policy.estimate == "history"
        if policy.age_unit_ms != self.pending.age_unit_ms or by_history != self.pending.by_history:
            waiting = [job for job in self.jobs.values() if job.id in self.pending]
            for job in waiting:
                self.pending.discard(job.id)
            self.pending.age_unit_ms, self.pending.by_history = policy.age_unit_ms, by_history
            for job in waiting:
                self._file(job)
        if by_history != self.horizon.by_history:
            self.horizon.by_history = by_history
            for job_id in tuple(self.horizon.end_of):
                self.horizon.note_job(job_id)

    def emptied(self) -> Board:
        """A board of the same fleet and queues with no jobs and nothing held; for questions of "could it ever"."""
        empty = Board()
        empty.version = self.version
        empty.columns = self.columns.emptied()
        empty.rooms = RoomTable(empty.columns)
        empty.queues = self.queues
        empty.quota = QuotaTree(self.queues.values(), {})
        return empty

    def mark_dirty(self, node: str, devices: Iterable[str]) -> None:
        """Exactly these devices of a node are DIRTY now: processes of somebody gone are still on them. Kept beside the records."""
        self.columns.set_dirty(node, frozenset(devices))
        self.horizon.note_node(node)

    def unknown_dependencies(self) -> tuple[str, ...]:
        """Ids that live jobs depend on and that are neither live nor among the ended: whoever moves the board looks them up."""
        return tuple(sorted(job for job in self._dependents if job not in self.jobs and job not in self.ended))

    def learn_ended(self, ended: dict[str, JobState]) -> None:
        """The end states of jobs that ended before a job came that depends on them."""
        for job_id, state in sorted(ended.items()):
            if job_id in self._dependents and job_id not in self.jobs:
                self.ended[job_id] = state
                for dependent in tuple(self._dependents[job_id]):
                    self._refile(dependent)

    # --- records that come and go ------------------------------------------------------------------------------------------
    def _put(self, record: Record, moved: Moved) -> None:
        if isinstance(record, Job):
            self._put_job(record, moved)
        elif isinstance(record, Allocation):
            moved.jobs[record.job] = None
            before = self.allocations.get(record.id)
            if before is not None and holds_the_same(before, record):
                self.allocations[record.id] = record
            else:
                moved.nodes[record.node] = None
                self._put_allocation(record)
        elif isinstance(record, Node):
            self.columns.put_node(record)
        elif isinstance(record, Queue):
            if limits_of(self.queues, record.id) != record.spec.limits:
                moved.limits[record.id] = None
            self.queues[record.id] = record
            moved.queues = True
        elif isinstance(record, Claim):
            moved.nodes[record.node] = None
            self._put_claim(record)
        elif isinstance(record, QueueUsage):
            self.usage.written(record)
        else:
            moved.passes |= self.windows.put(record)

    def _delete(self, record: Record, moved: Moved) -> None:
        if isinstance(record, Job):
            self._drop_job(record.id, None, moved)
        elif isinstance(record, Allocation):
            moved.nodes[record.node] = None
            moved.jobs[record.job] = None
            if record.id in self.allocations:
                self.usage.end(self.allocations[record.id], record.released_ms or record.claimed_ms)
            self._drop_allocation(record.id)
        elif isinstance(record, Node):
            self.columns.drop_node(record.id)
        elif isinstance(record, Queue):
            self.queues.pop(record.id, None)
            self.usage.forget(record.id)
            moved.queues = True
            moved.limits[record.id] = None
        elif isinstance(record, Claim):
            moved.nodes[record.node] = None
            self.claims.pop(record.id, None)
            _drop_from(self.claims_by, record.job, record.id)
            self.columns.hold(record.node, record.id, None)
        else:
            moved.passes |= self.windows.drop(record)

    def _put_allocation(self, allocation: Allocation) -> None:
        before = self.allocations.get(allocation.id)
        self._drop_allocation(allocation.id)
        holds = allocation.state in HOLDING
        if before is None or not holds or charge_of_allocation(before) != charge_of_allocation(allocation):
            if before is not None:
                self.usage.end(before, allocation.released_ms or before.claimed_ms)
            if holds:
                self.usage.begin(allocation)
        if not holds:
            return
        self.allocations[allocation.id] = allocation
        self.held_by.setdefault(allocation.job, {})[allocation.id] = None
        self.held_on.setdefault(allocation.node, {})[allocation.id] = None
        holding = Holding(allocation.devices, allocation.cpu_milli, allocation.memory_bytes, allocation.parts, allocation.project)
        self.columns.hold(allocation.node, allocation.id, holding)
        self._charge(allocation.queue, charge_of_allocation(allocation), 1)

    def _drop_allocation(self, allocation_id: str) -> None:
        before = self.allocations.pop(allocation_id, None)
        if before is None:
            return
        _drop_from(self.held_by, before.job, allocation_id)
        _drop_from(self.held_on, before.node, allocation_id)
        self.columns.hold(before.node, allocation_id, None)
        self._charge(before.queue, charge_of_allocation(before), -1)

    def _charge(self, queue: str, charge: Charge, sign: int) -> None:
        mine = self.charged.setdefault(queue, {})
        for resource, amount in charge:
            mine[resource] = mine.get(resource, 0) + sign * amount
            if not mine[resource]:
                del mine[resource]
        if not mine:
            del self.charged[queue]
        waiting = self._uncounted.setdefault(queue, {})
        for resource, amount in charge:
            waiting[resource] = waiting.get(resource, 0) + sign * amount

    def _count_charges(self) -> None:
        """The tree takes in what a whole change has charged: a gang of many nodes is one charge to its queue."""
        for queue, amounts in self._uncounted.items():
            if queue in self.quota.vertices:
                self.quota.add(queue, tuple((resource, amount) for resource, amount in amounts.items() if amount))

    def _put_claim(self, claim: Claim) -> None:
        self.claims[claim.id] = claim
        self.claims_by.setdefault(claim.job, {})[claim.id] = None
        self.columns.hold(claim.node, claim.id, Holding(claim.devices, claim.cpu_milli, claim.memory_bytes, claim.parts, claim.project))

    def _put_job(self, job: Job, moved: Moved) -> None:
        if job.state in ENDED:
            self._drop_job(job.id, job.state, moved)
            return
        self._unborn.pop(job.id, None)
        self.ended.pop(job.id, None)
        before = self.jobs.get(job.id)
        if before is not None:
            self._unlink(before, job)
        self.jobs[job.id] = job
        self._link(job)
        moved.jobs[job.id] = None
        if job.is_array:
            self._move_front(job, moved)
        if before is None or before.state is not job.state:
            for dependent in self._dependents.get(job.id, ()):
                moved.jobs[dependent] = None
        if job.is_array and (before.spec.array != job.spec.array if before is not None else job.observed_generation):
            # It has another limit now, or has come to life again after its elements.
            for element in self.jobs.values():
                if element.array is not None and element.array.array_id == job.id:
                    moved.jobs[element.id] = None

    def _drop_job(self, job_id: str, ended: JobState | None, moved: Moved) -> None:
        before = self.jobs.pop(job_id, None)
        moved.jobs[job_id] = None
        self.pending.discard(job_id)
        self.gates.pop(job_id, None)
        if before is not None:
            self._unlink(before, None)
        dependents = self._dependents.get(job_id, {})
        if dependents and ended is not None:
            self.ended[job_id] = ended
        for dependent in dependents:
            moved.jobs[dependent] = None
        if job_id in self.fronts:
            self._drop_front(job_id, moved)

    def _link(self, job: Job) -> None:
        """Counts a job among its array's running ones and among those that wait for others."""
        if job.array is not None and job.state in LIVE:
            array = job.array.array_id
            self.array_live[array] = self.array_live.get(array, 0) + 1
        for dependency in job.spec.depends_on:
            self._dependents.setdefault(dependency.job, {})[job.id] = None

    def _unlink(self, job: Job, after: Job | None) -> None:
        """The inverse of `_link`, for a job that is gone or about to be linked again as `after`."""
        if job.array is not None and job.state in LIVE:
            array = job.array.array_id
            self.array_live[array] -= 1
            if not self.array_live[array]:
                del self.array_live[array]
        if after is not None and after.spec.depends_on == job.spec.depends_on:
            return
        for dependency in job.spec.depends_on:
            _drop_from(self._dependents, dependency.job, job.id)
            if dependency.job not in self._dependents:
                self.ended.pop(dependency.job, None)

    # --- elements of arrays that have no record yet ------------------------------------------------------------------------
    def is_unborn(self, job_id: str) -> bool:
        """True for an element that has no record: who decides anything about it has it born first."""
        return job_id in self._unborn

    def is_ahead(self, job_id: str) -> bool:
        """True for an unborn element behind its array's first: it stands in no lane."""
        return job_id in self._ahead

    def unborn_behind(self, array_id: str) -> int:
        """Unborn elements of an array that are not in `pending` or at a gate, since they stand behind its first."""
        front = self.fronts.get(array_id)
        return unborn_count(self.jobs[array_id]) - 1 if front is not None else 0

    def next_of_array(self, job_id: str) -> Job | None:
        """The unborn element behind an unborn one; from now on, until the next cycle, it is in `jobs` too."""
        known = self._unborn.get(job_id)
        if known is None:
            return None
        parent, at = known
        position = next_unborn(parent, at)
        if position is None:
            return None
        element = element_of(parent, position, self.jobs[job_id].spec)
        if element.id not in self.jobs:
            self._ahead[element.id] = None
            self.jobs[element.id] = element
            self._unborn[element.id] = parent, position
        return element

    def unborn_in(self, plan: Plan) -> dict[str, list[int]]:
        """Positions by array of elements without a record that a plan starts or clears room for. Those that only wait need none."""
        starting = [decision.job for decision in plan.decisions if isinstance(decision, Place)]
        clearing = [d.beneficiary for d in plan.decisions if isinstance(d, Evict | Move | Resize) and d.beneficiary is not None]
        wanted: dict[str, list[int]] = {}
        for job_id in (*starting, *clearing):
            if job_id in self._unborn:
                parent, position = self._unborn[job_id]
                wanted.setdefault(parent.id, []).append(position)
        return wanted

    def _move_front(self, parent: Job, moved: Moved) -> None:
        """An array's parent was written: its first unborn element may be another now, or ask for other things."""
        if parent.id in self.fronts:
            self._drop_front(parent.id, moved)
        front = self._raise_front(parent)
        if front is not None:
            moved.jobs[front.id] = None

    def _raise_front(self, parent: Job) -> Job | None:
        position = next_unborn(parent)
        if position is None or parent.cancel is not CancelMode.NONE:
            return None
        front = element_of(parent, position)
        self.fronts[parent.id] = front.id
        self._unborn[front.id] = parent, position
        self.jobs[front.id] = front
        self._link(front)
        return front

    def _drop_front(self, array_id: str, moved: Moved) -> None:
        front_id = self.fronts.pop(array_id)
        if self._unborn.pop(front_id, None) is not None:
            self._drop_job(front_id, None, moved)

    def _forget_ahead(self) -> None:
        for job_id in self._ahead:
            del self.jobs[job_id], self._unborn[job_id]
        self._ahead.clear()

    # --- who may start -----------------------------------------------------------------------------------------------------
    def _refile(self, job_id: str) -> None:
        self.pending.discard(job_id)
        self.gates.pop(job_id, None)
        job = self.jobs.get(job_id)
        if job is not None:
            self._file(job)

    def _file(self, job: Job) -> None:
        """Puts a waiting job where it belongs: among the pending, or at the gate that keeps it."""
        gate = gate_of(job, self)
        if gate is Gate.OPEN:
            self.pending.add(job, self._bound_of(job), passes_of(job, self.windows.reservations))
        elif gate is not Gate.NOT_WAITING:
            self.gates[job.id] = gate

    def _bound_of(self, job: Job) -> Bound:
        limited = job.array is not None and self.at_once(job.array.array_id) is not None
        array = job.array.array_id if job.array is not None and limited else ""
        bounds = limits_of(self.queues, job.queue)
        return Bound(array, job.owner if bounds.by_user else "", steps_of(job) if bounds.priced else 0)

    def claimed_on(self, row: int) -> int:
        """The devices of a node that are kept for somebody."""
        node_id = self.columns.nodes[row].id
        mask = 0
        for claim in self.claims.values():
            if claim.node == node_id:
                mask |= self.columns.mask_of(row, claim.devices)
                mask |= self.columns.mask_of(row, tuple(part.device for part in claim.parts))
        return mask

    def at_once(self, array_id: str) -> int | None:
        """How many elements of an array may run at once, where it says."""
        parent = self.jobs.get(array_id)
        return None if parent is None or parent.spec.array is None else parent.spec.array.at_once

    # --- comparing ---------------------------------------------------------------------------------------------------------
    def contents(self) -> dict[str, Any]:
        """Everything that judgement depends on, as plain values that compare equal for equal boards."""
        return contents_of(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Board) and self.contents() == other.contents()

    __hash__ = None  # type: ignore[assignment]


def _drop_from(index: dict[str, dict[str, None]], key: str, value: str) -> None:
    values = index.get(key)
    if values is not None:
        values.pop(value, None)
        if not values:
            del index[key]
