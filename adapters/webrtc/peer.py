"""WebRTC connection to one browser: speech out, microphone in, and a data channel for text messages.

The caller of ``feed`` paces the speech; packets are sent at once. Signalling and the meaning of the messages
are the caller's.

    feed(packet)   -> SpeechTrack -> Opus (aiortc, executor) -> SRTP -> browser
    on_audio(pcm)  <- 16 kHz mono <- Opus (aiortc, thread)   <- SRTP <- browser

Source: aiortc 1.16 (mediastreams.py, rtcrtpsender.py, rtcrtpreceiver.py, rtcicetransport.py).
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
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
from aiortc.exceptions import InvalidStateError
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame, AudioResampler

from ..audio.input_resampler import DETECTOR_SAMPLE_RATE
from ..ice_server import IceServer
from ..udp_ports import MediaPorts
from .media_ports import bound_to
from .sdp_offer import MAX_CANDIDATES, refusing_sdp, sanitize_candidate, sanitize_offer
from .speech_track import SpeechTrack

logger = logging.getLogger(__name__)

RECEIVED_SAMPLE_RATE: Final = DETECTOR_SAMPLE_RATE  # Hz of the audio given to the listener
_MAX_AHEAD_S: Final = 5.0  # received beyond real time; further audio is decoded by aiortc and dropped
_MAX_UNSENT_MESSAGES: Final = 512  # kept until the channel opens; the oldest is dropped beyond
_MAX_BUFFERED_BYTES: Final = 1 << 20  # in the channel; beyond, the page does not read and is hung up
_LIVENESS_CHECK_S: Final = 1.0
_NO_PATH: Final = "no UDP path to the browser was found"


class WebRtcPeerListener(Protocol):
    """Callbacks of a peer; they run on the event loop and must not block."""

    def on_connected(self) -> None:
        """The connection is established; audio can flow in both directions."""

    def on_message(self, message: str) -> None:
        """A text message has arrived on the data channel."""

    def on_audio(self, pcm: bytes) -> None:
        """Audio of the microphone has arrived: s16le mono at 16 kHz."""

    def on_closed(self, reason: str) -> None:
        """The connection has ended. Called once; no other callback follows."""


@dataclass(frozen=True, slots=True)
class WebRtcPeerPolicy:
    """Timeouts and network of a peer."""

    connect_timeout_s: float = 8.0  # from the offer to the established connection; TURN takes up to 5 s of it
    silence_timeout_s: float = 10.0  # without audio or messages from the browser
    ice_servers: tuple[IceServer, ...] = ()  # none by default, so no outside host is contacted
    ports: MediaPorts | None = None  # of this end's UDP sockets; None: any that the system chooses


class _FrameResampler:
    """Converts PyAV audio frames of any rate and layout to s16le mono at 16 kHz.

    A browser may change its codec at any packet, and one ``AudioResampler`` accepts one input format only.
    """

    def __init__(self) -> None:
        self._format: tuple[int, str] | None = None  # rate and layout of the last frame
        self._resampler: AudioResampler

    def push(self, frame: AudioFrame) -> Iterator[bytes]:
        """Yield the converted audio that is ready."""
        frame_format = (frame.sample_rate, frame.layout.name)
        if frame_format != self._format:
            self._format = frame_format
            self._resampler = AudioResampler(format="s16", layout="mono", rate=DETECTOR_SAMPLE_RATE)
        for resampled in self._resampler.resample(frame):
            yield bytes(resampled.planes[0])[: 2 * resampled.samples]  # the plane is padded


class _ClosableConnection(RTCPeerConnection):
    """A connection that may be closed while it connects.

    aiortc starts one transport after the other in a task whose error no one takes, so that asyncio logs a
    traceback if the connection is closed in between.
    """

    async def _RTCPeerConnection__connect(self) -> None:
        try:
            await super()._RTCPeerConnection__connect()  # type: ignore[misc]
        except InvalidStateError:
            if self.signalingState != "closed":
                raise


class WebRtcPeer:
    """Connection to one browser, made by ``answer``. It ends by ``close``, by the browser or by a timeout.

    All methods must be called on the event loop's thread. ``answer_sdp`` is the answer to return to the
    browser; ``accepted_candidates`` counts the candidates that arrived after the offer.
    """

    def __init__(
        self, listener: WebRtcPeerListener, policy: WebRtcPeerPolicy, *, now: Callable[[], float]
    ) -> None:
        servers = [
            RTCIceServer(list(server.urls), server.username, server.credential)
            for server in policy.ice_servers
        ]
        self.answer_sdp = ""
        self.track = SpeechTrack()
        self._connection = _ClosableConnection(RTCConfiguration(iceServers=servers))
        self._listener = listener
        self._policy = policy
        self._now = now
        self.accepted_candidates = 0
        self._channel: RTCDataChannel | None = None
        self._unsent: deque[str] = deque(maxlen=_MAX_UNSENT_MESSAGES)
        self._connected = False
        self._last_received_at: float | None = None
        self.seen_packets = 0  # ``received_packets`` at the last check of whether the browser is there
        self._receive_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._close_task: asyncio.Task[None] | None = None

    @property
    def dropped(self) -> int:
        """Packets dropped because newer ones arrived before they were sent."""
        return self.track.dropped

    @property
    def received_packets(self) -> int:
        """Packets of the browser so far, of any kind but ICE's."""
        transport = self._connection.getSenders()[0].transport
        return sum(stats.packetsReceived for stats in transport._get_stats().values())

    @classmethod
    async def answer(
        cls,
        offer_sdp: str,
        listener: WebRtcPeerListener,
        policy: WebRtcPeerPolicy = WebRtcPeerPolicy(),
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> "WebRtcPeer":
        """Answer a browser's offer; ``listener.on_connected`` follows.

        Raises InvalidOffer, and MediaPortsExhausted if no port of the policy is free.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + policy.connect_timeout_s
        offer_sdp = sanitize_offer(offer_sdp)
        peer = cls(listener, policy, now=now)
        async with contextlib.AsyncExitStack() as cleanup:
            cleanup.push_async_callback(peer._release)
            peer._add_listeners()
            peer._connection.addTrack(peer.track)
            await peer._negotiate(offer_sdp)
            cleanup.pop_all()
        peer._set_timer(max(0.0, deadline - loop.time()), peer._on_not_connected)
        return peer

    async def renegotiate(self, offer_sdp: str) -> None:
        """Answer a further offer of the same browser, e.g. for another microphone. Raises InvalidOffer."""
        await self._negotiate(sanitize_offer(offer_sdp))

    async def add_candidate(self, candidate: str, mid: str | None, line: int | None) -> None:
        """Add a trickled ICE candidate, "" after the last one. Unusable ones and those beyond 24 are dropped.

        Raises InvalidOffer if it cannot be parsed.
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
        with refusing_sdp(f"the candidate {candidate[:100]!r} cannot be parsed"):
            parsed = candidate_from_sdp(sanitized)
            parsed.sdpMid, parsed.sdpMLineIndex = mid, line
            await self._connection.addIceCandidate(parsed)

    def feed(self, packet: bytes) -> None:
        """Send 20 ms of speech or silence: s16le mono at 24 kHz."""
        self.track.feed(packet)

    def discard(self) -> None:
        """Drop speech that has not been sent."""
        self.track.discard()

    def send_message(self, message: str) -> None:
        """Send a text message, or keep it until the channel opens.

        Closes the connection if more than 1 MiB waits to be read by the page.
        """
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
        """Call ``on_closed`` and close the connection in a task. Further calls have no effect."""
        if self._close_task is not None:
            return
        self._set_timer(None)
        self._close_task = asyncio.get_running_loop().create_task(self._release())
        self._listener.on_closed(reason)

    async def aclose(self) -> None:
        """Close the connection and wait until its tasks and sockets are released."""
        self.close("closed here")
        if self._close_task is not None:
            await self._close_task

    # Negotiation

    async def _negotiate(self, offer_sdp: str) -> None:
        connection = self._connection
        with refusing_sdp("the offer cannot be answered"):
            await connection.setRemoteDescription(RTCSessionDescription(offer_sdp, "offer"))
        self._decline_all_but_speech()
        with (
            refusing_sdp("the offer cannot be answered"),
            bound_to(self._policy.ports) if self._policy.ports else contextlib.nullcontext(),
        ):
            await connection.setLocalDescription(await connection.createAnswer())
        self.answer_sdp = connection.localDescription.sdp
        self._warn_without_relay()

    def _warn_without_relay(self) -> None:
        # aioice drops the error of the TURN server.
        urls = [url for server in self._policy.ice_servers for url in server.turn_urls]
        if urls and " typ relay" not in self.answer_sdp:
            logger.warning(
                "No relay address from %s; check that it is reachable, and its username and credential",
                urls[0],
            )

    def _decline_all_but_speech(self) -> None:
        for transceiver in self._connection.getTransceivers():
            if transceiver.sender.track is not self.track:
                transceiver.direction = "inactive"

    def _add_listeners(self) -> None:
        self._connection.add_listener("connectionstatechange", self._on_state)
        self._connection.add_listener("track", self._on_track)
        self._connection.add_listener("datachannel", self._on_channel)

    # Events of aiortc

    def _on_state(self) -> None:
        match self._connection.connectionState:
            case "connected" if not self._connected and self._close_task is None:
                self._connected = True
                self._set_timer(_LIVENESS_CHECK_S, self._check_alive)
                self._listener.on_connected()
            case "failed":
                self.close("the connection broke" if self._connected else _NO_PATH)
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
        self.close(f"not connected within {self._policy.connect_timeout_s:g} s: {_NO_PATH}")

    def _check_alive(self) -> None:
        received = self.received_packets
        if received != self.seen_packets and self._last_received_at is not None:
            # A muted microphone may send nothing; the browser's reports on our audio go on.
            self._last_received_at = self._now()
        self.seen_packets = received
        # A closed tab sends no notice, and ICE's consent check takes 30 s to notice. Only that check applies
        # to a page that never sends anything (it listens and has no channel).
        last_received_at = self._last_received_at
        if last_received_at is not None and self._now() - last_received_at > self._policy.silence_timeout_s:
            self.close(f"no audio or message from the browser for {self._policy.silence_timeout_s:g} s")
            return
        self._set_timer(_LIVENESS_CHECK_S, self._check_alive)

    # Received audio

    async def _receive_audio(self, track: MediaStreamTrack) -> None:
        resampler = _FrameResampler()
        started, received_s = self._now(), 0.0
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                self._last_received_at = self._now()
                received_s += frame.samples / frame.sample_rate
                if received_s <= self._last_received_at - started + _MAX_AHEAD_S:
                    for pcm in resampler.push(frame):
                        self._listener.on_audio(pcm)

    async def _release(self) -> None:
        self._set_timer(None)
        if self._close_task is None:  # the offer could not be answered
            self._close_task = asyncio.current_task()
        self.track.stop()
        if self._receive_task is not None:
            self._receive_task.cancel()
            await asyncio.wait({self._receive_task})
        await self._connection.close()
        self._connection.remove_all_listeners()
        if self._channel is not None:
            self._channel.remove_all_listeners()
