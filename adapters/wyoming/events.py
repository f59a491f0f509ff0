"""Events of the Wyoming protocol, between programs for voice such as those of Home Assistant.

    {"type": "audio-chunk", "version": "...", "data_length": 44, "payload_length": 960}\\n
    {"rate": 24000, "width": 2, "channels": 1}     data_length bytes of JSON, merged into "data" of the header
    ................                               payload_length bytes

Everything that a peer sends is bounded. No sockets, no clock.
Source: https://github.com/OHF-Voice/wyoming, wyoming/event.py@1.10.2.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...tts_engine.errors import BadRequest

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_DATA_BYTES: Final = 1024 * 1024  # of a text
MAX_PAYLOAD_BYTES: Final = 1024 * 1024  # audio, which no client has to send
_VERSION: Final = "1.10.2"  # of the protocol's package


class BadWyomingEvent(BadRequest):
    """A peer sent what is no event; the connection cannot go on."""


@dataclass(frozen=True, slots=True)
class WyomingEvent:
    """An event."""

    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def __bytes__(self) -> bytes:
        """The event as it is sent."""
        data = json.dumps(self.data, ensure_ascii=False).encode() if self.data else b""
        header: dict[str, Any] = {"type": self.type, "version": _VERSION}
        if data:
            header["data_length"] = len(data)
        if self.payload:
            header["payload_length"] = len(self.payload)
        return json.dumps(header).encode() + b"\n" + data + self.payload


class WyomingReader:
    """Cuts what a peer sends into events."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._header: _Header | None = None  # of the event whose rest is to come

    def push(self, received: bytes) -> Iterator[WyomingEvent]:
        """Add bytes; yield the events that are complete. Raises BadWyomingEvent."""
        self._buffer += received
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> WyomingEvent | None:
        header = self._header = self._header or self._read_header()
        if header is None or len(self._buffer) < header.data_bytes + header.payload_bytes:
            return None
        data, rest = header.data, header.data_bytes
        if rest:
            data = data | _parse_object(self._buffer[:rest])
        event = WyomingEvent(header.type, data, bytes(self._buffer[rest : rest + header.payload_bytes]))
        del self._buffer[: rest + header.payload_bytes]
        self._header = None
        return event

    def _read_header(self) -> "_Header | None":
        end = self._buffer.find(b"\n", 0, MAX_HEADER_BYTES + 1)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise BadWyomingEvent(f"a header is longer than {MAX_HEADER_BYTES} bytes")
            return None
        header = _Header.of(_parse_object(self._buffer[:end]))
        del self._buffer[: end + 1]
        return header


@dataclass(frozen=True, slots=True)
class _Header:
    type: str
    data: dict[str, Any]
    data_bytes: int
    payload_bytes: int

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> "_Header":
        kind, data = header.get("type"), header.get("data", {})
        if not isinstance(kind, str) or not isinstance(data, dict):
            raise BadWyomingEvent("an event has no type, or data that is no object")
        data_bytes = _length(header, "data_length", MAX_DATA_BYTES)
        return cls(kind, data, data_bytes, _length(header, "payload_length", MAX_PAYLOAD_BYTES))


def _parse_object(text: bytes | bytearray) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise BadWyomingEvent("got what is no JSON object")
    return parsed


def _length(header: Mapping[str, Any], name: str, most: int) -> int:
    length = header.get(name) or 0
    if not isinstance(length, int) or not 0 <= length <= most:
        raise BadWyomingEvent(f"{name} is {str(length)[:32]}; at most {most} is allowed")
    return length
