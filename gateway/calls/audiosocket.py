"""AudioSocket calls of the gateway: Asterisk connects over TCP, and an agent speaks on each call.

``adapters.audiosocket.server`` accepts connections and applies the protocol's rules. Here each of them
becomes a ``Call`` in the registry, paced by the gateway's clock and served by the agent.
"""

import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from ...adapters.audiosocket.call import AudioSocketCall
from ...adapters.audiosocket.protocol import AudioSocketAudio
from ...adapters.audiosocket.server import AudioSocketServer
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
    """Settings of the gateway's AudioSocket calls."""

    sample_rate: int  # Hz of the audio sent, 8000 or 24000
    first_message_s: float  # from the connection to the call's id
    stalled_s: float  # without reading, or for the rest of an incomplete message
    lead_s: float  # speech rendered ahead of the listener
    speech: CallSpeechOptions
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.TELL


class AudioSocketCallServer:
    """Accepts AudioSocket connections and opens a call on each that the registry admits."""

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
        timeouts = AudioSocketTimeouts(policy.first_message_s, policy.stalled_s)
        self._server = AudioSocketServer(self, pacer=clock, timeouts=timeouts)

    async def listen(self, sock: socket.socket) -> None:
        """Accept calls on a bound socket, which ``aclose`` closes."""
        await self._server.listen_on(sock)

    async def aclose(self) -> None:
        """Close the listener, end every call, and wait until its task and connection have ended."""
        self.registry.refuse_calls()
        await self._server.aclose("shutting down")

    # Called by the shared server

    def admit(self, call: AudioSocketCall) -> bool:
        """Return whether the registry has room for the connection; it logs and counts refusals."""
        try:
            self.registry.admit(call, peer=call.peer)
        except Overloaded:
            return False
        return True

    def open(self, call: AudioSocketCall, call_id: UUID, start: float) -> "_CallHandler":
        """Open the gateway's call on an admitted connection."""
        handler = _CallHandler(call, str(call_id), start, self.policy, self.engine, self.agent)
        self.registry.open(call, handler.call, kind="audiosocket", peer=call.peer)
        return handler

    def on_ended(self, call: AudioSocketCall, reason: str) -> None:
        """Remove a connection, and its call, from the registry."""
        self.registry.remove(call, reason)

    def log_protocol_error(self, call: AudioSocketCall, error: str) -> None:
        """Log an error of the peer as a warning."""
        logger.warning("Call %s: %s", call.name, error)

    def log_internal_error(self, call: AudioSocketCall, error: Exception) -> None:
        """Log an exception with its traceback."""
        logger.error("Call %s failed", call.name, exc_info=error)


class _CallHandler:
    """Connects an AudioSocket call to a ``Call`` and runs the agent on it."""

    def __init__(
        self,
        audiosocket_call: AudioSocketCall,
        call_id: str,
        start: float,
        policy: AudioSocketCallSettings,
        engine: "Engine",
        agent: Agent,
    ) -> None:
        self._audiosocket_call = audiosocket_call
        self._sample_rate = policy.sample_rate
        self._agent = agent
        self.call = Call(
            call_id,
            engine=engine,
            playout=Playout(start=start, sample_rate=policy.sample_rate),
            send=self._send,
            close=audiosocket_call.end,
            speech=policy.speech,
            lead_s=policy.lead_s,
        )
        self.call.caller_speech_action = policy.caller_speech_action
        self.call.set_speech_detector(make_speech_detector())

    def on_audio(self, audio: AudioSocketAudio) -> None:
        self.call.receive_audio(audio.payload, audio.sample_rate)

    def on_dtmf(self, digit: str) -> None:
        self.call.press(digit)

    def tick(self, now: float) -> int:
        return self.call.tick(now)

    async def run(self) -> None:
        await self._agent.run(self.call)
        await self.call.finish()

    def on_ended(self, reason: str) -> None:
        self._audiosocket_call.cancel_task()

    def _send(self, packet: bytes) -> None:
        self._audiosocket_call.send(AudioSocketAudio(self._sample_rate, packet))
