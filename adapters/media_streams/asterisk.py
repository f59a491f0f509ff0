"""Asterisk's chan_websocket: text messages are control, binary messages are audio.

Control is plain text or JSON, as Asterisk is configured; our commands use the form of its first message:

    MEDIA_START connection_id:... channel:... format:ulaw optimal_frame_size:160 ptime:20
    {"event": "MEDIA_START", "connection_id": "...", "format": "ulaw", "optimal_frame_size": 160, ...}

Measured on Asterisk 23.4.1, where its documentation differs: of a message that is no multiple of the
optimal frame size the rest is lost; FLUSH_MEDIA neither resumes a paused channel nor reports the dropped
marks; a text message over 128 bytes is ignored; a binary message over 65,500 bytes ends the call. Audio may
come before MEDIA_START (asterisk#1712).

Source: Asterisk's documentation, Configuration/Channel-Drivers/WebSocket; chan_websocket.c 23.4.1; measured.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from .connection import MAX_MESSAGE_BYTES, MediaStreamConnection, Message, keys_of
from .events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamMark,
    StreamPaused,
    StreamResumed,
    StreamStarted,
    StreamWarning,
)
from .json_object import JsonObject
from .stream_format import ALAW, ULAW, StreamFormat, linear

SUBPROTOCOL: Final = "media"
CALL_VARIABLE: Final = "VIVAVOCE_CALL"  # of the channel, inherited from the caller's: id of the call
_OWN_VARIABLES: Final = ("MEDIA_WEBSOCKET_", "DIALEDPEERNUMBER")  # of the channel itself
MAX_COMMAND_BYTES: Final = 128
MAX_MEDIA_BYTES: Final = 65_500
MAX_PACKET_MS: Final = 200
FORMATS: Final[Mapping[str, StreamFormat]] = MappingProxyType(
    {
        "ulaw": ULAW,
        "alaw": ALAW,
        "slin": linear(8_000),
        "slin16": linear(16_000),
        "slin24": linear(24_000),
        "slin48": linear(48_000),
    }
)


class AsteriskStreamConnection(MediaStreamConnection):
    """The gateway's side of one chan_websocket channel; ``call_id`` replaces the channel's id."""

    def __init__(self, call_id: str = "") -> None:
        super().__init__()
        self._call_id = call_id
        self._early_audio = bytearray()  # before MEDIA_START
        self._uses_json = False
        self._frame_bytes = 0

    def send_hangup(self) -> list[Message]:
        """Return HANGUP, after which Asterisk closes the WebSocket."""
        return [self._command("HANGUP")]

    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        event, fields = self._parse(text)
        match event:
            case "MEDIA_START":
                return self._start(fields)
            case "MEDIA_XOFF":
                return [StreamPaused()]
            case "MEDIA_XON":
                return [StreamResumed()]
            case "MEDIA_MARK_PROCESSED":
                return [StreamMark(fields.text_or_none("correlation_id"))]
            case "DTMF_END":
                return keys_of(fields.text("digit"))
            case "ERROR":
                return [StreamWarning(fields.text_or_none("error_text") or text[:MAX_COMMAND_BYTES])]
            case _:
                return []  # STATUS and others that were not asked for

    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        if self._format is not None:
            return [self._audio_of(data)]
        self._early_audio += data
        if len(self._early_audio) > MAX_MESSAGE_BYTES:
            raise MediaStreamProtocolError(f"got {len(self._early_audio)} bytes of audio before MEDIA_START")
        return []

    def _media_messages(self, audio: bytes) -> list[Message]:
        size = MAX_MEDIA_BYTES // self._frame_bytes * self._frame_bytes
        return [audio[start : start + size] for start in range(0, len(audio), size)]

    def _mark_message(self, name: str) -> Message:
        return self._command("MARK_MEDIA", name)

    def _clear_messages(self) -> list[Message]:
        return [self._command("FLUSH_MEDIA"), self._command("CONTINUE_MEDIA")]

    def _command(self, name: str, correlation_id: str = "") -> str:
        if not self._uses_json:
            command = f"{name} {correlation_id}".rstrip()
        elif correlation_id:
            command = json.dumps({"command": name, "correlation_id": correlation_id})
        else:
            command = json.dumps({"command": name})
        if len(command.encode()) >= MAX_COMMAND_BYTES:
            raise ValueError(f"got a command of {len(command)} bytes; Asterisk ignores it from 128 on")
        return command

    def _parse(self, text: str) -> tuple[str, JsonObject]:
        if text.lstrip().startswith("{"):
            message = JsonObject.parse(text)
            event, uses_json = message.text("event"), True
        else:
            event, message = _parse_plain_text(text)
            uses_json = False
        if event == "MEDIA_START":
            self._uses_json = uses_json
        return event, message

    def _start(self, fields: JsonObject) -> Iterator[StreamEvent]:
        name = fields.text("format")
        stream_format = FORMATS.get(name)
        if stream_format is None:
            raise MediaStreamProtocolError(
                f"got format {name[:40]!r}; allowed are {', '.join(FORMATS)}: Dial(WebSocket/.../c(ulaw))"
            )
        frame_bytes = fields.number("optimal_frame_size")
        packet_ms, rest = divmod(frame_bytes, stream_format.bytes_per_ms)
        if rest or not 0 < packet_ms <= MAX_PACKET_MS:
            raise MediaStreamProtocolError(
                f"got optimal_frame_size {frame_bytes} of {name}; allowed are 1 to {MAX_PACKET_MS} ms"
            )
        self._frame_bytes = frame_bytes
        given = fields.variables("channel_variables")
        variables = {
            name.lstrip("_"): value for name, value in given.items()
        }  # inherited ones have underscores
        # Not the connection id: it is the client's name in Asterisk's configuration, the same for all calls.
        own_id = fields.text_or_none("channel_id") or ""
        yield StreamStarted(
            call_id=variables.get(CALL_VARIABLE) or self._call_id or own_id,
            format=stream_format,
            packet_ms=packet_ms,
            fills_pauses=True,
            number=variables.get("VIVAVOCE_CALLER", ""),
            name=variables.get("VIVAVOCE_NAME", ""),
            called=variables.get("VIVAVOCE_CALLED", ""),
            variables={"channel": fields.text_or_none("channel"), **_of_caller(variables)},
        )
        if self._early_audio:
            audio = self._audio_of(bytes(self._early_audio))
            self._early_audio.clear()
            yield StreamAudio(audio.pcm, audio.sample_rate)


def _of_caller(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(_OWN_VARIABLES)}


def _parse_plain_text(text: str) -> tuple[str, JsonObject]:
    event, *words = text.split(" ")
    fields: dict[str, object] = {}
    for word in words:
        key, colon, value = word.partition(":")
        if colon:
            fields[key] = value
        elif word:
            fields["correlation_id"] = word  # the id may stand alone
    return event, JsonObject(fields, event[:40])
