"""The threads that encode speech: order by urgency, errors, cancellation."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.event_loop import until
from vivavoce.gateway.apis.shell.encoding_threads import EncodingThreads

TIMEOUT_S = 30.0


def run(test: Callable[[EncodingThreads], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        threads = EncodingThreads(1)
        async with asyncio.timeout(TIMEOUT_S):
            await test(threads)
        threads.close()

    asyncio.run(within())


def occupy(threads: EncodingThreads, release: threading.Event) -> "asyncio.Future[list[bool]]":
    """Keep the only thread, and the place before it, busy until ``release`` is set."""
    runs = (threads.run((False, 0.0), lambda: release.wait(TIMEOUT_S)) for _ in range(2))
    return asyncio.gather(*runs)


def test_utterances_without_audio_come_first_and_then_the_one_that_runs_dry_soonest() -> None:
    async def test(threads: EncodingThreads) -> None:
        release, order = threading.Event(), list[str]()
        busy = occupy(threads, release)
        urgencies = {"later": (True, 9.0), "soon": (True, 5.0), "newer": (False, 8.0), "first": (False, 7.0)}
        waiting = [
            asyncio.create_task(threads.run(urgency, lambda name=name: order.append(name)))
            for name, urgency in urgencies.items()
        ]
        await asyncio.sleep(0)  # each task has queued its work
        release.set()
        await asyncio.gather(busy, *waiting)
        assert order == ["first", "newer", "soon", "later"]

    run(test)


def test_work_of_a_client_that_has_left_is_not_begun() -> None:
    async def test(threads: EncodingThreads) -> None:
        release, done = threading.Event(), list[str]()
        busy = occupy(threads, release)
        left = asyncio.create_task(threads.run((False, 1.0), lambda: done.append("left")))
        stays = asyncio.create_task(threads.run((True, 2.0), lambda: done.append("stays")))
        await asyncio.sleep(0)
        left.cancel()
        await until(left.done)
        release.set()
        await asyncio.gather(busy, stays)
        assert left.cancelled() and done == ["stays"]

    run(test)


def test_an_error_is_raised_where_the_result_is_awaited_and_the_thread_goes_on() -> None:
    async def test(threads: EncodingThreads) -> None:
        with pytest.raises(ZeroDivisionError):
            await threads.run((False, 0.0), lambda: 1 // 0)
        assert await threads.run((False, 0.0), lambda: 7) == 7

    run(test)
