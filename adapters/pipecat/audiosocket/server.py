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

from ....tts_engine.errors import MissingExtra
from .call_protocol import PipecatAudioSocketProtocol
from .transport import AudioSocketCaller, AudioSocketParams, AudioSocketTransport

try:
    from loguru import logger
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat transport", "pipecat") from error

__all__ = ["AudioSocketCaller", "AudioSocketParams", "AudioSocketTransport", "PipecatAudioSocketServer"]


class PipecatAudioSocketServer:
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
        self._call_protocols: set[PipecatAudioSocketProtocol] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connection_count = 0
        self._all_disconnected = asyncio.Event()
        self._all_disconnected.set()
        self._listener: asyncio.Server | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> "PipecatAudioSocketServer":
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
        return len(self._call_protocols)

    @property
    def active_bots(self) -> int:
        """Answers that have not returned yet; a bot needs a moment after its call."""
        return len(self._tasks)

    async def start(self) -> None:
        """Listen; raises OSError if the address cannot be had."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: PipecatAudioSocketProtocol(self), host, port)

    async def wait_closed(self) -> None:
        """Wait until ``aclose`` is called."""
        await self._closed.wait()

    async def aclose(self, within_s: float = 5.0) -> None:
        """Take no more calls, hang up those that are up, wait for their tasks, and cancel late ones."""
        self._closed.set()
        self._max_calls = 0
        if self._listener is not None:
            self._listener.close()
        for protocol in tuple(self._call_protocols):
            protocol.end("the server is closing")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._all_disconnected.wait()

    # What legs call

    def admit(self, protocol: PipecatAudioSocketProtocol) -> bool:
        """A connection came; whether it may become a call."""
        self._connection_count += 1
        self._all_disconnected.clear()
        if len(self._call_protocols) >= self._max_calls:
            return False
        self._call_protocols.add(protocol)
        return True

    def call_ended(self, protocol: PipecatAudioSocketProtocol) -> None:
        """A call is over; its connection may take a moment longer."""
        self._call_protocols.discard(protocol)

    def connection_closed(self) -> None:
        """A connection is gone."""
        self._connection_count -= 1
        if not self._connection_count:
            self._all_disconnected.set()

    def open_call(self, protocol: PipecatAudioSocketProtocol, uuid: UUID) -> int:
        """A call has begun; answers the rate at which it is sent audio, Hz."""
        params = self._params()
        transport = AudioSocketTransport(protocol, AudioSocketCaller(uuid, protocol.peer), params)
        task = asyncio.get_running_loop().create_task(self._run_bot(protocol, transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return params.audio_out_sample_rate or 8_000

    async def _run_bot(self, protocol: PipecatAudioSocketProtocol, transport: AudioSocketTransport) -> None:
        try:
            await self._answer(transport)
        except Exception:  # boundary: one call's fault must not reach the others
            logger.exception(f"Call {protocol.name} failed")
        finally:
            protocol.end("the bot is done")
