"""Signals that stop the server, waited for beside its work."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Self, TypeVar

from ....background_tasks import cancel_and_wait

T = TypeVar("T")


class StopSignals:
    """Waits for SIGTERM and SIGINT; the handlers are installed inside its ``async with``.

    SIGHUP says that the terminal was closed, and stops a server that was started in one. Otherwise it sets
    ``hung_up``: service managers send it to have settings read again.
    """

    def __init__(self) -> None:
        self._received: asyncio.Queue[int] = asyncio.Queue()
        self.hung_up = asyncio.Event()
        stop = self._received.put_nowait
        self._handlers: dict[signal.Signals, Callable[[int], None]] = {
            signal.SIGTERM: stop,
            signal.SIGINT: stop,
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            self._handlers[signal.SIGHUP] = stop if os.isatty(0) else self._hang_up

    async def __aenter__(self) -> Self:
        for number, handler in self._handlers.items():
            asyncio.get_running_loop().add_signal_handler(number, handler, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in self._handlers:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def interrupts(self, work: "asyncio.Task[T]") -> bool:
        """Wait for ``work`` or the next signal, which cancels the work; return whether a signal came.

        Raises the exception of the work.
        """
        signalled = asyncio.create_task(self._received.get())
        try:
            await asyncio.wait({work, signalled}, return_when=asyncio.FIRST_COMPLETED)
            stopped = signalled.done() and not work.done()
        finally:
            await cancel_and_wait(signalled)
            if not work.done():
                await cancel_and_wait(work)
        if not work.cancelled():
            work.result()
        return stopped

    def _hang_up(self, number: int) -> None:
        self.hung_up.set()
