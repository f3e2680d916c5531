"""The service as it lives: a store with its writer thread, the plane on a thread, agents and people on others, all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from serving import ANNA, SYSTEM, facts_of, spec_of
from shoal.base.errors import Conflict
from shoal.control import jobs, nodes
from shoal.control.access import Caller
from shoal.control.check import check_plane
from shoal.control.plane import Plane
from shoal.model.command import Prepare
from shoal.model.event import AllocationPrepared, AllocationReleased, AllocationStarted, JobEnded, Report, TaskExited
from shoal.model.job import CancelMode, Job, JobState
from shoal.model.wire import Join, LogChunk, Register, Upload
from shoal.run.clock import RealClock
from shoal.run.entropy import OsIds, octets
from shoal.store.blobs import BlobStore
from shoal.store.logs import LogStore
from shoal.store.sealing import Sealer
from shoal.store.sql import open_store

JOBS = 120
AGENTS = ("n1", "n2", "n3")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    store = open_store(tmp_path / "shoal.db")
    plane = Plane(
        store=store,
        logs=LogStore(tmp_path / "logs"),
        blobs=BlobStore(tmp_path / "blobs"),
        sealer=Sealer(tmp_path / "key"),
        clock=RealClock(),
        ids=OsIds(),
        entropy=octets,
    )
    yield plane
    plane.close()
    store.close()


class Crowd:
    """Threads that run until `stop`; what one of them raises is raised again by `join`."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def start(self, work: object, *args: object) -> None:
        def guarded() -> None:
            try:
                work(*args)  # type: ignore[operator]
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=guarded, daemon=True))
        self.threads[-1].start()

    def join(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


def drive(plane: Plane, crowd: Crowd) -> None:
    while not crowd.stop.is_set():
        progress = plane.step_all(plane.clock.now_ms())
        plane.wait(min(50, progress.wait_ms(plane.clock.now_ms())))


def serve(plane: Plane, crowd: Crowd, name: str) -> None:
    """An agent whose tasks end at once; each report is an upload of its own, none waits for the one before."""
    caller, facts = Caller(principal=f"node/{name}", role="node"), facts_of(name, 4)
    registered = nodes.register_node(plane, caller, Register(facts=facts, store_id=plane.store.store_id)).result(10)
    mail, after, seq = threading.Event(), 0, 0
    plane.agents.on_mail(name, mail.set)
    while not crowd.stop.is_set():
        mail.clear()
        commands = nodes.poll_commands(plane, caller, after)
        after = commands.last
        sent: list[Future[object]] = []
        for row in commands.rows:
            if isinstance(row.body, Prepare):
                for report in life_of(row.body):
                    logs = (LogChunk(job=row.body.job, attempt=row.body.attempt, rank=0, offset=0, data=b"out\n"),)
                    upload = Upload(epoch=registered.epoch, boot_id=facts.boot_id, first_seq=seq, reports=(report,), logs=logs)
                    sent.append(nodes.record_upload(plane, caller, upload))  # type: ignore[arg-type]
                    seq += 1
        for future in sent:
            future.result(10)
        mail.wait(0.02)


def life_of(order: Prepare) -> tuple[Report, ...]:
    ids = {"allocation": order.allocation, "attempt": order.attempt}
    return (
        AllocationPrepared(**ids, address="x", port=1),  # type: ignore[arg-type]
        AllocationStarted(**ids, at_ms=0),  # type: ignore[arg-type]
        TaskExited(**ids, rank=0, exit_code=0),  # type: ignore[arg-type]
        AllocationReleased(**ids),  # type: ignore[arg-type]
    )


def ask(plane: Plane, made: list[Job]) -> None:
    """A person who submits, holds, releases, cancels; every answer is waited for."""
    for i in range(JOBS // 3):
        submission = jobs.Submission(project="default", spec=spec_of(), key=f"{threading.get_ident()}-{i}", fingerprint="f")
        job = jobs.submit_job(plane, ANNA, submission).result(10).job
        made.append(job)
        try:
            if i % 5 == 1:
                jobs.hold_job(plane, ANNA, "default", job.id).result(10)
                jobs.release_job(plane, ANNA, "default", job.id).result(10)
            elif i % 5 == 3:
                jobs.cancel_job(plane, ANNA, "default", job.id, jobs.CancelAsk(mode=CancelMode.FORCE)).result(10)
        except Conflict:
            pass  # It had started already.


def test_all_at_once_every_job_ends_once_and_the_live_picture_is_the_store(plane: Plane) -> None:
    for name in AGENTS:
        nodes.join_node(plane, SYSTEM, Join(name=name, facts=facts_of(name, 4))).result(10)
    crowd, made = Crowd(), list[Job]()
    crowd.start(drive, plane, crowd)
    for name in AGENTS:
        crowd.start(serve, plane, crowd, name)
    people = Crowd()
    for _ in range(3):
        people.start(ask, plane, made)
    for thread in people.threads:
        thread.join(60)
    people.join()
    until = time.monotonic() + 60
    while plane.world.jobs and time.monotonic() < until:
        time.sleep(0.02)
        plane.world.catch_up()
    crowd.join()
    assert not plane.world.jobs
    assert check_plane(plane) == ()
    assert plane.troubles == {}
    assert len(made) == JOBS
    ends = [row.subject for row in plane.store.events_after("default", 0, 100_000) if isinstance(row.body, JobEnded)]
    assert sorted(ends) == sorted(job.id for job in made)
    for job in plane.store.jobs_by_id(tuple(job.id for job in made)):
        assert job.state in (JobState.SUCCEEDED, JobState.CANCELLED)
        if job.state is JobState.SUCCEEDED:
            assert plane.logs.read(job.id, 1, 0, 0, 10) == b"out\n"
