"""AudioSocket server: accepts connections, and ends all calls when it closes.

Requirements of Asterisk: each message is one write, packets of 20 ms leave on an absolute schedule from the
first moment of the call, silence included; packets are dropped whole when the peer falls behind; kinds 0x01,
0x03 and 0xff are never sent; the server always reads. ``call.AudioSocketCall`` fulfils them for each
connection. The caller provides the application, the pacer and the address or the bound socket.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from .call import AudioSocketCall, CallApplication, CallPacer
from .server_connection import PTIME_S, AudioSocketTimeouts

_DEFAULT_TIMEOUTS: Final = AudioSocketTimeouts()


class AudioSocketServer:
    """Accepts AudioSocket connections; each is a call or refused by the application.

    Args:
        application: admits calls and handles them.
        pacer: ticks the calls that are up.
        timeouts: time limits for the callers.
        call_type: protocol of each connection.
    """

    def __init__(
        self,
        application: CallApplication,
        *,
        pacer: CallPacer,
        timeouts: AudioSocketTimeouts = _DEFAULT_TIMEOUTS,
        call_type: Callable[..., AudioSocketCall] = AudioSocketCall,
    ) -> None:
        self._call_type = call_type
        self._application = application
        self._pacer = pacer
        self._timeouts = timeouts
        self._listener: asyncio.Server | None = None
        self._calls: set[AudioSocketCall] = set()  # whose connection or task has not ended
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    @property
    def port(self) -> int:
        """The TCP port that it listens on; only after ``listen``."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def calls(self) -> tuple[AudioSocketCall, ...]:
        """The calls whose connection or task has not ended, refused ones included."""
        return tuple(self._calls)

    async def listen(self, host: str, port: int) -> None:
        """Listen on an address; port 0 is any free port. Raises OSError if it is not available."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.new_call, host, port)

    async def listen_on(self, sock: socket.socket) -> None:
        """Listen on a bound socket, which ``aclose`` closes. Raises OSError if its address is in use."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.new_call, sock=sock)

    def new_call(self) -> AudioSocketCall:
        """Create the asyncio protocol of one connection."""
        call = self._call_type(self._application, self._pacer, self._timeouts, self._remove)
        self._calls.add(call)
        self._all_closed.clear()
        return call

    async def aclose(self, reason: str, *, within_s: float | None = None) -> None:
        """Close the listener, end all calls, and wait until their tasks and connections have ended.

        Tasks that take longer than ``within_s`` are cancelled. The application must already refuse new calls:
        connections that the kernel has accepted may still arrive.
        """
        if self._listener is not None:
            self._listener.close()
        for call in self.calls:
            call.end(reason)
        tasks = {call.task for call in self._calls if call.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._all_closed.wait()

    def _remove(self, call: AudioSocketCall) -> None:
        self._calls.discard(call)
        if not self._calls:
            self._all_closed.set()


class TimerPacer:
    """Ticks each call with a timer of its own, every 20 ms from the moment it joins.

    The schedule is absolute, ``start + n * 20 ms``; ticks missed in a stall are left out, as in ``Playout``.
    """

    def __init__(self) -> None:
        self._handles: dict[AudioSocketCall, asyncio.Handle] = {}

    def join(self, call: AudioSocketCall) -> float:
        """Start ticking a call in the next iteration of the loop; return the time of the first tick."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        self._handles[call] = loop.call_soon(self._tick, call, start, 0)
        return start

    def leave(self, call: AudioSocketCall) -> None:
        """Stop ticking a call."""
        handle = self._handles.pop(call, None)
        if handle is not None:
            handle.cancel()

    def _tick(self, call: AudioSocketCall, start: float, number: int) -> None:
        loop = asyncio.get_running_loop()
        # A timer may fire up to the clock's resolution early.
        now = max(loop.time(), start + number * PTIME_S)
        try:
            call.tick(now)
        except Exception as error:  # boundary: an error in one call must not affect the others
            call.fail(error)
        if call in self._handles:  # a tick may end the call
            following = max(number, int((now - start) / PTIME_S)) + 1
            self._handles[call] = loop.call_at(
                start + following * PTIME_S, self._tick, call, start, following
            )
