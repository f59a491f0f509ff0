"""A media stream of Telnyx in the bidirectional mode ``rtp``: queue, marks, clear and errors.

A message of media has 20 ms to 30 s. A mark comes back when the audio before it was played, at once if none
is queued, and also when ``clear`` drops it. A message that Telnyx does not accept gets an ``error``; here it
ends the call.

Source: developers.telnyx.com, Stream call media over WebSocket (AsyncAPI).
"""

import base64
import json
from collections.abc import Iterable
from typing import Any, Final, cast

import av

from shared.calls.peers.carrier import RefusedMessage, require_fields
from shared.calls.peers.event_carrier import SimulatedEventCarrier
from shared.calls.peers.peer import Message
from vivavoce.adapters.media_streams.stream_format import ALAW, ULAW, linear

_MIN_MEDIA_MS: Final = 20
_MAX_MEDIA_MS: Final = 30_000
_OPUS_PACKET_SAMPLES: Final = 960  # 20 ms at 48 kHz, which Opus is decoded to


class SimulatedTelnyx(SimulatedEventCarrier):
    """One stream; ``codec`` is PCMU, PCMA, L16 or OPUS."""

    carrier, sequence_field, stream_field = "telnyx", "sequence_number", "stream_id"

    def __init__(
        self, call_id: str, codec: str = "PCMU", sample_rate: int = 8_000, *, token: str = ""
    ) -> None:
        formats = {"PCMU": ULAW, "PCMA": ALAW, "L16": linear(sample_rate), "OPUS": linear(sample_rate)}
        self._codec = codec
        self._opus = _Opus(sample_rate) if codec == "OPUS" else None
        super().__init__(call_id, formats[codec], "32DE0DEA-53CB-4B21-89A4-9E1819C043BC", token)

    def start(self) -> list[Message]:
        """Return ``connected`` and ``start``."""
        start: dict[str, object] = {
            "user_id": "3E6F995F",
            "call_control_id": self.call_id,
            "call_session_id": "ff55a038-6f5d-11ef-9692-02420aeffb1f",
            "from": "+15550001",
            "to": "+15550002",
            "tags": [],
            "client_state": None,
            "custom_parameters": {},
            "media_format": {"encoding": self._codec, "sample_rate": self.sample_rate, "channels": 1},
        }
        return [json.dumps({"event": "connected", "version": "1.0.0"}), self._event("start", start=start)]

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``."""
        return [self._event("dtmf", occurred_at="2026-01-01T00:00:00.000000Z", dtmf={"digit": digit})]

    def hang_up(self) -> list[Message]:
        """Return ``stop``."""
        return [self._event("stop", stop={"user_id": "3E6F995F", "call_control_id": self.call_id})]

    def _receive(self, message: Message) -> Iterable[Message]:
        fields = json.loads(message)
        match fields["event"]:
            case "media":
                require_fields(fields, "event", "media")
                self._queue_media(base64.b64decode(fields["media"]["payload"], validate=True))
            case "mark":
                require_fields(fields, "event", "mark")
                return self._add_mark(fields["mark"]["name"])
            case "clear":
                require_fields(fields, "event")
                return [self._played(name) for name in self._clear()]
            case other:
                raise RefusedMessage(f"got the event {other}")
        return []

    def _queue_media(self, audio: bytes) -> None:
        if self._opus is not None:
            self._queue_audio(self._opus.decode(audio))
            return
        ms = len(audio) / self._audio.bytes_per_ms
        if not _MIN_MEDIA_MS <= ms <= _MAX_MEDIA_MS:
            raise RefusedMessage(f"got {ms:.1f} ms of audio")
        self._queue_audio(audio)

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        return super()._caller_messages(self._opus.encode(packet) if self._opus else packet)

    def _add_mark(self, name: str) -> list[Message]:
        if not self.queue.packets:
            return [self._played(name)]
        self.queue.add_mark(name)
        return []


class _Opus:
    """Opus of one packet a message: libopus to encode, FFmpeg's own decoder."""

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate
        self._encoder = cast(Any, av.CodecContext.create("libopus", "w"))
        self._encoder.sample_rate, self._encoder.format, self._encoder.layout = sample_rate, "s16", "mono"
        self._decoder = cast(Any, av.CodecContext.create("opus", "r"))
        self._decoder.layout = "mono"
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=sample_rate)

    def encode(self, pcm: bytes) -> bytes:
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(pcm) // 2)
        frame.planes[0].update(pcm)
        frame.sample_rate = self._rate
        return b"".join(bytes(packet) for packet in self._encoder.encode(frame))

    def decode(self, payload: bytes) -> bytes:
        frames, parts = self._decoder.decode(av.Packet(payload)), []
        if sum(frame.samples for frame in frames) != _OPUS_PACKET_SAMPLES:
            raise RefusedMessage("got a packet that is not of 20 ms")
        for frame in frames:
            frame.pts = None
            parts += [bytes(one.planes[0])[: 2 * one.samples] for one in self._resampler.resample(frame)]
        return b"".join(parts)
