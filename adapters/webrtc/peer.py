"""One browser on the line over WebRTC: our voice out, its microphone in, a data channel beside them.

What is said and when is the gateway's affair: packets come in on its clock and leave at once, two may wait,
and an older one makes room for a newer. No signalling here, no HTTP, no meaning of the channel's messages.

    feed(packet)  -> SpeechTrack -> Opus (aiortc, executor) -> SRTP -> browser
    hear(pcm)     <- 16 kHz mono <- Opus (aiortc, thread)   <- SRTP <- browser

Source: aiortc 1.16 (mediastreams.py, rtcrtpsender.py, rtcrtpreceiver.py, rtcicetransport.py).
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.exceptions import InternalError, InvalidAccessError, InvalidStateError, OperationError
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame, AudioResampler

from .sdp_offer import MAX_CANDIDATES, InvalidOffer, sanitize_candidate, sanitize_offer
from .speech_track import SpeechTrack

logger = logging.getLogger(__name__)

RECEIVED_SAMPLE_RATE: Final = 16_000  # Hz, of what the caller says
_MAX_AHEAD_S: Final = 5.0  # audio may come this much faster than time; more is dropped undecoded
_MAX_UNSENT_MESSAGES: Final = 512  # messages kept until the channel opens
_MAX_BUFFERED_BYTES: Final = 1 << 20  # bytes in the channel: a page that does not read
_LIVENESS_CHECK_S: Final = 1.0
# What aiortc is seen to raise for an SDP that it cannot read or fit.
_SDP_ERRORS: Final = (
    ValueError,
    AssertionError,
    LookupError,
    AttributeError,
    TypeError,
    InternalError,
    InvalidAccessError,
    InvalidStateError,
    OperationError,
)


class WebRtcPeerListener(Protocol):
    """Who is told what happens to a peer; every method is called on the loop and must not block."""

    def on_connected(self) -> None:
        """Sound can flow both ways."""

    def on_message(self, message: str) -> None:
        """A text message came over the data channel."""

    def on_audio(self, pcm: bytes) -> None:
        """The caller said this: s16le mono at 16 kHz."""

    def on_closed(self, reason: str) -> None:
        """The connection is gone; told once, and nothing afterwards."""


@dataclass(frozen=True, slots=True)
class WebRtcPeerPolicy:
    """What a peer is allowed, seconds: to connect, and to be heard of by nobody.

    ``ice_servers``: STUN and TURN URLs; none by default, so that nothing outside is asked.
    """

    connect_timeout_s: float = 15.0
    silence_timeout_s: float = 10.0
    ice_servers: tuple[str, ...] = ()


class WebRtcPeer:
    """One browser. Made by ``answer``; ended by ``close``, by the browser, or by silence.

    All methods belong to the loop's thread. ``answer_sdp`` is what the browser gets back;
    ``accepted_candidates`` counts those that came after the offer.
    """

    def __init__(
        self, listener: WebRtcPeerListener, policy: WebRtcPeerPolicy, *, now: Callable[[], float]
    ) -> None:
        servers = [RTCIceServer(urls=url) for url in policy.ice_servers]
        self.answer_sdp = ""
        self.track = SpeechTrack()
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        self._listener = listener
        self._policy = policy
        self._now = now
        self.accepted_candidates = 0
        self._channel: RTCDataChannel | None = None
        self._unsent: deque[str] = deque(maxlen=_MAX_UNSENT_MESSAGES)
        self._connected = False
        self._last_received_at: float | None = None
        self._receive_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._close_task: asyncio.Task[None] | None = None

    @property
    def dropped(self) -> int:
        """Packets that made room for newer ones."""
        return self.track.dropped

    @classmethod
    async def answer(
        cls,
        offer_sdp: str,
        listener: WebRtcPeerListener,
        policy: WebRtcPeerPolicy = WebRtcPeerPolicy(),
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> "WebRtcPeer":
        """Take a browser's offer; the peer is connected when ``listener`` is told. Raises InvalidOffer."""
        offer_sdp = sanitize_offer(offer_sdp)
        peer = cls(listener, policy, now=now)
        async with contextlib.AsyncExitStack() as cleanup:
            cleanup.push_async_callback(peer._release)
            peer._add_listeners()
            peer._connection.addTrack(peer.track)
            await peer._negotiate(offer_sdp)
            cleanup.pop_all()
        peer._set_timer(policy.connect_timeout_s, peer._on_not_connected)
        return peer

    async def renegotiate(self, offer_sdp: str) -> None:
        """Take another offer of the same browser, as when its microphone changes. Raises InvalidOffer."""
        await self._negotiate(sanitize_offer(offer_sdp))

    async def add_candidate(self, candidate: str, mid: str | None, line: int | None) -> None:
        """Take a trickled ICE candidate, "" for the last; useless and surplus ones are dropped.

        Raises InvalidOffer.
        """
        if self._close_task is not None:
            return
        if not candidate:
            await self._connection.addIceCandidate(None)
            return
        sanitized = sanitize_candidate(candidate)
        if sanitized is None or self.accepted_candidates >= MAX_CANDIDATES:
            return
        self.accepted_candidates += 1
        try:
            parsed = candidate_from_sdp(sanitized)
            parsed.sdpMid, parsed.sdpMLineIndex = mid, line
            await self._connection.addIceCandidate(parsed)
        except _SDP_ERRORS as error:
            raise InvalidOffer(f"the candidate {candidate[:100]!r} cannot be read: {error}") from None

    def feed(self, packet: bytes) -> None:
        """Send 20 ms of speech or silence: s16le mono at 24 kHz."""
        self.track.feed(packet)

    def discard(self) -> None:
        """Drop speech that has not left."""
        self.track.discard()

    def send_message(self, message: str) -> None:
        """Send a text message; kept until the channel opens. A page that does not read is hung up on."""
        if self._close_task is not None:
            return
        channel = self._channel
        if channel is None or channel.readyState == "connecting":
            self._unsent.append(message)
        elif channel.readyState == "open":
            channel.send(message)
            if channel.bufferedAmount > _MAX_BUFFERED_BYTES:
                self.close("the page does not read its messages")

    def close(self, reason: str) -> None:
        """End the connection; tells the listener at once, and the network soon. Twice is no error."""
        if self._close_task is not None:
            return
        self._set_timer(None)
        self._close_task = asyncio.get_running_loop().create_task(self._release())
        self._listener.on_closed(reason)

    async def aclose(self) -> None:
        """End the connection and wait until nothing of it is left."""
        self.close("closed here")
        if self._close_task is not None:
            await self._close_task

    # Negotiation

    async def _negotiate(self, offer_sdp: str) -> None:
        connection = self._connection
        try:
            await connection.setRemoteDescription(RTCSessionDescription(offer_sdp, "offer"))
            self._decline_all_but_speech()
            await connection.setLocalDescription(await connection.createAnswer())
        except _SDP_ERRORS as error:
            raise InvalidOffer(f"the offer cannot be answered: {error or type(error).__name__}") from None
        self.answer_sdp = connection.localDescription.sdp

    def _decline_all_but_speech(self) -> None:
        for transceiver in self._connection.getTransceivers():
            if transceiver.sender.track is not self.track:
                transceiver.direction = "inactive"

    def _add_listeners(self) -> None:
        self._connection.add_listener("connectionstatechange", self._on_state)
        self._connection.add_listener("track", self._on_track)
        self._connection.add_listener("datachannel", self._on_channel)

    # What aiortc tells

    def _on_state(self) -> None:
        match self._connection.connectionState:
            case "connected" if not self._connected and self._close_task is None:
                self._connected = True
                self._set_timer(_LIVENESS_CHECK_S, self._check_alive)
                self._listener.on_connected()
            case "failed":
                self.close("the connection broke" if self._connected else "no way to the browser was found")
            case "closed":
                self.close("the browser hung up")

    def _on_track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio" and self._receive_task is None:
            self._receive_task = asyncio.get_running_loop().create_task(self._receive_audio(track))

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            channel.close()
            return
        self._channel = channel
        channel.add_listener("message", self._on_message)
        channel.add_listener("close", self._on_channel_closed)
        while self._unsent and channel.readyState == "open":
            channel.send(self._unsent.popleft())

    def _on_message(self, message: str | bytes) -> None:
        self._last_received_at = self._now()
        if self._close_task is None:
            self._listener.on_message(
                message if isinstance(message, str) else message.decode("utf-8", "replace")
            )

    def _on_channel_closed(self) -> None:
        self.close("the browser hung up")

    # Timers

    def _set_timer(self, after_s: float | None, callback: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if after_s is not None and callback is not None:
            self._timer = asyncio.get_running_loop().call_later(after_s, callback)

    def _on_not_connected(self) -> None:
        self.close(f"not connected within {self._policy.connect_timeout_s:g} s")

    def _check_alive(self) -> None:
        # A tab that vanishes says nothing, and ICE's own consent takes half a minute. Who never sent anything
        # (a page that only listens, without a channel) is left to that.
        last_received_at = self._last_received_at
        if last_received_at is not None and self._now() - last_received_at > self._policy.silence_timeout_s:
            self.close(f"nothing heard of the browser for {self._policy.silence_timeout_s:g} s")
            return
        self._set_timer(_LIVENESS_CHECK_S, self._check_alive)

    # The caller's audio

    async def _receive_audio(self, track: MediaStreamTrack) -> None:
        resampler = _TrackResampler()
        started, received_s = self._now(), 0.0
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                self._last_received_at = self._now()
                received_s += frame.samples / frame.sample_rate
                if received_s <= self._last_received_at - started + _MAX_AHEAD_S:
                    for resampled in resampler.push(frame):
                        self._listener.on_audio(bytes(resampled.planes[0])[: 2 * resampled.samples])

    async def _release(self) -> None:
        self._set_timer(None)
        if self._close_task is None:  # never answered
            self._close_task = asyncio.current_task()
        self.track.stop()
        await self._connection.close()
        if self._receive_task is not None:
            self._receive_task.cancel()
            await asyncio.wait({self._receive_task})
        self._connection.remove_all_listeners()
        if self._channel is not None:
            self._channel.remove_all_listeners()


class _TrackResampler:
    # 16 kHz mono of what a track decodes. A browser may change its codec at any packet, and a resampler takes
    # one kind of frame only.

    def __init__(self) -> None:
        self._kind: tuple[int, str] | None = None

    def push(self, frame: AudioFrame) -> Sequence[AudioFrame]:
        kind = (frame.sample_rate, frame.layout.name)
        if kind != self._kind:
            self._kind = kind
            self._resampler = AudioResampler(format="s16", layout="mono", rate=RECEIVED_SAMPLE_RATE)
        return self._resampler.resample(frame)
