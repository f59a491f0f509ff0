"""Threads that encode speech, the most urgent utterance first.

    await threads.run(urgency, encode)

The event loop's default threads take work in the order in which it comes. With 50 listeners, a piece that a
listener waits for then stands behind pieces that others have time for. The order here is the engine's:
utterances without any audio first, then by the time at which the listener runs dry.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ....tts_engine.process_limits import available_cores

T = TypeVar("T")

MAX_THREADS: Final = 2  # as the packaged voice has workers; more only contend for the interpreter

# Smaller is more urgent: whether the utterance has audio, and since when it waits or when the listener runs
# dry (monotonic s).
EncodingUrgency = tuple[bool, float]


class EncodingThreads:
    """Runs functions on a few threads in the order of their urgency. Belongs to one event loop.

    The threads start with the first use and end when the object is closed or collected.
    """

    def __init__(self, threads: int = min(MAX_THREADS, available_cores())) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="speech-encoding")
        self._places = threads + 1  # one is handed over ahead, so that no thread waits for the event loop
        self._waiting: list[tuple[EncodingUrgency, int, asyncio.Future[None]]] = []  # a heap
        self._numbers = itertools.count()  # orders equally urgent work

    async def run(self, urgency: EncodingUrgency, function: Callable[[], T]) -> T:
        """Return what the function returns. If cancelled before its turn, it is not called."""
        await self._wait_for_turn(urgency)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._end_turn()

    def close(self) -> None:
        """Take no more work; work under way goes on."""
        self._executor.shutdown(wait=False)

    async def _wait_for_turn(self, urgency: EncodingUrgency) -> None:
        if self._places:
            self._places -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came at the same time
                self._end_turn()
            raise

    def _end_turn(self) -> None:
        """Pass the place on to the most urgent work that still waits."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._places += 1
