"""AudioSocket server: accepts connections and hands each over once its call id has arrived."""

import asyncio
import socket
from typing import Final

from ..unidentified_connections import DEFAULT_MAX_UNIDENTIFIED, UnidentifiedConnections
from .pending_call import CallApplication, PendingCall
from .server_connection import AudioSocketTimeouts

_DEFAULT_TIMEOUTS: Final = AudioSocketTimeouts()


class AudioSocketServer:
    """Accepts AudioSocket connections; each becomes a call or is refused by the application.

    Args:
        application: admits connections and takes their calls.
        timeouts: time limits for the callers.
        awaits_audio_s: how long a call waits for its first audio before it is opened.
        unidentified: connections without a call's id, or that were refused and linger; None: 500 at most.
    """

    def __init__(
        self,
        application: CallApplication,
        *,
        timeouts: AudioSocketTimeouts = _DEFAULT_TIMEOUTS,
        awaits_audio_s: float = 0.0,
        unidentified: UnidentifiedConnections | None = None,
    ) -> None:
        if unidentified is None:
            unidentified = UnidentifiedConnections(DEFAULT_MAX_UNIDENTIFIED, DEFAULT_MAX_UNIDENTIFIED)
        self._unidentified = unidentified
        self._awaits_audio_s = awaits_audio_s
        self._application = application
        self._timeouts = timeouts
        self._listener: asyncio.Server | None = None
        self._pending: set[PendingCall] = set()  # of which something is left here
        self._none_pending = asyncio.Event()
        self._none_pending.set()

    @property
    def port(self) -> int:
        """The TCP port that it listens on; only after ``listen``."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    async def listen(self, host: str, port: int) -> None:
        """Listen on an address; port 0 is any free port. Raises OSError if it is not available."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._new_call, host, port)

    async def listen_on(self, sock: socket.socket) -> None:
        """Listen on a bound socket, which ``aclose`` closes. Raises OSError if its address is in use."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._new_call, sock=sock)

    async def aclose(self, reason: str) -> None:
        """Close the listener, end all pending connections, and wait until nothing is left of them.

        The application must already refuse new calls: connections that the kernel has accepted may still
        arrive.
        """
        if self._listener is not None:
            self._listener.close()
        for call in tuple(self._pending):
            call.end(reason)
        await self._none_pending.wait()

    def _new_call(self) -> PendingCall:
        call = PendingCall(
            self._application, self._timeouts, self._awaits_audio_s, self._unidentified, self._remove
        )
        self._pending.add(call)
        self._none_pending.clear()
        return call

    def _remove(self, call: PendingCall) -> None:
        self._pending.discard(call)
        if not self._pending:
            self._none_pending.set()
