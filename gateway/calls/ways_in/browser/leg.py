"""The leg of one browser call: joins the WebRTC peer, the call, and the page attached to it.

Not the connection (``adapters.webrtc``), the messages (``calls.api.attachment``) or admission (``calls``).
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .....adapters.media.clock import Clock
from .....adapters.media.paced_media import PacedMedia, SpeechDetector
from .....adapters.playback.playout import Playout
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import BadRequest, Overloaded
from ....voice_registry import KeyVoices
from ...agents.agent import Agent
from ...api.attachment import AttachmentOptions, CallAttachment
from ...api.descriptions import describe_error
from ...api.key_calls import KeyCalls
from ...api.messages import BadCallMessage, HungUpMessage
from ...call_options import CallOwner, CallSettings
from ...kits.leg_call import LegCall, LegGroup
from ..way_in import CallServices
from .chat import Conversation
from .data_channel import DataChannel
from .settings import BrowserCallSettings

# Hz, of the caller's audio: RECEIVED_SAMPLE_RATE of adapters.webrtc.peer, which is imported late.
_CALLER_SAMPLE_RATE = 16_000
_LINGER_S = 0.14  # a browser's buffer holds 80 ms and more, and is dropped when the call ends


class BrowserPeer(Protocol):
    """The connection to a browser, such as ``adapters.webrtc.peer.WebRtcPeer``."""

    answer_sdp: str

    @property
    def dropped(self) -> int:
        """Packets that were not sent in time."""

    async def renegotiate(self, offer_sdp: str) -> None:
        """Accept another offer; raises BadRequest."""

    async def add_candidate(self, candidate: str, mid: str | None, line: int | None) -> None:
        """Add a trickled candidate, "" for the last; raises BadRequest."""

    def feed(self, packet: bytes) -> None:
        """Send 20 ms of s16le mono at 24 kHz."""

    def discard(self) -> None:
        """Drop packets that have not left."""

    def send_message(self, message: str) -> None:
        """Send a text message."""

    def close(self, reason: str) -> None:
        """End the connection; calls the leg's ``on_closed`` at once."""

    async def aclose(self) -> None:
        """End the connection and wait until nothing of it is left."""


class BrowserPeerEvents:
    """What one connection of a leg reports, until another has taken its place."""

    def __init__(self, leg: "BrowserLeg") -> None:
        self.leg = leg
        self._is_replaced = False

    def replace(self) -> None:
        """Report nothing more."""
        self._is_replaced = True

    def on_connected(self) -> None:
        """Audio can flow."""
        if not self._is_replaced:
            self.leg.on_connected()

    def on_message(self, message: str) -> None:
        """A message of the page."""
        if not self._is_replaced:
            self.leg.on_message(message)

    def on_audio(self, pcm: bytes) -> None:
        """Audio of the microphone: s16le mono at 16 kHz."""
        if not self._is_replaced:
            self.leg.on_audio(pcm)

    def on_closed(self, reason: str) -> None:
        """The connection is gone."""
        if not self._is_replaced:
            self.leg.on_closed(reason)


@dataclass(frozen=True, slots=True)
class BrowserMediaServices:
    """What the media of browser calls run on."""

    clock: Clock
    make_speech_detector: Callable[[], SpeechDetector] | None = None  # None: speech is not detected


class BrowserLeg:
    """One browser's connection and call. Boundary: an error in it ends this call alone.

    Args:
        voices: that the page may name.
        calls: of the page's key, to which the call belongs.
        agent: drives the call; without one the greeting is spoken.
    """

    def __init__(
        self,
        call_id: str,
        peer_name: str,
        group: "LegGroup[BrowserLeg]",
        services: CallServices,
        media_services: BrowserMediaServices,
        settings: BrowserCallSettings,
        *,
        voices: KeyVoices,
        calls: KeyCalls,
        agent: Agent | None,
    ) -> None:
        self.call_id = call_id
        self.peer: BrowserPeer | None = None  # from its answer on
        self._group = group
        self._services = services
        self._media_services = media_services
        self._media: PacedMedia[bytes] | None = None  # from the opening of the call on
        self._settings = settings
        self._voices = voices
        self._calls = calls
        self._agent = agent
        self.owner = CallOwner(calls.grant.key_id)
        call_settings = CallSettings(
            settings.lead_s, settings.speech, settings.caller_speech_action, _LINGER_S
        )
        self._leg_call = LegCall(
            self, group, services, call_settings, kind="webrtc", peer=peer_name, owner=self.owner
        )
        self._channel = DataChannel(self._send_text, "text" if settings.chat is None else "ask")
        self._attachment: CallAttachment | None = None
        self._skips_greeting = False
        self._peer_events: BrowserPeerEvents | None = None  # of ``peer``
        self._is_answering = False  # an offer
        self._dropped = 0  # packets, of earlier connections

    def skip_greeting(self) -> None:
        """Open the call without greeting, script or menu: text of the caller follows at once."""
        self._skips_greeting = True

    async def connect(self, answer: "Callable[[BrowserPeerEvents], Awaitable[BrowserPeer]]") -> BrowserPeer:
        """Wait for the answer to an offer; its connection takes the place of the one before.

        Raises BadRequest while another offer is answered, Overloaded if the call was ended meanwhile, and
        what ``answer`` raises; the connection before stays then.
        """
        if self._is_answering:
            raise BadRequest("another offer of this call is being answered")
        events, self._is_answering = BrowserPeerEvents(self), True
        try:
            peer = await answer(events)
        finally:
            self._is_answering = False
        if self._leg_call.is_over:
            await peer.aclose()
            raise Overloaded("the call was ended here", reason="shutting_down", retry_after_s=5.0)
        self._drop_peer()
        self.peer, self._peer_events = peer, events
        if self._media is not None:
            self._media.set_held(True)  # no word is spoken into a connection that is not up yet
        return peer

    def _drop_peer(self) -> None:
        if self.peer is not None and self._peer_events is not None:
            self._dropped += self.peer.dropped
            self._peer_events.replace()
            self._group.start_task(self.peer.aclose())

    # Called by the peer

    def on_connected(self) -> None:
        """Open the call: audio can flow. A call whose connection has been replaced goes on, at a word."""
        if self._media is not None:
            self._media.set_held(False)
            return
        with self._leg_call.guard():
            self._open_call()

    def on_message(self, text: str) -> None:
        """Execute a message of the page; one that cannot be executed is answered with an error."""
        if self._attachment is None:
            return
        with self._leg_call.guard():
            try:
                messages = self._channel.receive(text)
            except BadCallMessage as error:
                self._channel.send(describe_error(error))
                return
            for message in messages:
                self._attachment.execute_or_report(message)

    def on_audio(self, pcm: bytes) -> None:
        """Pass the caller's audio, s16le mono at 16 kHz, to the call."""
        if self._media is not None and not self._leg_call.is_over:
            with self._leg_call.guard():
                self._media.receive_audio(pcm, _CALLER_SAMPLE_RATE)

    def on_closed(self, reason: str) -> None:
        """End the call: the connection is gone."""
        if self._leg_call.is_over:
            return
        self._media_services.clock.leave(self)
        self._leg_call.close(reason)
        if self.peer is not None:
            self._group.start_task(self.peer.aclose())
        self._group.remove(self)

    # Called by the clock, the call and the registry

    def tick(self, now: float) -> None:
        """Send the packets due at ``now`` (monotonic s)."""
        if self._media is not None and not self._leg_call.is_over:
            self._media.tick(now)

    def fail(self, error: Exception) -> None:
        """Log a fault of the server and end this call."""
        self._leg_call.fail(error)

    def end(self, reason: str) -> None:
        """Hang up."""
        if self._leg_call.is_over:
            return
        self._channel.send(HungUpMessage(type="hung_up", reason=reason))
        if self.peer is None:
            self.on_closed(reason)
        else:
            self.peer.close(reason)

    def _open_call(self) -> None:
        assert self.peer is not None
        settings = self._settings
        self._media = self._make_media()
        active_call = self._leg_call.open(self.call_id, self._media)
        if self._skips_greeting:
            active_call.call.is_taken_over = True
        options = AttachmentOptions(
            settings.speech,
            "the page hung up",
            greeting="" if self._agent is not None or self._skips_greeting else settings.greeting,
            all_events=True,
            takes_over=True,
        )
        self._attachment = attachment = CallAttachment(
            active_call,
            options,
            send=self._channel.send,
            voices=self._voices,
            calls=self._calls,
            answerer=None if settings.chat is None else Conversation(settings.chat),
        )
        attachment.open()
        self._leg_call.start_task(attachment.run)
        if self._agent is not None:
            agent = self._agent
            self._leg_call.start_task(lambda: agent.run(active_call.call))

    def _make_media(self) -> PacedMedia[bytes]:
        services = self._media_services

        def peer() -> BrowserPeer:  # the one of the moment
            assert self.peer is not None
            return self.peer

        return PacedMedia(
            Playout(
                start=services.clock.join(self),
                sample_rate=SAMPLE_RATE,
                background=self._services.background_mixer(SAMPLE_RATE),
            ),
            lambda packet: peer().feed(packet),
            now=time.monotonic,
            drop_unsent=lambda: peer().discard(),
            dropped=lambda: self._dropped + peer().dropped,
            detector=services.make_speech_detector and services.make_speech_detector(),
        )

    def _send_text(self, text: str) -> None:
        if self.peer is not None and not self._leg_call.is_over:
            self.peer.send_message(text)
