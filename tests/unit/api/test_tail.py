"""The tail on a real store: who is woken, what is remembered, and what a slow reader must fetch from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from msgspec.structs import replace

from shoal.api import tail as module
from shoal.api.tail import EVENTS, Tail, job_key, log_key
from shoal.base.errors import Unavailable, VersionExpired
from shoal.base.limits import WATCHERS_MAX
from shoal.model.change import Change, ChangeSet
from shoal.model.event import EventRow, JobHeld
from shoal.model.job import Job, JobSpec, JobState
from shoal.store.protocol import Store
from shoal.store.sql import open_store

JOB = Job(id="", number=0, project="p", owner="o", spec=JobSpec(), queue="q", state=JobState.QUEUED, created_ms=1, queued_ms=1)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(":memory:")
    yield opened
    opened.close()


def run(store: Store, test: Callable[[Tail, Callable[..., int]], Awaitable[None]]) -> None:
    """Runs `test` with a tail of `store` and a way to write to it."""
    term = store.take_term("test")

    async def main() -> None:
        tail = Tail(store, asyncio.get_running_loop())
        numbers = iter(range(1, 1_000_000))

        def write(job_id: str = "j", events: int = 1) -> int:
            number = next(numbers)
            unique = f"{job_id}-{number}" if job_id == "j" else job_id
            job = replace(JOB, id=unique, number=number)
            rows = tuple(EventRow(kind="job", subject=unique, project="p", at_ms=1, body=JobHeld()) for _ in range(events))
            return store.apply(ChangeSet(put=(job,), events=rows), term).result(5).version  # type: ignore[union-attr]

        try:
            await asyncio.wait_for(test(tail, write), 20)  # type: ignore[arg-type]
        finally:
            tail.close()

    asyncio.run(main())


def test_a_watcher_is_woken_by_its_own_key_alone(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(job_key("a")) as mine, tail.watch(job_key("b")) as other:
            write("a")
            assert await mine.next(5)
            assert not await other.next(0.05)

    run(store, test)


def test_a_change_between_look_and_wait_is_not_lost(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(job_key("a")) as watch:
            write("a")
            await asyncio.sleep(0.05)
            assert await watch.next(0)
            assert not await watch.next(0.05), "told once"

    run(store, test)


class Forgetful:
    """A store that keeps no changes up to `floor`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.floor = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def changes_after(self, version: int, limit: int) -> tuple[Change, ...]:
        if version < self.floor:
            raise VersionExpired(f"changes after version {version} are gone")
        return self._store.changes_after(version, limit)


def test_a_tail_that_slept_for_longer_than_changes_are_kept_wakes_everybody_and_goes_on(store: Store) -> None:
    forgetful = Forgetful(store)

    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(EVENTS) as events, tail.watch(job_key("a")) as job, tail.watch(log_key("a", 1, 0)) as log:
            before = tail.place
            forgetful.floor = write("a")  # The loop stands still meanwhile.
            for watch in (events, job, log):
                assert await watch.next(5)
            assert tail.place == forgetful.floor
            assert tail.recent(before, 10) is None, "these are in the store alone"
            version = write("b")
            assert await events.next(5)
            assert not await job.next(0.05)
            assert [row.version for row in tail.recent(forgetful.floor, 10) or ()] == [version]

    run(forgetful, test)  # type: ignore[arg-type]


def test_log_keys_are_touched_by_hand(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(log_key("a", 1, 0)) as watch, tail.watch(log_key("a", 1, 1)) as other:
            tail.touch(log_key("a", 1, 0))
            assert await watch.next(1)
            assert not await other.next(0.02)

    run(store, test)


def test_recent_events_are_those_of_the_store(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        write()
        with tail.watch(EVENTS) as watch:
            start = tail.place
            last = [write(events=2) for _ in range(5)][-1]
            while tail.place < last:
                assert await watch.next(5)
            recent = tail.recent(start, 1_000)
            assert recent == list(store.events_after("p", start, 1_000))
            assert len(recent) == 10
            assert tail.recent(last, 1_000) == []
            assert tail.recent(start - 1, 1_000) is None, "what was before the first watcher is not in memory"

    run(store, test)


def test_a_limit_never_splits_a_version(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(EVENTS) as watch:
            start = tail.place
            last = [write(events=3) for _ in range(3)][-1]
            while tail.place < last:
                assert await watch.next(5)
            rows = tail.recent(start, 4)
            assert rows is not None
            assert [row.ordinal for row in rows] == [0, 1, 2] * 2

    run(store, test)


def test_a_reader_behind_what_is_kept_is_sent_to_the_store(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(EVENTS) as watch:
            start = tail.place
            count = module.EVENTS_KEPT // 500 + 2
            last = [write(events=500) for _ in range(count)][-1]
            while tail.place < last:
                assert await watch.next(5)
            assert tail.recent(start, 10) is None
            kept = tail.recent(last - 3, 10_000)
            assert kept == list(store.events_after("p", last - 3, 10_000))

    run(store, test)


def test_with_nobody_watching_nothing_is_read(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(EVENTS):
            pass
        place = tail.place
        write()
        await asyncio.sleep(0.05)
        assert tail.place == place
        with tail.watch(EVENTS):
            assert tail.place == store.version(), "the next watcher begins at what is true now"

    run(store, test)


def test_watchers_are_bounded_and_told_to_wait(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        held = [tail.watch(EVENTS) for _ in range(WATCHERS_MAX)]
        for watch in held:
            watch.__enter__()
        with pytest.raises(Unavailable) as full, tail.watch(EVENTS):
            pass
        assert full.value.retry_after_ms > 0
        for watch in held:
            watch.__exit__(None, None, None)
        assert tail.watchers == 0

    run(store, test)


def test_closing_wakes_everybody(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        with tail.watch(EVENTS) as watch, tail.alarm() as alarm:
            tail.close()
            assert await watch.next(1)
            assert await alarm.next(1)
        with pytest.raises(Unavailable), tail.watch(EVENTS):
            pass

    run(store, test)


def test_a_thousand_watchers_lag_less_than_a_second(store: Store) -> None:
    async def test(tail: Tail, write: Callable[..., int]) -> None:
        loop = asyncio.get_running_loop()
        lags: list[float] = []
        ready = 0

        async def watch_one() -> None:
            nonlocal ready
            with tail.watch(EVENTS) as watch:
                ready += 1
                place = tail.place
                while not tail.recent(place, 10):
                    await watch.next(5)
                lags.append(loop.time() - written_at[0])

        written_at = [0.0]
        tasks = [asyncio.ensure_future(watch_one()) for _ in range(1_000)]
        while ready < 1_000:
            await asyncio.sleep(0.01)
        written_at[0] = loop.time()
        write()
        await asyncio.gather(*tasks)
        assert max(lags) < 1.0

    run(store, test)
