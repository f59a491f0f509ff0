"""AudioSocket calls of the gateway: Asterisk connects over TCP, and an agent speaks on each call.

Connections are accepted here. Once a caller has sent the call's id, a media server takes the socket
(``adapters.media``), and the connection becomes a ``Call`` in the registry, served by the agent. A connection
that somebody awaits by its id (``awaiting``) becomes a call when that one opens it.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import UUID

from .....adapters.audiosocket.pending_call import NoRoomForCall, PendingCall
from .....adapters.audiosocket.protocol import AudioSocketProtocolError
from .....adapters.audiosocket.server import AudioSocketServer
from .....adapters.audiosocket.server_connection import AudioSocketTimeouts
from .....adapters.audiosocket.wire import AudioSocketOpening
from .....adapters.media.phone_media import PhoneCallOptions, PhoneMedia
from .....adapters.unidentified_connections import DEFAULT_MAX_UNIDENTIFIED
from .....tts_engine.errors import Overloaded
from ....listening_sockets import limit_unidentified
from ...agents.agent import Agent
from ...call import Call
from ...call_options import (
    LEAD_S,
    NO_OWNER,
    SILENT_S,
    UNKNOWN_CALLER,
    Caller,
    CallerSpeechAction,
    CallOwner,
    CallSettings,
    CallSpeechOptions,
)
from ...expected_calls import ExpectedCall, ExpectedCalls
from ...kits.leg_call import LegGroup
from ...kits.phone_leg import PhoneLeg, end_phone_legs
from ...registry import CallRegistry
from ...transfers import CallTransfers
from ..way_in import CallServices

logger = logging.getLogger(__name__)

_FIRST_AUDIO_S = 0.1  # a phone that sends silence sends its first packet within 20 ms


@dataclass(frozen=True, slots=True)
class AudioSocketCallSettings:
    """Settings of the gateway's AudioSocket calls."""

    sample_rate: int | None  # Hz of the audio sent, 8000 or 24000; None: as the caller's program sends
    speech: CallSpeechOptions
    first_message_s: float = 5.0  # to the call's id, which Asterisk sends within 1 ms of the connection
    # Without reading, or for the rest of an incomplete message: a conversation does not survive a longer
    # interruption of the network.
    stalled_s: float = 10.0
    lead_s: float = LEAD_S  # speech rendered ahead of the listener
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.TELL
    silent_s: float = SILENT_S  # without any message of the caller
    max_unidentified: int = DEFAULT_MAX_UNIDENTIFIED  # connections without a call's id


@dataclass(slots=True, eq=False)
class IdentifiedPhone:
    """A connection whose id has arrived, before its call is opened."""

    connection: PendingCall  # in the registry
    call_id: UUID
    sock: socket.socket
    received: bytes
    is_opened: bool = False


class AudioSocketCallServer:
    """Accepts AudioSocket connections and opens a call on each that the registry admits."""

    def __init__(
        self,
        *,
        media: PhoneMedia,
        services: CallServices,
        agent: Agent,
        policy: AudioSocketCallSettings,
        expected: ExpectedCalls | None = None,
    ) -> None:
        self._media = media
        self._expected = expected or ExpectedCalls()
        self._services = services
        self.agent = agent
        self._policy = policy
        self._awaited: dict[UUID, asyncio.Future[IdentifiedPhone]] = {}
        self._legs: LegGroup[PhoneLeg] = LegGroup()
        timeouts = AudioSocketTimeouts(policy.first_message_s, policy.stalled_s)
        awaits_audio_s = _FIRST_AUDIO_S if policy.sample_rate is None else 0.0
        self._server = AudioSocketServer(
            self,
            timeouts=timeouts,
            awaits_audio_s=awaits_audio_s,
            unidentified=limit_unidentified("AudioSocket", policy.max_unidentified),
        )

    @property
    def registry(self) -> CallRegistry:
        """The registry of the calls."""
        return self._services.registry

    async def listen(self, sock: socket.socket) -> None:
        """Accept calls on a bound socket, which ``aclose`` closes."""
        await self._server.listen_on(sock)

    async def aclose(self) -> None:
        """Close the listener, end every call, and wait until its tasks have ended."""
        self.registry.refuse_calls()
        await self._server.aclose("shutting down")
        await end_phone_legs(self._legs)

    @contextmanager
    def awaiting(self, call_id: UUID) -> Iterator["asyncio.Future[IdentifiedPhone]"]:
        """Let a connection of that id be the result; it is closed at the end unless ``open_call`` took it."""
        awaited = self._awaited[call_id] = asyncio.get_running_loop().create_future()
        try:
            yield awaited
        finally:
            del self._awaited[call_id]
            if awaited.done() and not awaited.cancelled() and not awaited.result().is_opened:
                self.registry.remove(awaited.result().connection, "it was not opened")
                awaited.result().sock.close()

    def open_call(
        self,
        phone: IdentifiedPhone,
        agent: Agent,
        caller: Caller,
        *,
        call_id: str = "",
        caller_sample_rate: int | None = None,
        sample_rate: int | None = None,
        transfers: CallTransfers | None = None,
        owner: CallOwner = NO_OWNER,
    ) -> Call:
        """Open the call of a connection, which a media server serves.

        Args:
            call_id: of the call; "": the id of the connection.
            caller_sample_rate: Hz of the caller's audio; None: not known.
            sample_rate: Hz of the audio sent; None: by the settings.
            transfers, owner: as those of ``PhoneLeg``.
        """
        policy = self._policy
        settings = CallSettings(policy.lead_s, policy.speech, policy.caller_speech_action)
        peer = phone.connection.peer
        leg = PhoneLeg(
            "audiosocket",
            peer,
            caller,
            self._legs,
            self._services,
            settings,
            transfers=transfers,
            owner=owner,
        )
        if sample_rate is None:
            sample_rate = policy.sample_rate or rate_for(caller_sample_rate)
        options = PhoneCallOptions(sample_rate, policy.stalled_s, silent_s=policy.silent_s)
        wire = AudioSocketOpening(phone.call_id, phone.received)
        media = self._media.open_phone_call(wire, phone.sock, leg, options)
        phone.is_opened = True
        self.registry.replace(phone.connection, leg)
        self._legs.add(leg)
        return leg.open(call_id or str(phone.call_id), media, agent)

    # Called by the shared server

    def has_room(self, call: PendingCall) -> bool:
        """Return whether the registry has room for a call; it logs and counts refusals."""
        try:
            self.registry.require_place(peer=call.peer)
        except Overloaded:
            return False
        return True

    def open(self, call: PendingCall, call_id: UUID, sock: socket.socket, received: bytes) -> None:
        """Open the call of an identified connection, or hand it to the one who awaits it."""
        awaited = self._awaited.get(call_id)
        is_awaited = awaited is not None and not awaited.done()
        if not is_awaited and self._expected.required and call_id not in self._expected:
            raise AudioSocketProtocolError(f"no call {call_id} is expected")
        with ExitStack() as undo:
            self._admit(call)
            undo.callback(self.registry.remove, call, "it could not be opened")
            phone = IdentifiedPhone(call, call_id, sock, received)
            if awaited is not None and is_awaited:
                awaited.set_result(phone)
            else:
                self._open_expected(phone)
            undo.pop_all()

    def _admit(self, call: PendingCall) -> None:
        try:
            self.registry.admit(call, peer=call.peer)
        except Overloaded as refusal:
            raise NoRoomForCall(str(refusal)) from None

    def _open_expected(self, phone: IdentifiedPhone) -> None:
        expected = self._expected.take(phone.call_id)
        if expected is None:
            expected = ExpectedCall(UNKNOWN_CALLER, None)
        self.open_call(
            phone,
            expected.agent or self.agent,
            expected.caller,
            caller_sample_rate=phone.connection.caller_sample_rate,
            owner=CallOwner(agent=expected.agent_name),
        )

    def log_protocol_error(self, call: PendingCall, error: str) -> None:
        """Log an error of the peer as a warning."""
        logger.warning("Call %s: %s", call.name, error)

    def log_internal_error(self, call: PendingCall, error: Exception) -> None:
        """Log an exception with its traceback."""
        logger.error("Call %s failed", call.name, exc_info=error)


def rate_for(caller_sample_rate: int | None) -> int:
    """Return the rate to send: Asterisk converts 24 kHz to the rate of its channel, whatever that is."""
    return 24_000 if caller_sample_rate is not None and caller_sample_rate > 8_000 else 8_000
