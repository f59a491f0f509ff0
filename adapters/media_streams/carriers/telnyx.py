"""Telnyx media streaming in the bidirectional mode ``rtp``: G.711, L16 or Opus, all messages are JSON.

Codec and rate towards Telnyx are those of the command (``stream_bidirectional_codec`` and
``stream_bidirectional_sampling_rate``); they must be those of the stream (``stream_codec``), because a start
names the latter only. ``clear`` returns the marks of the audio that it drops. A message with Opus has one
packet of 20 ms.

Source: developers.telnyx.com, Stream call media over WebSocket, and the TeXML verb Stream.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from ...audio.format_kind import LineCodecState
from ...audio.line_codecs import line_codec
from ..connection import Message
from ..events import MediaStreamProtocolError, StreamEvent, StreamStarted, StreamWarning
from ..json_object import JsonObject
from ..stream_format import ALAW, ULAW, StreamFormat
from .carrier_json import CarrierJsonConnection, as_base64, as_json
from .webhooks import WebhookAnswer, xml_answer

_G711: Final[Mapping[str, StreamFormat]] = MappingProxyType({"PCMU": ULAW, "PCMA": ALAW})
SAMPLE_RATES: Final = (8_000, 16_000, 24_000)  # Hz, of L16 and Opus
_L16: Final = line_codec("slin")
_PACKET_MS: Final = 20
_MIN_RATIO: Final = 4  # of roughness; in the wrong order of bytes speech and noise have a hundredfold


class L16Codec:
    """Samples of 16 bits in the order of bytes that the caller's audio has.

    RFC 3551 has the high byte first, Telnyx's reference says nothing, and programs that serve its calls are
    written for either; those that were changed after trying have the low byte first. The wrong order makes
    loud noise of any sound, so a packet that is not silent tells. Up to then, the low byte is first.
    """

    def __init__(self) -> None:
        self._is_big_endian: bool | None = None

    def encode(self, pcm: bytes) -> bytes:
        """Return s16le in that order."""
        return _L16.encode(pcm) if self._is_big_endian else pcm

    def decode(self, payload: bytes) -> bytes:
        """Return s16le."""
        if self._is_big_endian is None:
            little, big = (_roughness(np.frombuffer(payload, order)) for order in ("<i2", ">i2"))
            if max(little, big) > _MIN_RATIO * min(little, big):
                self._is_big_endian = big < little
        return _L16.decode(payload) if self._is_big_endian else payload


def _roughness(samples: NDArray[np.int16]) -> int:
    return int(np.abs(np.diff(samples.astype(np.int64))).sum())


class TelnyxStreamConnection(CarrierJsonConnection):
    """The gateway's side of one stream."""

    _opus: LineCodecState | None = None

    def _read_event(self, event: str, message: JsonObject) -> Iterable[StreamEvent]:
        if event == "error":
            error = message.child("payload") if message.has("payload") else message
            text = error.text_or_none("detail") or error.text_or_none("title") or "an error without text"
            return [StreamWarning(text)]
        return super()._read_event(event, message)

    def _start(self, message: JsonObject) -> StreamEvent:
        start = message.child("start")
        stream_format = self._format_of(start.child("media_format"))
        self.stream_id = message.text("stream_id")
        return StreamStarted(
            call_id=start.text("call_control_id"),
            format=stream_format,
            number=start.text_or_none("from"),
            called=start.text_or_none("to"),
            variables=start.variables("custom_parameters"),
        )

    def _format_of(self, media: JsonObject) -> StreamFormat:
        encoding = media.text("encoding")
        if (g711 := _G711.get(encoding)) is not None:
            return g711
        if encoding not in ("L16", "OPUS"):
            allowed = ", ".join((*_G711, "L16", "OPUS"))
            raise MediaStreamProtocolError(f"got encoding {encoding[:40]!r}; allowed are {allowed}")
        rate = media.number("sample_rate")
        if rate not in SAMPLE_RATES:
            allowed = ", ".join(map(str, SAMPLE_RATES))
            raise MediaStreamProtocolError(f"got {encoding} at {rate} Hz; allowed are {allowed}")
        if encoding == "OPUS":
            make_opus = line_codec("opus").make_state
            assert make_opus is not None
            self._opus = make_opus(rate)
            return StreamFormat(f"Opus at {rate} Hz", rate, 1, decode=self._opus.decode)
        codec = L16Codec()
        return StreamFormat(f"L16 at {rate} Hz", rate, 2, codec.encode, codec.decode)

    def _speech_messages(self, pcm: bytes) -> list[Message]:
        if self._opus is None or self._format is None:
            return super()._speech_messages(pcm)
        size = 2 * self._format.sample_rate * _PACKET_MS // 1000
        packets = (pcm[start : start + size].ljust(size, b"\0") for start in range(0, len(pcm), size))
        return [message for packet in packets for message in self._media_messages(self._opus.encode(packet))]

    def _media_messages(self, audio: bytes) -> list[Message]:
        return [as_json(event="media", media={"payload": as_base64(audio)})]

    def _mark_message(self, name: str) -> Message:
        return as_json(event="mark", mark={"name": name})

    def _clear_messages(self) -> list[Message]:
        return [as_json(event="clear")]


def texml(url: str) -> WebhookAnswer:
    """Return TeXML of Telnyx with µ-law in both directions."""
    attributes = 'codec="PCMU" bidirectionalMode="rtp" bidirectionalCodec="PCMU"'
    return xml_answer(f"<Connect><Stream url={quoteattr(url)} {attributes}/></Connect>")
