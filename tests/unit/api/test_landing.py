"""Futures set on another thread land on the loop: results, errors, many at once, and without those who went away."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from shoal.api.landing import Landing


def test_results_and_errors_land(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        landing = Landing(asyncio.get_running_loop())
        good, bad, done = Future[int](), Future[int](), Future[int]()
        done.set_result(3)
        waiting = [asyncio.ensure_future(landing.settle(future)) for future in (good, bad, done)]
        await asyncio.sleep(0)
        threading.Thread(target=lambda: (good.set_result(1), bad.set_exception(ValueError("no")))).start()
        assert await waiting[0] == 1
        with pytest.raises(ValueError, match="no"):
            await waiting[1]
        assert await waiting[2] == 3

    asyncio.run(main())


def test_a_waiter_that_was_cancelled_takes_nothing_back() -> None:
    async def main() -> None:
        landing = Landing(asyncio.get_running_loop())
        future, other = Future[int](), Future[int]()
        waiting = asyncio.ensure_future(landing.settle(future))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not future.cancelled()
        future.set_result(1)
        other.set_result(2)
        assert await landing.settle(other) == 2

    asyncio.run(main())


def test_none_is_lost_among_thousands_from_several_threads() -> None:
    async def main() -> None:
        landing = Landing(asyncio.get_running_loop())
        futures = [Future[int]() for _ in range(4_000)]
        waiting = [asyncio.ensure_future(landing.settle(future)) for future in futures]
        await asyncio.sleep(0)

        def set_some(first: int) -> None:
            for number in range(first, len(futures), 4):
                futures[number].set_result(number)

        threads = [threading.Thread(target=set_some, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == list(range(4_000))

    asyncio.run(main())
