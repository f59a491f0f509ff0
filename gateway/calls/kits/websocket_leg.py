"""The leg of a call on a WebSocket: joins the socket, the connection of its wire, and the call.

Everything but the tasks of the socket happens synchronously: what the peer sends is handled as it arrives,
and a discard puts the peer's clear in front of whatever else waits; a task sends it in the same turn of the
event loop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, assert_never
from uuid import uuid4

from ....adapters.call_rate_limit import CallRateLimit
from ....adapters.media.clock import Clock
from ....adapters.media.paced_media import SpeechDetector
from ....adapters.media_streams.connection import MediaStreamConnection
from ....adapters.media_streams.events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamMark,
    StreamPaused,
    StreamResumed,
    StreamStarted,
    StreamStopped,
    StreamWarning,
)
from ....adapters.media_streams.peer_playout import PeerClear, PeerCommand, PeerPlayout
from ....adapters.unidentified_connections import UnidentifiedConnections
from ....tts_engine.errors import Overloaded
from ...background_tasks import cancel_and_wait
from ..agents.agent import Agent
from ..call import Call
from ..call_options import NO_OWNER, SILENT_S, UNKNOWN_CALLER, Caller, CallOwner, CallSettings
from ..transfers import CallTransfers
from ..ways_in.way_in import CallServices
from .leg_call import LegCall, LegGroup, run_agent
from .message_socket import MessageSocket, StreamOutbox
from .peer_paced_media import PeerPacedMedia

logger = logging.getLogger(__name__)

_LINGER_S: Final = 1.0  # for the last messages of a call


@dataclass(frozen=True, slots=True)
class WebSocketTimeouts:
    """Time limits of one connection, in seconds."""

    first_message_s: float = 5.0  # from the connection to the start of its stream
    stalled_s: float = 10.0  # in which the peer must take a message
    silent_s: float = SILENT_S  # without any message of the peer


@dataclass(frozen=True, slots=True)
class WebSocketLegServices:
    """What the calls on WebSockets run on."""

    calls: CallServices
    clock: Clock
    agent: Agent
    settings: CallSettings
    timeouts: WebSocketTimeouts
    make_speech_detector: Callable[[], SpeechDetector]
    unidentified: UnidentifiedConnections  # whose streams have not started; they take no places of calls


@dataclass(frozen=True, slots=True)
class KnownCaller:
    """What is known of a call before its stream starts; what the stream says comes first."""

    call_id: str = ""
    caller: Caller = UNKNOWN_CALLER


@dataclass(frozen=True, slots=True)
class WebSocketCallOptions:
    """How one call differs from the others."""

    known_caller: KnownCaller = KnownCaller()
    transfers: CallTransfers | None = None  # of the caller; None: the peer has none
    agent: Agent | None = None  # instead of that of all calls
    on_opened: Callable[[Call], None] = lambda call: None
    owner: CallOwner = NO_OWNER


class WebSocketLeg:
    """One WebSocket and its call. Boundary: an error in it ends this call alone.

    Args:
        kind: of the call, such as "twilio".
        peer: network address of the other end.
    """

    def __init__(
        self,
        kind: str,
        connection: MediaStreamConnection,
        peer: str,
        group: "LegGroup[WebSocketLeg]",
        services: WebSocketLegServices,
        options: WebSocketCallOptions,
    ) -> None:
        self._connection = connection
        self._peer = peer
        self._group = group
        self._services = services
        self._options = options
        self._leg_call = LegCall(
            self,
            group,
            services.calls,
            services.settings,
            kind=kind,
            peer=peer,
            transfers=options.transfers,
            owner=options.owner,
        )
        self._media: PeerPacedMedia | None = None  # from the start of the stream on
        self._outbox = StreamOutbox()
        self._end_reason = ""
        self._heard_at = time.monotonic()  # the last message
        self._rate_limit = CallRateLimit(self._heard_at, MediaStreamProtocolError)
        self._ended = asyncio.Event()

    async def run(self, open_socket: Callable[[], Awaitable[MessageSocket]]) -> None:
        """Open the socket, and serve until the call has ended and it is closed."""
        self._group.add(self)
        unidentified = self._services.unidentified
        host = self._peer.rpartition(":")[0]
        unidentified.add(
            self, host, lambda: self.end("the stream has not started, and others need the place")
        )
        try:
            await self._serve(await open_socket())
        finally:
            unidentified.remove(self)
            self.end("the connection could not be opened")
            self._close()
            self._group.remove(self)

    async def _serve(self, socket: MessageSocket) -> None:
        first_message_s = self._services.timeouts.first_message_s
        timer = asyncio.get_running_loop().call_later(first_message_s, self._check_started)
        tasks = {
            asyncio.create_task(self._receive(socket)),
            sending := asyncio.create_task(self._send(socket)),
            asyncio.create_task(self._wait_ended()),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.end("the peer closed the connection")
            self._close()
            await asyncio.wait({sending}, timeout=_LINGER_S)
        finally:
            timer.cancel()
            self.end("the server is closing")
            await cancel_and_wait(*tasks)
            await socket.close()

    def _check_started(self) -> None:
        if self._media is None:
            first_message_s = self._services.timeouts.first_message_s
            self._end_for_problem(f"no start of a stream within {first_message_s:g} s")

    async def _wait_ended(self) -> None:
        await self._ended.wait()

    # Called by the clock, the call and the registry

    def tick(self, now: float) -> None:
        """Send what is due at ``now`` (monotonic s)."""
        if self._media is None or self._ended.is_set():
            return
        silent_s = self._services.timeouts.silent_s
        if now - self._heard_at > silent_s:
            self._end_for_problem(f"the peer has sent nothing for {silent_s:g} s")
        else:
            self._media.tick(now)

    def fail(self, error: Exception) -> None:
        """Log a fault of the server and end this call."""
        self._leg_call.fail(error)

    def end(self, reason: str) -> None:
        """Hang up; the rest of the queued messages is sent within a second."""
        if self._ended.is_set():
            return
        self._end_reason = reason
        self._ended.set()
        self._outbox.drop_speech()
        self._outbox.put(self._connection.send_hangup())
        self._outbox.close()

    # The socket

    async def _receive(self, socket: MessageSocket) -> None:
        with self._leg_call.guard():
            socket.deliver_to(self._take)
            try:
                while (message := await socket.receive()) is not None:
                    self._take(message)
            except MediaStreamProtocolError as error:
                self._end_for_problem(str(error))

    async def _send(self, socket: MessageSocket) -> None:
        stalled_s = self._services.timeouts.stalled_s
        with self._leg_call.guard():
            try:
                async for messages in self._outbox:
                    async with asyncio.timeout(stalled_s):
                        await socket.send(*messages)
            except TimeoutError:
                self._end_for_problem(f"the peer has taken nothing for {stalled_s:g} s")

    def _close(self) -> None:
        self._services.clock.leave(self)
        self._leg_call.close(self._end_reason)

    # Events

    def _take(self, message: str | bytes) -> None:
        if self._ended.is_set():
            return
        self._heard_at = time.monotonic()
        with self._leg_call.guard():
            try:
                if self._media is not None and (pcm := self._connection.receive_audio(message)) is not None:
                    self._take_audio(self._media, pcm, self._media.sample_rate)
                else:
                    self._take_events(message)
            except MediaStreamProtocolError as error:
                self._end_for_problem(str(error))

    def _take_events(self, message: str | bytes) -> None:
        self._connection.receive_data(message)
        is_ignored = True
        for event in self._connection.events():
            is_ignored = False
            if not isinstance(event, StreamAudio):
                self._rate_limit.take_control(self._heard_at)
            self._handle(event)
            if self._ended.is_set():
                return
        if is_ignored:
            self._rate_limit.take_audio(0.0, self._heard_at)

    def _take_audio(self, media: PeerPacedMedia, pcm: bytes, sample_rate: int) -> None:
        self._rate_limit.take_audio(len(pcm) / (2 * sample_rate), self._heard_at)
        media.receive_audio(pcm, sample_rate)

    def _handle(self, event: StreamEvent) -> None:
        if isinstance(event, StreamStarted):
            self._open(event)
        elif isinstance(event, StreamStopped):
            self.end("the caller hung up")
        elif self._media is not None:
            self._handle_in_call(self._media, event)

    def _handle_in_call(
        self,
        media: PeerPacedMedia,
        event: StreamAudio | StreamMark | StreamKey | StreamPaused | StreamResumed | StreamWarning,
    ) -> None:
        match event:
            case StreamAudio(pcm, sample_rate):
                self._take_audio(media, pcm, sample_rate)
            case StreamMark(name):
                media.mark_played(name)
            case StreamKey(digit):
                media.press(digit)
            case StreamPaused():
                media.pause()
            case StreamResumed():
                media.resume()
            case StreamWarning(text):
                logger.warning("Call %s: the peer reports: %s", self._name, text)
            case _:
                assert_never(event)

    def _open(self, started: StreamStarted) -> None:
        services, known = self._services, self._options.known_caller
        call_id = started.call_id or known.call_id or str(uuid4())
        if any(active.call.call_id == call_id for active in services.calls.registry):
            raise MediaStreamProtocolError(f"got a second stream of the call {call_id}, which is up")
        services.unidentified.remove(self)
        try:
            services.calls.registry.admit(self, peer=self._peer)
        except Overloaded as refusal:
            self.end(str(refusal))
            return
        make_detector = services.make_speech_detector
        self._media = PeerPacedMedia(
            PeerPlayout(
                sample_rate=started.format.sample_rate,
                packet_ms=started.packet_ms,
                min_media_ms=started.min_media_ms,
                max_ahead_s=started.max_ahead_s,
                reports_marks=started.reports_marks,
                fills_pauses=started.fills_pauses,
                background=services.calls.background_mixer(started.format.sample_rate),
            ),
            self._send_command,
            now=time.monotonic,
            drop_unsent=self._outbox.drop_speech,
            detector=None if make_detector is None else make_detector(),
        )
        call = self._leg_call.open(call_id, self._media, _joined(known.caller, started)).call
        services.clock.join(self)
        agent = self._options.agent or services.agent
        self._leg_call.start_task(lambda: run_agent(call, agent))
        self._options.on_opened(call)

    def _send_command(self, command: PeerCommand) -> None:
        if not self._ended.is_set():
            self._outbox.put(self._connection.send(command), is_speech=not isinstance(command, PeerClear))

    def _end_for_problem(self, problem: str) -> None:
        if not self._ended.is_set():
            logger.warning("Call %s: %s", self._name, problem)
            self.end(problem)

    @property
    def _name(self) -> str:
        return f"from {self._peer}" if self._leg_call.call is None else self._leg_call.call.call_id


def _joined(known: Caller, started: StreamStarted) -> Caller:
    return Caller(
        number=started.number or known.number,
        name=started.name or known.name,
        called=started.called or known.called,
        variables={**known.variables, **started.variables},
    )
