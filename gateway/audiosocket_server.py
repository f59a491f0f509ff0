"""The AudioSocket server: Asterisk dials in over TCP, one connection a call, and an agent speaks on it.

What it owes Asterisk: one whole message in one write, at most 20 ms each, from the first tick on, silence
included; never a part of a message, never kinds 0x01, 0x03 or 0xff; always reading, whatever the peer does.
What a caller may do is ``adapters.audiosocket_line``'s to say, the pace ``adapters.playout``'s and
``gateway.clock``'s; what is said is the agent's affair.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from ..adapters.audiosocket import Audio, CallId, Dtmf, Hangup, ProtocolError
from ..adapters.audiosocket_line import LINGER_S, UNSENT_IN_KERNEL, Patience, ServerLine
from ..adapters.playout import Playout
from ..tts_engine.errors import Overloaded
from .agents import Agent
from .call import Call, OnSpeech, Speech, make_ear
from .call_registry import CallRegistry
from .clock import Clock

if TYPE_CHECKING:
    from ..tts_engine.engine import Engine

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AudioSocketPolicy:
    """What the server allows. Times in seconds, ``sample_rate`` of what it sends: 8000 or 24000 Hz.

    ``first_message_s``: until a call's id has come. ``stalled_s``: that a peer may take nothing.
    """

    sample_rate: int
    first_message_s: float
    stalled_s: float
    lead_s: float
    speech: Speech
    on_speech: OnSpeech = OnSpeech.TELL


class AudioSocketServer:
    """Accepts connections, each a call or none; the registry says which fit."""

    def __init__(
        self,
        *,
        engine: "Engine",
        clock: Clock,
        agent: Agent,
        policy: AudioSocketPolicy,
        registry: CallRegistry,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.agent = agent
        self.policy = policy
        self.registry = registry
        self._connections: set[_Leg] = set()
        self._nobody = asyncio.Event()  # set while there are no connections
        self._nobody.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Accept calls on a bound socket, which the server closes in the end."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.new_leg, sock=sock)

    def new_leg(self) -> "_Leg":
        """A protocol for one connection to this server."""
        return _Leg(self)

    async def aclose(self) -> None:
        """Close the listener, end every call, and wait until its tasks and connections are gone."""
        self.registry.refuse_calls()
        if self._listener is not None:
            self._listener.close()
        for leg in tuple(self._connections):
            leg.end("shutting down")
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._nobody.wait()

    # What legs call

    def remember(self, leg: "_Leg") -> None:
        """A connection exists."""
        self._connections.add(leg)
        self._nobody.clear()

    def forget(self, leg: "_Leg") -> None:
        """A connection exists no more."""
        self._connections.discard(leg)
        if not self._connections:
            self._nobody.set()

    def own(self, task: asyncio.Task[None]) -> None:
        """Keep a call's task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Leg(asyncio.Protocol):
    """One connection. Boundary: whatever goes wrong in it ends this connection alone."""

    def __init__(self, server: AudioSocketServer) -> None:
        self.call: Call | None = None
        self._server = server
        self._policy = server.policy
        self._peer = "?"
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._line = ServerLine(
            self._loop.time(), Patience(self._policy.first_message_s, self._policy.stalled_s)
        )
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    @property
    def dropped(self) -> int:
        """Packets that the peer did not take in time."""
        return self._line.dropped

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self._peer = f"{host}:{port}"
        _prepare(transport.get_extra_info("socket"))
        self._server.remember(self)
        try:
            self._server.registry.admit(self, peer=self._peer)
        except Overloaded:
            self._over = True
            self._say_goodbye()
            return
        self._set_timer(self._line.deadline, self._on_deadline)

    def data_received(self, data: bytes) -> None:
        if not self._over:
            self._line.receive_data(data)
            self._take_events()

    def eof_received(self) -> None:
        if not self._over:
            self._line.receive_eof()
            self._take_events()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._close("the caller hung up" if exc is None else f"the caller's connection broke ({exc})")
        self._server.forget(self)

    # What the clock calls

    def tick(self, now: float) -> int:
        return 0 if self.call is None or self._over else self.call.tick(now)

    def fail(self, error: Exception) -> None:
        logger.error("Call %s failed", self._name, exc_info=error)
        self.end("an error of ours")

    # What the peer says

    def _take_events(self) -> None:
        try:
            for event in self._line.events(self._loop.time()):
                self._handle(event)
                if self._over:
                    return
        except ProtocolError as error:
            self._fault(error)
        except Exception as error:
            self.fail(error)
        else:
            self._set_timer(self._line.deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        try:
            self._line.check(self._loop.time())
        except ProtocolError as error:
            self._fault(error)

    def _handle(self, event: CallId | Audio | Dtmf | Hangup) -> None:
        match event:
            case Audio(sample_rate, payload):
                if self.call is not None:
                    self.call.hear(payload, sample_rate)
            case CallId(uuid):
                self._open(str(uuid))
            case Dtmf(digit):
                if self.call is not None:
                    self.call.press(digit)
            case Hangup():
                self._close("the caller hung up")
                self._transport.close()
                self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)
            case _:
                assert_never(event)

    def _open(self, call_id: str) -> None:
        start = self._server.clock.join(self)
        self.call = Call(
            call_id,
            engine=self._server.engine,
            playout=Playout(start=start, sample_rate=self._policy.sample_rate),
            send=self._send,
            close=self.end,
            speech=self._policy.speech,
            lead_s=self._policy.lead_s,
        )
        self.call.on_speech = self._policy.on_speech
        self.call.listen_for_speech(make_ear())
        self._server.registry.open(self, self.call, kind="audiosocket", peer=self._peer)
        self._task = self._loop.create_task(self._attend(self.call))
        self._server.own(self._task)

    async def _attend(self, call: Call) -> None:
        try:
            await self._server.agent.run(call)
            await call.finish()
        except Exception as error:
            self.fail(error)

    # What the peer hears

    def _send(self, packet: bytes) -> None:
        audio = Audio(self._policy.sample_rate, packet)
        if message := self._line.packet(audio, self._transport.get_write_buffer_size()):
            self._transport.write(message)
        elif self._line.stalled:
            logger.warning("Call %s: the peer has taken nothing for %g s", self._name, self._policy.stalled_s)
            self._close("the peer stopped reading")
            self._transport.abort()

    # Ends

    def end(self, reason: str) -> None:
        """End the call with 0x00, so that the dial plan goes on; what still comes is read and dropped."""
        if not self._over:
            self._close(reason)
            self._say_goodbye()

    def _fault(self, error: ProtocolError) -> None:
        logger.warning("Call %s: %s", self._name, error)
        self.end(str(error))

    def _say_goodbye(self) -> None:
        # Half closed, not closed: data that we have not read would turn the close into a reset, which makes
        # Asterisk hang the caller up instead of going on with its dial plan.
        self._transport.write(self._line.goodbye())
        with contextlib.suppress(OSError):  # a peer that is gone need not be told
            self._transport.write_eof()
        self._set_timer(self._loop.time() + LINGER_S, self._transport.abort)

    def _close(self, reason: str) -> None:
        """Stop everything of this call; closing the socket is the caller's."""
        if self._over:
            return
        self._over = True
        self._server.clock.leave(self)
        if self._task is not None:
            self._task.cancel()
        self._server.registry.leave(self, reason)

    @property
    def _name(self) -> str:
        return f"from {self._peer}" if self.call is None else self.call.call_id

    def _set_timer(self, at: float | None, then: Callable[[], object] | None = None) -> None:
        """Run ``then`` at ``at`` (loop's time) instead of what the timer was set to; None stops it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None or then is None else self._loop.call_at(at, then)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
