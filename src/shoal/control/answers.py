"""
Futures one after another: an answer made from a durable write, without a thread that waits for it.

The store answers with `concurrent.futures.Future`; `api` awaits one with `asyncio.wrap_future`, steps wait for a group at once. A
future made here cannot be cancelled: an asker that goes away takes nothing back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def done(value: A) -> Future[A]:
    """A future that has its answer already."""
    future: Future[A] = Future()
    future.set_result(value)
    return future


def at_once(work: Callable[[], None]) -> Future[None]:
    """Does `work` here and now; the shape of an executor's `submit`."""
    future: Future[None] = Future()
    try:
        work()
        future.set_result(None)
    except BaseException as error:
        future.set_exception(error)
    return future


def then(first: Future[A], make: Callable[[A], B]) -> Future[B]:
    """`make(answer)` once `first` has its answer; the error of either. `make` runs in the thread that ended `first`: keep it short."""
    second: Future[B] = Future()
    second.set_running_or_notify_cancel()

    def pass_on(ended: Future[A]) -> None:
        try:
            second.set_result(make(ended.result()))
        except BaseException as error:
            second.set_exception(error)

    first.add_done_callback(pass_on)
    return second


def chain(first: Future[A], make: Callable[[A], Future[B]]) -> Future[B]:
    """As `then`, where `make` itself answers with a future."""
    second: Future[B] = Future()
    second.set_running_or_notify_cancel()

    def pass_on(ended: Future[A]) -> None:
        try:
            make(ended.result()).add_done_callback(lambda last: _copy(last, second))
        except BaseException as error:
            second.set_exception(error)

    first.add_done_callback(pass_on)
    return second


def gather(futures: Sequence[Future[A]]) -> Future[tuple[Future[A], ...]]:
    """The same futures, once every one has ended, well or not."""
    held = tuple(futures)
    if not held:
        return done(())
    whole: Future[tuple[Future[A], ...]] = Future()
    whole.set_running_or_notify_cancel()
    lock = threading.Lock()
    left = len(held)

    def count(_ended: Future[A]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            whole.set_result(held)

    for future in held:
        future.add_done_callback(count)
    return whole


def _copy(source: Future[B], target: Future[B]) -> None:
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
