"""The AudioSocket server: Asterisk dials in over TCP, one connection a call, and an agent speaks on it.

What it owes Asterisk: one whole message in one write, at most 20 ms each, from the first tick on, silence
included; never a part of a message, never kinds 0x01, 0x03 or 0xff; always reading, whatever the peer does.
The protocol is ``adapters.audiosocket``, the pace ``adapters.playout`` and ``gateway.clock``; what is said is
the agent's affair.

Source: app_audiosocket.c, chan_audiosocket.c and res_audiosocket.c of Asterisk 23.4.1, and what they were
seen to do: a payload later than its header by 5 ms ends the call, two silent seconds end the application,
nothing is buffered.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from ..adapters.audiosocket import (
    Audio,
    CallId,
    Companded,
    Connection,
    Dtmf,
    Error,
    Event,
    Hangup,
    ProtocolError,
    Role,
)
from ..adapters.playout import Playout
from ..tts_engine.errors import Overloaded
from .agents import Agent
from .call import Call, OnSpeech, Speech, make_ear
from .call_registry import CallRegistry
from .clock import PERIOD_S, Clock

if TYPE_CHECKING:
    from ..tts_engine.engine import Engine

logger = logging.getLogger(__name__)

_BACKLOG_PACKETS = (
    2  # unsent in the transport: more is a listener falling behind, and whole packets are dropped
)
_UNSENT_IN_KERNEL = 4096  # bytes; a quarter of a second at 8 kHz, after which the transport sees the backlog
_LINGER_S = 1.0  # Asterisk closes within milliseconds of our 0x00
_MESSAGES_AT_ONCE = 1500  # 30 s of a line after a network stall
_MESSAGES_A_SECOND = 200  # twice the densest line, 10 ms a message


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
        self.dropped = 0
        self._server = server
        self._policy = server.policy
        self._connection = Connection(Role.SERVER)
        self._peer = "?"
        self._messages = 0
        self._dropped_in_a_row = 0
        self._over = False
        self._started = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

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
        self._set_timer(self._policy.first_message_s, self._on_no_id)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._connection.receive_data(data)
        self._take_events()
        if not self._over and self.call is not None:
            self._watch_for_rest()

    def eof_received(self) -> None:
        if not self._over:
            self._connection.receive_eof()
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

    # Ends

    def end(self, reason: str) -> None:
        """End the call with 0x00, so that the dial plan goes on; what still comes is read and dropped."""
        if not self._over:
            self._close(reason)
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        # Half closed, not closed: data that we have not read would turn the close into a reset, which makes
        # Asterisk hang the caller up instead of going on with its dial plan.
        self._transport.write(self._connection.send(Hangup()))
        with contextlib.suppress(OSError):  # a peer that is gone need not be told
            self._transport.write_eof()
        self._set_timer(_LINGER_S, self._transport.abort)

    def _hung_up(self) -> None:
        self._close("the caller hung up")
        self._transport.close()
        self._set_timer(_LINGER_S, self._transport.abort)

    def _close(self, reason: str) -> None:
        """Stop everything of this call; closing the socket is the caller's."""
        if self._over:
            return
        self._over = True
        self._server.clock.leave(self)
        if self._task is not None:
            self._task.cancel()
        self._server.registry.leave(self, reason)

    def _fault(self, what: str) -> None:
        logger.warning("Call %s: %s", self._name, what)
        self.end(what)

    @property
    def _name(self) -> str:
        return f"from {self._peer}" if self.call is None else self.call.call_id

    def _set_timer(self, after_s: float | None, then: Callable[[], object] | None = None) -> None:
        """Run ``then`` after ``after_s`` instead of what the timer was set to before; None stops it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if after_s is not None and then is not None:
            self._timer = asyncio.get_running_loop().call_later(after_s, then)

    # What the peer says

    def _take_events(self) -> None:
        try:
            for event in self._connection.events():
                self._handle(event)
                if self._over:
                    return
        except ProtocolError as error:
            self._fault(f"the peer broke the protocol: {error}")
        except Exception as error:
            self.fail(error)

    def _watch_for_rest(self) -> None:
        if not self._connection.in_message:
            self._set_timer(None)
        elif self._timer is None:
            self._set_timer(self._policy.stalled_s, self._on_no_rest)

    def _on_no_rest(self) -> None:
        self._fault(f"a message was begun and not ended within {self._policy.stalled_s:g} s")

    def _on_no_id(self) -> None:
        self._fault(f"no call id within {self._policy.first_message_s:g} s")

    def _handle(self, event: Event) -> None:
        self._messages += 1
        if self._messages > _MESSAGES_AT_ONCE and self._is_flooding():
            self._fault(f"{self._messages} messages came faster than a line sends them")
            return
        match event:
            case CallId(uuid):
                self._open(str(uuid))
            case Audio(sample_rate, payload):
                if self.call is not None:
                    self.call.hear(payload, sample_rate)
            case Companded():
                self._fault(event.advice)
            case Dtmf(digit):
                if self.call is not None:
                    self.call.press(digit)
            case Hangup():
                self._hung_up()
            case Error(code):
                self._fault(f"the peer reported error {code:#04x}")
            case _:
                assert_never(event)

    def _is_flooding(self) -> bool:
        elapsed_s = time.monotonic() - self._started
        return self._messages > _MESSAGES_AT_ONCE + _MESSAGES_A_SECOND * elapsed_s

    def _open(self, call_id: str) -> None:
        self._set_timer(None)
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
        self._task = asyncio.get_running_loop().create_task(self._attend(self.call))
        self._server.own(self._task)

    async def _attend(self, call: Call) -> None:
        try:
            await self._server.agent.run(call)
            await call.finish()
        except Exception as error:
            self.fail(error)

    # What the peer hears

    def _send(self, packet: bytes) -> None:
        """One message in one write, or none at all: a part of one ends the call in Asterisk."""
        message = self._connection.send(Audio(self._policy.sample_rate, packet))
        if self._transport.get_write_buffer_size() > _BACKLOG_PACKETS * len(message):
            self._drop()
            return
        self._dropped_in_a_row = 0
        self._transport.write(message)

    def _drop(self) -> None:
        self.dropped += 1
        self._dropped_in_a_row += 1
        if self._dropped_in_a_row * PERIOD_S >= self._policy.stalled_s:
            logger.warning("Call %s: the peer has taken nothing for %g s", self._name, self._policy.stalled_s)
            self._close("the peer stopped reading")
            self._transport.abort()


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_IN_KERNEL)
