"""The AudioSocket server: Asterisk dials in over TCP, one connection a call, and an agent speaks on it.

What it owes Asterisk: one whole message in one write, at most 20 ms each, from the first tick on, silence
included; never a part of a message, never kinds 0x01, 0x03 or 0xff; always reading, whatever the peer does.
What a caller may do is ``adapters.audiosocket_line``'s to say, the connection ``adapters.audiosocket_leg``'s,
the pace ``adapters.playout``'s and ``gateway.clock``'s; what is said is the agent's affair.
"""

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from ...adapters.audiosocket.asyncio_protocol import AudioSocketProtocol
from ...adapters.audiosocket.protocol import AudioSocketAudio, CallId, Dtmf
from ...adapters.audiosocket.server_connection import AudioSocketTimeouts
from ...adapters.playback.playout import Playout
from ...tts_engine.errors import Overloaded
from .agents import Agent
from .call import Call, CallerSpeechAction, CallSpeechOptions, make_speech_detector
from .clock import Clock
from .registry import CallRegistry

if TYPE_CHECKING:
    from ...tts_engine.engine import Engine

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AudioSocketCallSettings:
    """What the server allows. Times in seconds, ``sample_rate`` of what it sends: 8000 or 24000 Hz.

    ``first_message_s``: until a call's id has come. ``stalled_s``: that a peer may take nothing.
    """

    sample_rate: int
    first_message_s: float
    stalled_s: float
    lead_s: float
    speech: CallSpeechOptions
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.TELL


class AudioSocketCallServer:
    """Accepts connections, each a call or none; the registry says which fit."""

    def __init__(
        self,
        *,
        engine: "Engine",
        clock: Clock,
        agent: Agent,
        policy: AudioSocketCallSettings,
        registry: CallRegistry,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.agent = agent
        self.policy = policy
        self.registry = registry
        self._connections: set[_AudioSocketCallLeg] = set()
        self._no_connections = asyncio.Event()  # set while there are no connections
        self._no_connections.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Accept calls on a bound socket, which the server closes in the end."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.new_leg, sock=sock)

    def new_leg(self) -> "_AudioSocketCallLeg":
        """A protocol for one connection to this server."""
        return _AudioSocketCallLeg(self)

    async def aclose(self) -> None:
        """Close the listener, end every call, and wait until its tasks and connections are gone."""
        self.registry.refuse_calls()
        if self._listener is not None:
            self._listener.close()
        for leg in tuple(self._connections):
            leg.end("shutting down")
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._no_connections.wait()

    # What legs call

    def add_connection(self, leg: "_AudioSocketCallLeg") -> None:
        """A connection exists."""
        self._connections.add(leg)
        self._no_connections.clear()

    def remove_connection(self, leg: "_AudioSocketCallLeg") -> None:
        """A connection exists no more."""
        self._connections.discard(leg)
        if not self._connections:
            self._no_connections.set()

    def keep_task(self, task: asyncio.Task[None]) -> None:
        """Keep a call's task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _AudioSocketCallLeg(AudioSocketProtocol):
    """One connection, and the call that it becomes."""

    def __init__(self, server: AudioSocketCallServer) -> None:
        self._policy = server.policy
        super().__init__(AudioSocketTimeouts(self._policy.first_message_s, self._policy.stalled_s))
        self.call: Call | None = None
        self._server = server
        self._task: asyncio.Task[None] | None = None

    # What the connection tells

    def admit(self) -> bool:
        self._server.add_connection(self)
        try:
            self._server.registry.admit(self, peer=self.peer)
        except Overloaded:
            return False
        return True

    def handle_event(self, event: CallId | AudioSocketAudio | Dtmf) -> None:
        match event:
            case AudioSocketAudio(sample_rate, payload):
                if self.call is not None:
                    self.call.receive_audio(payload, sample_rate)
            case CallId(uuid):
                self._open(str(uuid))
            case Dtmf(digit):
                if self.call is not None:
                    self.call.press(digit)
            case _:
                assert_never(event)

    def on_call_ended(self, reason: str) -> None:
        self._server.clock.leave(self)
        if self._task is not None:
            self._task.cancel()
        self._server.registry.remove(self, reason)

    def on_disconnected(self) -> None:
        self._server.remove_connection(self)

    def log_protocol_error(self, fault: str) -> None:
        logger.warning("Call %s: %s", self._log_name, fault)

    def log_internal_error(self, error: Exception) -> None:
        logger.error("Call %s failed", self._log_name, exc_info=error)

    # What the clock calls

    def tick(self, now: float) -> int:
        return 0 if self.call is None or self.ended else self.call.tick(now)

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
        self.call.caller_speech_action = self._policy.caller_speech_action
        self.call.set_speech_detector(make_speech_detector())
        self._server.registry.open(self, self.call, kind="audiosocket", peer=self.peer)
        self._task = self._loop.create_task(self._run_agent(self.call))
        self._server.keep_task(self._task)

    def _send(self, packet: bytes) -> None:
        self.send(AudioSocketAudio(self._policy.sample_rate, packet))

    async def _run_agent(self, call: Call) -> None:
        try:
            await self._server.agent.run(call)
            await call.finish()
        except Exception as error:
            self.fail(error)

    @property
    def _log_name(self) -> str:
        return f"from {self.peer}" if self.call is None else self.call.call_id
