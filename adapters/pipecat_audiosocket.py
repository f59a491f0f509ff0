"""Phone calls for Pipecat: Asterisk dials in over AudioSocket, and each call is a transport of its own.

    async def answer(transport: AudioSocketTransport) -> None:      # one call, from ring to hang-up
        pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
        ...

    async with AudioSocketServer(answer, port=9092) as server:
        await server.wait_closed()

What it owes Asterisk: one whole message in one write, 20 ms each, on an absolute schedule from the call's
first moment on, silence included; whole packets dropped where the peer falls behind; never a part of a
message, never kinds 0x01, 0x03 or 0xff; always reading. Here is the server; a connection of it is
``pipecat_audiosocket_leg``, a call in a pipeline ``pipecat_audiosocket_transport``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from ..tts_engine.errors import MissingExtra
from .pipecat_audiosocket_leg import Leg
from .pipecat_audiosocket_transport import AudioSocketParams, AudioSocketTransport, Caller

try:
    from loguru import logger
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat transport", "pipecat") from error

__all__ = ["AudioSocketParams", "AudioSocketServer", "AudioSocketTransport", "Caller"]


class AudioSocketServer:
    """Accepts calls and hands out one transport a call.

    ``answer(transport)`` runs in a task of its own and has the call until it returns; then, and when it
    raises, the call is hung up. Calls beyond ``max_calls`` are refused at once.

    Args:
        answer: What is done with a call.
        host: Address to listen on.
        port: Port; 0 for any free one, see ``port``.
        params: Makes the parameters of each call; the transport takes them as they are.
        max_calls: Calls at once.
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
        self._params = params
        self._answer = answer
        self._address = host, port
        self._max_calls = max_calls
        self._legs: set[Leg] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._listener: asyncio.Server | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> "AudioSocketServer":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def port(self) -> int:
        """The port that it listens on; after ``start``."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def calls(self) -> int:
        """Calls that are up now."""
        return len(self._legs)

    @property
    def bots(self) -> int:
        """Answers that have not returned yet; a bot needs a moment after its call."""
        return len(self._tasks)

    async def start(self) -> None:
        """Listen; raises OSError if the address cannot be had."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Leg(self), host, port)

    async def wait_closed(self) -> None:
        """Wait until ``aclose`` is called."""
        await self._closed.wait()

    async def aclose(self, within_s: float = 5.0) -> None:
        """Take no more calls, hang up those that are up, wait for their tasks, and cancel late ones."""
        self._closed.set()
        self._max_calls = 0
        if self._listener is not None:
            self._listener.close()
        for leg in tuple(self._legs):
            leg.end("the server is closing")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._nobody.wait()

    # What legs call

    def admit(self, leg: Leg) -> bool:
        """A connection came; whether it may become a call."""
        self._connections += 1
        self._nobody.clear()
        if len(self._legs) >= self._max_calls:
            return False
        self._legs.add(leg)
        return True

    def leave(self, leg: Leg) -> None:
        """A call is over; its connection may take a moment longer."""
        self._legs.discard(leg)

    def forget(self) -> None:
        """A connection is gone."""
        self._connections -= 1
        if not self._connections:
            self._nobody.set()

    def open(self, leg: Leg, uuid: UUID) -> int:
        """A call has begun; answers the rate at which it is sent audio, Hz."""
        params = self._params()
        transport = AudioSocketTransport(leg, Caller(uuid, leg.peer), params)
        task = asyncio.get_running_loop().create_task(self._attend(leg, transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return params.audio_out_sample_rate or 8_000

    async def _attend(self, leg: Leg, transport: AudioSocketTransport) -> None:
        try:
            await self._answer(transport)
        except Exception:  # boundary: one call's fault must not reach the others
            logger.exception(f"Call {leg.name} failed")
        finally:
            leg.end("the bot is done")
