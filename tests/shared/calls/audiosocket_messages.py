"""Messages of the AudioSocket protocol for tests, and helpers that receive them."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketConnection,
    AudioSocketMessage,
    AudioSocketProtocolError,
    AudioSocketRole,
)

CALL_UUID = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
CALL_ID_MESSAGE = b"\x01\x00\x10" + CALL_UUID.bytes
PAYLOAD = bytes(range(160)) * 2  # 20 ms at 8 kHz
AUDIO_MESSAGE = b"\x10\x01\x40" + PAYLOAD
DTMF_MESSAGE = b"\x03\x00\x015"
HANGUP_MESSAGE = b"\x00\x00\x00"


def received(role: AudioSocketRole, *parts: bytes, eof: bool = False) -> tuple[list[AudioSocketMessage], str]:
    """The events of these bytes, and the text of the error that ended them or ""."""
    connection = AudioSocketConnection(role)
    events: list[AudioSocketMessage] = []
    try:
        for part in parts:
            connection.receive_data(part)
            events.extend(connection.events())
        if eof:
            connection.receive_eof()
            events.extend(connection.events())
    except AudioSocketProtocolError as error:
        return events + list(_rest(connection)), str(error)
    return events, ""


def _rest(connection: AudioSocketConnection) -> Iterable[AudioSocketMessage]:
    with pytest.raises(AudioSocketProtocolError):
        yield from connection.events()


def open_call(*parts: bytes) -> AudioSocketConnection:
    """The server's side of a call whose call id and ``parts`` have been received."""
    connection = AudioSocketConnection(AudioSocketRole.SERVER)
    for part in (CALL_ID_MESSAGE, *parts):
        connection.receive_data(part)
    list(connection.events())
    return connection
