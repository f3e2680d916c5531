"""
The whole service on virtual time: real store (in memory, written by hand), real control, scheduling and lifecycle, fake agents.

`Service` is what a test drives: use cases by name, `run` for time. `check` holds every invariant against it. One thread, one clock, one
seed: what fails once fails again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from shoal.base import limits
from shoal.base.rng import Rng
from shoal.control import jobs, nodes
from shoal.control.access import SYSTEM, Caller
from shoal.control.check import check_plane
from shoal.control.jobs import CancelAsk, Submission
from shoal.control.plane import Plane
from shoal.model.job import ENDED, CancelMode, GpuAsk, Job, JobSpec
from shoal.model.node import Device, NodeFacts
from shoal.model.values import CountRange
from shoal.model.wire import Commands, Join, LeaseTerms, Register, Registered, Upload, UploadReply
from shoal.scheduling.policy import Policy
from shoal.store.blobs import BlobStore
from shoal.store.dialect import Connection
from shoal.store.logs import LogStore
from shoal.store.sealing import Sealer
from shoal.store.sql import SqlStore, open_store
from shoal.store.sqlite import Sqlite
from shoal.testing.agents import Fleet, Wire
from shoal.testing.clock import SimulatedClock
from shoal.testing.ids import SeededEntropy, SeededIds

T = TypeVar("T")
ANNA = Caller(principal="user/anna", project="default", role="member")
TICK_MS = 100
GIB = 1 << 30
STORE_ID = "00000000-0000-4000-8000-000000000001"


def facts_of(name: str, gpus: int = 4, model: str = "h100", cpus: int = 64) -> NodeFacts:
    """A pretended machine."""
    devices = tuple(Device(uuid=f"GPU-{name}-{i}", index=i, model=model, memory_bytes=80 * GIB) for i in range(gpus))
    size = {"cpus": cpus, "memory_bytes": 512 * GIB}
    return NodeFacts(hostname=name, address="127.0.0.1", devices=devices, boot_id="boot-1", pretended=True, **size)


def spec_of(*, nodes: int = 1, gpus: int = 1, run_ms: int = 0, labels: dict[str, str] | None = None, **fields: Any) -> JobSpec:
    """A spec whose tasks behave as `testing.tasks` reads from its labels."""
    told = {"run_ms": str(run_ms), **(labels or {})}
    ask = GpuAsk(count=gpus) if gpus else None
    return JobSpec(**{"run": "true", "nodes": CountRange(nodes, nodes), "gpus": ask, "labels": told, **fields})


@cache
def _empty_store() -> bytes:
    """The image of a store that nobody has written to. Making the schema takes thirty milliseconds, copying it next to none."""
    store = open_store(":memory:", by_hand=True, store_id=STORE_ID)
    connection = store._dialect.connect_writer()
    assert isinstance(connection, sqlite3.Connection)
    return connection.serialize()


class _CopiedMemory(Sqlite):
    """SQLite in memory that starts from the empty store's image."""

    def __init__(self) -> None:
        super().__init__(None)
        self._filled = False

    def connect_writer(self) -> Connection:
        connection = super().connect_writer()
        if not self._filled:
            self._filled = True
            assert isinstance(connection, sqlite3.Connection)
            connection.deserialize(_empty_store())
        return connection


class Service:
    """See module. `terms` are short, so that losing a node takes seconds of virtual time."""

    def __init__(self, *, seed: int = 1, terms: LeaseTerms | None = None, policy: Policy | None = None) -> None:
        self.terms = terms or LeaseTerms(renew_every_ms=1_000, ttl_ms=3_000, kill_bound_ms=2_000, skew_ms=500, start_deadline_ms=5_000)
        self.policy = policy or Policy()
        self.clock = SimulatedClock()
        self.started_ms = self.clock.now_ms() - self.clock.boottime_ms()
        """Agents' calendars start here and never jump."""
        self.ids = SeededIds(seed)
        self.entropy = SeededEntropy(seed)
        self.store = SqlStore(_CopiedMemory(), None, by_hand=True, group_max=limits.COMMIT_GROUP_MAX, store_id=STORE_ID)
        self._directory = tempfile.TemporaryDirectory(prefix="shoal-test-")
        self.plane = self._compose()
        self.wire = Wire(self, Rng(seed).stream("wire"))
        self.fleet = Fleet(self.wire, self.terms)
        self.keys = 0

    def _compose(self) -> Plane:
        root = Path(self._directory.name)
        return Plane(
            store=self.store,
            logs=LogStore(root / "logs"),
            blobs=BlobStore(root / "blobs"),
            sealer=Sealer(root / "key"),
            clock=self.clock,
            ids=self.ids,
            entropy=self.entropy,
            policy=self.policy,
            terms=self.terms,
            write=self.store.writer.step,
        )

    def restart(self) -> None:
        """The control plane dies between two steps and starts again on what was durable."""
        self.plane.close()
        self.plane = self._compose()

    def close(self) -> None:
        self.plane.close()
        self.store.close()
        self._directory.cleanup()

    def settle(self, future: Future[T]) -> T:
        """The answer of a use case, the store written by hand until it is there."""
        while not future.done() and self.store.writer.step():
            pass
        assert future.done(), "the store has nothing left to write, and the answer is not there"
        return future.result()

    # --- the door of agents ------------------------------------------------------------------------------------------------
    def register(self, node: str, register: Register) -> Registered:
        return self.settle(nodes.register_node(self.plane, _node(node), register))

    def poll(self, node: str, after: int) -> Commands:
        return nodes.poll_commands(self.plane, _node(node), after)

    def upload(self, node: str, upload: Upload) -> UploadReply:
        return self.settle(nodes.record_upload(self.plane, _node(node), upload))

    # --- what people do ----------------------------------------------------------------------------------------------------
    def add_node(self, name: str, gpus: int = 4, **fields: Any) -> None:
        facts = facts_of(name, gpus, **{k: v for k, v in fields.items() if k in ("model", "cpus")})
        join = Join(name=name, facts=facts, pool=fields.get("pool", "default"))
        self.settle(nodes.join_node(self.plane, SYSTEM, join))
        self.fleet.add(facts)

    def submit(self, spec: JobSpec, caller: Caller = ANNA, **fields: Any) -> Job:
        self.keys += 1
        submission = Submission(**{"project": "default", "spec": spec, "key": f"key-{self.keys}", "fingerprint": "f", **fields})
        return self.settle(jobs.submit_job(self.plane, caller, submission)).job

    def cancel(self, job: Job, mode: CancelMode = CancelMode.GRACEFUL, **fields: Any) -> Job:
        ask = CancelAsk(mode=mode, **fields)
        return self.settle(jobs.cancel_job(self.plane, ANNA, "default", job.id, ask))

    def job(self, job: Job) -> Job:
        return jobs.get_job(self.plane, ANNA, "default", job.id)

    # --- time --------------------------------------------------------------------------------------------------------------
    def round(self) -> None:
        """The plane, then everybody else, once, at this moment."""
        self.plane.step_all(self.clock.now_ms())
        while self.store.writer.step():
            pass
        self.fleet.tick(self.started_ms + self.clock.boottime_ms())

    def run(self, for_ms: int, tick_ms: int = TICK_MS, each: Callable[[], None] | None = None) -> None:
        """Lets time pass in ticks, with a round at each."""
        end_ms = self.clock.now_ms() + for_ms
        while True:
            self.round()
            if each is not None:
                each()
            if self.clock.now_ms() >= end_ms:
                return
            self.clock.advance(min(tick_ms, end_ms - self.clock.now_ms()))

    def run_until_ended(self, *wanted: Job, within_ms: int = 60_000) -> None:
        """Until these jobs (all, if none is named) have ended."""
        end_ms = self.clock.now_ms() + within_ms
        while not self.have_ended(*wanted):
            assert self.clock.now_ms() < end_ms, f"still live after {within_ms} ms: {self.live(*wanted)}"
            self.round()
            self.clock.advance(TICK_MS)
        self.round()

    def have_ended(self, *wanted: Job) -> bool:
        self.plane.world.catch_up()
        return not self.plane.world.jobs if not wanted else all(job.id not in self.plane.world.jobs for job in wanted)

    def live(self, *wanted: Job) -> list[str]:
        chosen = {job.id for job in wanted}
        return [f"{j.address} {j.state} {j.reason}" for j in self.plane.world.jobs.values() if not chosen or j.id in chosen]

    # --- what must hold ----------------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Every invariant, at this moment."""
        while self.store.writer.step():
            pass
        violations = (*check_plane(self.plane), *self.fleet.violations)
        assert not violations, "\n".join(violations)

    def free_gpus(self) -> int:
        held = sum(len(a.devices) for node in self.plane.world.nodes for a in self.plane.world.live_on(node))
        return sum(len(node.facts.devices) for node in self.plane.world.nodes.values()) - held

    def all_over(self) -> bool:
        return all(job.state in ENDED for job in self.plane.world.jobs.values())


def _node(name: str) -> Caller:
    return Caller(principal=f"node/{name}", role="node")
