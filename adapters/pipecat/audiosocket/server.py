"""Telephone calls for Pipecat: Asterisk connects over AudioSocket, and each call becomes a transport.

    async def answer(transport: AudioSocketTransport) -> None:      # one call
        pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
        ...

    async with PipecatAudioSocketServer(answer, port=9092) as server:
        await server.wait_closed()

``adapters.audiosocket.server`` accepts the connections and applies the protocol's rules.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from loguru import logger

from ...audiosocket.call import AudioSocketCall
from ...audiosocket.server import AudioSocketServer, TimerPacer
from ...audiosocket.server_connection import AudioSocketTimeouts
from .call_handler import PipecatCallHandler
from .params import AudioSocketCaller, AudioSocketParams
from .transport import AudioSocketTransport

_TIMEOUTS: Final = AudioSocketTimeouts(first_message_s=5.0, stalled_s=5.0)


class PipecatAudioSocketServer:
    """Accepts calls and creates a transport for each.

    ``answer(transport)`` runs in a task of its own. The call is hung up when it returns or raises. Calls
    beyond ``max_calls`` are refused at once.

    Args:
        answer: Serves one call.
        host: Address to listen on.
        port: Port; 0 for any free port, see ``port``.
        params: Creates the parameters of each call.
        max_calls: Maximum number of simultaneous calls.
    """

    def __init__(
        self,
        answer: Callable[[AudioSocketTransport], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 9092,
        params: Callable[[], AudioSocketParams] = AudioSocketParams,
        max_calls: int = 100,
    ) -> None:
        self._answer = answer
        self._address = host, port
        self._params = params
        self._max_calls = max_calls
        self._admitted: set[AudioSocketCall] = set()  # calls that have not ended
        self._server = AudioSocketServer(self, pacer=TimerPacer(), timeouts=_TIMEOUTS)
        self._closed = asyncio.Event()

    async def __aenter__(self) -> "PipecatAudioSocketServer":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def port(self) -> int:
        """The TCP port that it listens on; only after ``start``."""
        return self._server.port

    @property
    def calls(self) -> int:
        """Number of calls that have not ended."""
        return len(self._admitted)

    @property
    def active_bots(self) -> int:
        """Number of ``answer`` tasks that have not returned; a bot may outlast its call by a moment."""
        return sum(call.task is not None and not call.task.done() for call in self._server.calls)

    async def start(self) -> None:
        """Listen. Raises OSError if the address is not available."""
        host, port = self._address
        await self._server.listen(host, port)

    async def wait_closed(self) -> None:
        """Wait until ``aclose`` is called."""
        await self._closed.wait()

    async def aclose(self, within_s: float = 5.0) -> None:
        """Refuse new calls, end all calls and wait for their tasks; cancel those that take longer."""
        self._closed.set()
        self._max_calls = 0
        await self._server.aclose("the server is closing", within_s=within_s)

    # Called by the shared server

    def admit(self, call: AudioSocketCall) -> bool:
        """Return whether there are fewer than ``max_calls`` calls."""
        if len(self._admitted) >= self._max_calls:
            logger.warning(f"Call {call.name} refused: too many calls are up")
            return False
        self._admitted.add(call)
        return True

    def open(self, call: AudioSocketCall, call_id: UUID, start: float) -> PipecatCallHandler:
        """Create the handler of a call."""
        params = self._params()

        async def answer(handler: PipecatCallHandler) -> None:
            await self._answer(AudioSocketTransport(handler, AudioSocketCaller(call_id, call.peer), params))

        logger.info(f"Call {call.name} opened from {call.peer}")
        return PipecatCallHandler(call, start, params.audio_out_sample_rate or 8_000, answer)

    def on_ended(self, call: AudioSocketCall, reason: str) -> None:
        """Release the place of a call, and log the end of a connection that sent no call id."""
        self._admitted.discard(call)
        if call.call_id is None:
            logger.info(f"Call {call.name} closed before its id arrived: {reason}")

    def log_protocol_error(self, call: AudioSocketCall, error: str) -> None:
        """Log an error of the peer as a warning."""
        logger.warning(f"Call {call.name}: {error}")

    def log_internal_error(self, call: AudioSocketCall, error: Exception) -> None:
        """Log an exception with its traceback."""
        logger.opt(exception=error).error(f"Call {call.name} failed")
