"""
How a record changes, whoever asks: one lane per job (node, queue, ...), in which judgements are made one after another.

The danger: two reports about one job come at once, each judged on a picture without the other, both written, and neither sees that
all members have now ended (write skew: no record is written twice, so no version conflicts). In a lane the second is judged on what
the first made true. What comes while a write is on its way is folded into the next one: however busy a job is, it costs one
ChangeSet per commit, not one per report.

`ask` is called from any thread and never waits; the answer is a future that is done when the change is durable. A ChangeSet that meets
a version it did not expect (another server, a step on the same record) is judged again from a fresh picture, CAS_RETRIES_MAX times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from shoal.base import limits
from shoal.base.errors import Unavailable, VersionConflict
from shoal.control.world import World
from shoal.lifecycle.picture import merged, moved
from shoal.model.change import Applied, ChangeSet, Outcome, Record
from shoal.model.snapshot import Picture
from shoal.store.protocol import Store

S = TypeVar("S")
R = TypeVar("R", bound=Record)


class Subject(Protocol[S]):
    """What a lane is about: its name, how to read it, and what it is once a ChangeSet is true."""

    @property
    def key(self) -> str: ...

    def read(self) -> S | None: ...

    def moved(self, state: S | None, changes: ChangeSet) -> S | None: ...

    def settled(self, state: S | None, changes: ChangeSet, version: int) -> S | None:
        """The state as stored: records of `changes` carry `version`."""
        ...


Judge = Callable[[S | None], ChangeSet]
"""A pure function of the subject (None: it is not there). May raise a ShoalError, which goes to its asker alone."""


@dataclass(slots=True)
class _Ask(Generic[S]):
    judge: Judge[S]
    answer: Future[S | None]
    tries: int = 0


@dataclass(slots=True)
class _Lane(Generic[S]):
    subject: Subject[S]
    waiting: list[_Ask[S]] = field(default_factory=list)


class Lanes:
    """See module."""

    def __init__(self, store: Store, world: World, term: int) -> None:
        self._store = store
        self._world = world
        self._term = term
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane[Any]] = {}

    def ask(self, subject: Subject[S], judge: Judge[S]) -> Future[S | None]:
        """The subject once what `judge` says of it is durable. An empty ChangeSet answers with the subject as it is."""
        answer: Future[S | None] = Future()
        answer.set_running_or_notify_cancel()  # An asker that goes away takes nothing back: the change may be on its way.
        ask = _Ask(judge, answer)
        with self._lock:
            lane = self._lanes.get(subject.key)
            if lane is not None:
                lane.waiting.append(ask)
                return ask.answer
            lane = self._lanes[subject.key] = _Lane(subject, [ask])
        self._drive(lane)
        return ask.answer

    def _drive(self, lane: _Lane[S]) -> None:
        """Judges what waits, until a write is on its way or nothing waits. Only the lane's owner of the moment is in here."""
        while True:
            with self._lock:
                batch, lane.waiting = lane.waiting, []
                if not batch:
                    del self._lanes[lane.subject.key]
                    return
            if self._judge(lane, batch):
                return

    def _judge(self, lane: _Lane[S], batch: list[_Ask[S]]) -> bool:
        """Judges a batch on one picture; true when a write is on its way, whose end goes on with the lane."""
        try:
            self._world.catch_up()
            state = lane.subject.read()
        except Exception as error:  # A store that cannot be read: the askers are told, the lane stays usable.
            _fail(batch, error)
            return False
        whole = ChangeSet()
        judged: list[_Ask[S]] = []
        for ask in batch:
            try:
                changes = ask.judge(state)
            except Exception as error:
                ask.answer.set_exception(error)
                continue
            if not changes.empty:
                whole = merged(whole, changes)
                state = lane.subject.moved(state, changes)
            judged.append(ask)
        if whole.empty:
            for ask in judged:
                ask.answer.set_result(state)
            return False
        try:
            written = self._store.apply(whole, self._term)
        except Exception as error:  # The writer is full or closed.
            _fail(judged, error)
            return False
        written.add_done_callback(lambda done: self._written(lane, judged, (state, whole), done))
        return True

    def _written(self, lane: _Lane[S], judged: list[_Ask[S]], made: tuple[S | None, ChangeSet], done: Future[Outcome]) -> None:
        """Called by the store when a lane's write has ended, in the writer's thread."""
        error = done.exception()
        if isinstance(error, VersionConflict):
            self._again(lane, judged)
        elif error is not None:
            _fail(judged, error)
        else:
            outcome = done.result()
            self._world.catch_up()  # Who gets the answer finds it in the world.
            state = lane.subject.settled(*made, outcome.version) if isinstance(outcome, Applied) else made[0]
            for ask in judged:
                ask.answer.set_result(state)
        self._drive(lane)

    def _again(self, lane: _Lane[S], judged: list[_Ask[S]]) -> None:
        spent = [ask for ask in judged if ask.tries >= limits.CAS_RETRIES_MAX]
        _fail(spent, Unavailable(f"{lane.subject.key} changed {limits.CAS_RETRIES_MAX} times while this was being written; try again"))
        rest = [ask for ask in judged if ask.tries < limits.CAS_RETRIES_MAX]
        for ask in rest:
            ask.tries += 1
        with self._lock:
            lane.waiting[:0] = rest


def _fail(asks: list[_Ask[S]], error: BaseException) -> None:
    for ask in asks:
        ask.answer.set_exception(error)


@dataclass(slots=True, frozen=True)
class JobSubject:
    """A job with its current attempt and allocations."""

    world: World
    store: Store
    job_id: str

    @property
    def key(self) -> str:
        return f"job/{self.job_id}"

    def read(self) -> Picture | None:
        return self.world.picture(self.job_id) or self.store.picture(self.job_id)

    def moved(self, state: Picture | None, changes: ChangeSet) -> Picture | None:
        return None if state is None else moved(state, changes)

    def settled(self, state: Picture | None, changes: ChangeSet, version: int) -> Picture | None:
        if state is None or all(record is not state.job for record in changes.put):
            return state
        return msgspec.structs.replace(state, job=msgspec.structs.replace(state.job, version=version))


@dataclass(slots=True, frozen=True)
class RecordSubject(Generic[R]):
    """One record of a kind that stands alone: a node, a queue, a token, a secret."""

    kind: type[R]
    record_id: str
    look: Callable[[str], R | None]

    @property
    def key(self) -> str:
        return f"{self.kind.__name__}/{self.record_id}"

    def read(self) -> R | None:
        return self.look(self.record_id)

    def moved(self, state: R | None, changes: ChangeSet) -> R | None:
        for record in changes.put:
            if isinstance(record, self.kind) and record.id == self.record_id:
                state = record
        gone = any(isinstance(record, self.kind) and record.id == self.record_id for record in changes.delete)
        return None if gone else state

    def settled(self, state: R | None, changes: ChangeSet, version: int) -> R | None:
        if state is None or all(record is not state for record in changes.put):
            return state
        settled: R = msgspec.structs.replace(state, version=version)
        return settled
