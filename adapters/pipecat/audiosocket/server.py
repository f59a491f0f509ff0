"""Telephone calls for Pipecat: Asterisk connects over AudioSocket, and each call becomes a transport.

    async def answer(transport: AudioSocketTransport) -> None:      # one call
        pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
        ...

    async with PipecatAudioSocketServer(answer, port=9092) as server:
        await server.wait_closed()

``adapters.audiosocket.server`` accepts the connections, and a media server (``adapters.media``), by default a
process of its own, plays the speech: what a pipeline loads or computes is not heard on other calls.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from loguru import logger

from ...audiosocket.pending_call import NoRoomForCall, PendingCall
from ...audiosocket.server import AudioSocketServer
from ...audiosocket.server_connection import AudioSocketTimeouts
from ...audiosocket.wire import AudioSocketOpening
from ...media.phone_media import PhoneCallOptions
from ...media.servers.media_servers import MediaServers
from ...playback.background import BackgroundSounds
from .call_handler import PipecatCallHandler
from .params import AudioSocketCaller, AudioSocketParams
from .transport import AudioSocketTransport

# Words enter the conversation when they are heard, also where the machine delays the speech.
_REPORT_TICKS: Final = 2  # packets, 40 ms
_MAX_ASSUMED_S: Final = 0.06  # after a report
_TOO_MANY_CALLS: Final = "too many calls are up"
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
        media_processes: Processes that play the speech; 0: a thread of this process. None: 1 with more than
            one processor core, else 0.
        sounds: Under the speech of every call; the thinking sound is heard until the bot answers.
    """

    def __init__(
        self,
        answer: Callable[[AudioSocketTransport], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 9092,
        params: Callable[[], AudioSocketParams] = AudioSocketParams,
        max_calls: int = 100,
        media_processes: int | None = None,
        sounds: BackgroundSounds | None = None,
    ) -> None:
        self._answer = answer
        self._address = host, port
        self._params = params
        self._max_calls = max_calls
        self._handlers: set[PipecatCallHandler] = set()  # of calls that have not ended
        self._bots: set[asyncio.Task[None]] = set()
        self._media = MediaServers(media_processes, sounds=sounds or BackgroundSounds())
        self._server = AudioSocketServer(self, timeouts=_TIMEOUTS)
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
        return len(self._handlers)

    @property
    def active_bots(self) -> int:
        """Number of ``answer`` tasks that have not returned; a bot may outlast its call by a moment."""
        return len(self._bots)

    async def start(self) -> None:
        """Listen. Raises OSError if the address is not available."""
        await self._media.start()
        host, port = self._address
        await self._server.listen(host, port)

    async def wait_closed(self) -> None:
        """Wait until ``aclose`` is called."""
        await self._closed.wait()

    async def aclose(self, within_s: float = 5.0) -> None:
        """Refuse new calls, end all calls and wait for their tasks; cancel those that take longer."""
        self._closed.set()
        self._max_calls = 0
        await self._server.aclose("the server is closing")
        for handler in tuple(self._handlers):
            handler.end("the server is closing")
        if self._bots:
            _, late = await asyncio.wait(self._bots, timeout=within_s)
            for bot in late:
                bot.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._media.aclose()

    # Called by the shared server

    def has_room(self, call: PendingCall) -> bool:
        """Return whether there are fewer than ``max_calls`` calls."""
        if self.calls >= self._max_calls:
            logger.warning(f"Call {call.name} refused: {_TOO_MANY_CALLS}")
            return False
        return True

    def open(self, call: PendingCall, call_id: UUID, sock: socket.socket, received: bytes) -> None:
        """Open a call and start its bot; raises NoRoomForCall."""
        if not self.has_room(call):
            raise NoRoomForCall(_TOO_MANY_CALLS)
        params = self._params()
        sample_rate = params.audio_out_sample_rate or 8_000
        handler = PipecatCallHandler(call_id, call.peer, sample_rate, self._handlers.discard)
        options = PhoneCallOptions(
            sample_rate,
            _TIMEOUTS.stalled_s,
            report_ticks=_REPORT_TICKS,
            max_assumed_s=_MAX_ASSUMED_S,
        )
        wire = AudioSocketOpening(call_id, received)
        handler.attach(self._media.open_phone_call(wire, sock, handler, options))
        logger.info(f"Call {call_id} opened from {call.peer}")
        self._handlers.add(handler)
        bot = asyncio.create_task(self._run_bot(handler, params))
        self._bots.add(bot)
        bot.add_done_callback(self._bots.discard)

    def log_protocol_error(self, call: PendingCall, error: str) -> None:
        """Log an error of the peer as a warning."""
        logger.warning(f"Call {call.name}: {error}")

    def log_internal_error(self, call: PendingCall, error: Exception) -> None:
        """Log an exception with its traceback."""
        logger.opt(exception=error).error(f"Call {call.name} failed")

    async def _run_bot(self, handler: PipecatCallHandler, params: AudioSocketParams) -> None:
        caller = AudioSocketCaller(handler.call_id, handler.peer)
        try:
            await self._answer(AudioSocketTransport(handler, caller, params))
        except Exception as error:  # boundary: an error in one call must not affect the others
            handler.fail(error)
        finally:
            handler.end("the bot is done")
