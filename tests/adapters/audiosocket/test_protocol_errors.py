"""AudioSocket protocol violations and their errors, and the bounds of what is buffered."""

import struct
import tracemalloc

import pytest

from shared.calls.audiosocket_messages import (
    AUDIO_MESSAGE,
    CALL_ID_MESSAGE,
    CALL_UUID,
    DTMF_MESSAGE,
    HANGUP_MESSAGE,
    PAYLOAD,
    open_call,
    received,
)
from vivavoce.adapters.audiosocket.protocol import (
    MAX_UNREAD_BYTES,
    TRANSITIONS,
    AudioSocketAudio,
    AudioSocketProtocolError,
    AudioSocketRole,
    AudioSocketState,
    CallId,
    Dtmf,
    Hangup,
)
from vivavoce.tts_engine.errors import VivavoceError

# Protocol violations


@pytest.mark.parametrize(
    ("data", "error_text"),
    [
        (b"\x02\x00\x00", "got kind 0x02 of 0 bytes; kinds are 0x00, 0x01, 0x03, 0x10-0x18, 0xff"),
        (b"\x19\x01\x40", "got kind 0x19 of 320 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "this is HTTP, but this port speaks"),
        (b"\x10\x00\x00", "got Audio (0x10) with 0 bytes; allowed: 2 to 16000, an even number"),
        (b"\x10\x01\x3f", "got Audio (0x10) with 319 bytes; allowed: 2 to 16000, an even number"),
        (b"\x10\x3e\x82", "got Audio (0x10) with 16002 bytes"),
        (b"\x10\xff\xff", "got Audio (0x10) with 65535 bytes"),
        (b"\x18\xff\xff", "got Audio (0x18) with 65535 bytes; allowed: 2 to 65534, an even number"),
        (b"\x03\x00\x00", "got Dtmf (0x03) with 0 bytes; allowed: 1"),
        (b"\x03\x00\x0212", "got Dtmf (0x03) with 2 bytes; allowed: 1"),
        (b"\x03\x00\x01x", "got key b'x'; keys are 0-9, *, #, A-D and ! for a hook flash"),
        (b"\x03\x00\x01\xb2", "got key b'\\xb2'"),
        (b"\xff\x00\x02ab", "got Error (0xff) with 2 bytes; allowed: 0 or 1"),
        (b"\x00\x00\x01a", "got Hangup (0x00) with 1 bytes; allowed: 0"),
        (CALL_ID_MESSAGE, "a caller must not send CallId in the call"),
        (HANGUP_MESSAGE + AUDIO_MESSAGE, "a caller must not send Audio after the end of the call"),
        (HANGUP_MESSAGE + HANGUP_MESSAGE, "a caller must not send Hangup after the end of the call"),
    ],
)
def test_an_invalid_message_raises_an_error_after_the_events_before_it(data: bytes, error_text: str) -> None:
    events, error = received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + AUDIO_MESSAGE + data)
    assert events[:2] == [CallId(CALL_UUID), AudioSocketAudio(8_000, PAYLOAD)]
    assert error.startswith(error_text)


@pytest.mark.parametrize(
    ("data", "error_text"),
    [
        (AUDIO_MESSAGE, "a caller must not send Audio before the call id"),
        (DTMF_MESSAGE, "a caller must not send Dtmf before the call id"),
        (b"\x01\x00\x0f" + bytes(15), "got CallId (0x01) with 15 bytes; allowed: 16"),
        (b"\x01\x00\x11" + bytes(17), "got CallId (0x01) with 17 bytes; allowed: 16"),
        (b"\x01\x00\x00", "got CallId (0x01) with 0 bytes; allowed: 16"),
    ],
)
def test_a_call_must_begin_with_its_call_id(data: bytes, error_text: str) -> None:
    assert received(AudioSocketRole.SERVER, data) == ([], error_text)


@pytest.mark.parametrize("message", [CALL_ID_MESSAGE, DTMF_MESSAGE, b"\xff\x00\x00"])
def test_a_caller_rejects_messages_that_a_server_must_not_send(message: bytes) -> None:
    events, error = received(AudioSocketRole.CALLER, AUDIO_MESSAGE + message)
    assert events == [AudioSocketAudio(8_000, PAYLOAD)]
    assert error.startswith("a server must not send ")


@pytest.mark.parametrize(
    ("kind", "max_bytes"), [(0x10, 16_000), (0x12, 32_000), (0x13, 48_000), (0x14, 64_000)]
)
def test_a_message_has_at_most_one_second_of_audio(kind: int, max_bytes: int) -> None:
    whole = struct.pack("!BH", kind, max_bytes) + bytes(max_bytes)
    assert len(received(AudioSocketRole.SERVER, CALL_ID_MESSAGE, whole)[0]) == 2
    events, error = received(AudioSocketRole.SERVER, CALL_ID_MESSAGE, struct.pack("!BH", kind, max_bytes + 2))
    assert len(events) == 1
    assert f"with {max_bytes + 2} bytes" in error


def test_the_longest_allowed_message_is_received() -> None:
    events, error = received(AudioSocketRole.SERVER, CALL_ID_MESSAGE, b"\x18\xff\xfe" + bytes(65_534))
    assert error == ""
    assert events[1] == AudioSocketAudio(192_000, bytes(65_534))


def test_an_invalid_header_is_reported_before_its_payload_is_received() -> None:
    assert received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + b"\x10\xff\xff")[1] != ""


def test_the_protocol_error_is_a_vivavoce_error() -> None:
    assert issubclass(AudioSocketProtocolError, VivavoceError)


def test_after_an_error_every_call_raises_it_again_and_received_data_is_dropped() -> None:
    connection = open_call()
    connection.receive_data(b"\x77\x00\x00" + bytes(1_000))
    for _ in range(3):
        with pytest.raises(AudioSocketProtocolError, match="got kind 0x77"):
            list(connection.events())
        connection.receive_data(AUDIO_MESSAGE)
        assert not connection.in_message


# Bounds


def test_data_beyond_the_limit_of_unread_bytes_is_refused() -> None:
    connection = open_call()
    connection.receive_data(bytes(MAX_UNREAD_BYTES))
    with pytest.raises(ValueError, match="more than 1048576 bytes are unread; take events"):
        connection.receive_data(b"a")


def test_a_long_call_received_in_small_parts_buffers_at_most_one_message() -> None:
    connection = open_call()
    message = b"\x10\x3e\x80" + bytes(16_000)
    tracemalloc.start()
    try:
        for _ in range(30):
            for start in range(0, len(message), 100):
                connection.receive_data(message[start : start + 100])
                for _ in connection.events():
                    pass
        allocated_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated_bytes < 4 * 16_003


def test_an_interrupted_iteration_over_events_can_be_resumed() -> None:
    connection = open_call()
    connection.receive_data(AUDIO_MESSAGE + DTMF_MESSAGE + DTMF_MESSAGE)
    for event in connection.events():
        assert event == AudioSocketAudio(8_000, PAYLOAD)
        break
    connection.receive_data(HANGUP_MESSAGE)
    assert list(connection.events()) == [Dtmf("5"), Dtmf("5"), Hangup()]


def test_data_may_be_received_while_events_are_iterated() -> None:
    connection = open_call()
    connection.receive_data(AUDIO_MESSAGE + DTMF_MESSAGE[:2])
    events = connection.events()
    assert next(events) == AudioSocketAudio(8_000, PAYLOAD)
    connection.receive_data(DTMF_MESSAGE[2:] + HANGUP_MESSAGE)
    assert list(events) == [Dtmf("5"), Hangup()]


@pytest.mark.parametrize("role", AudioSocketRole)
def test_every_reachable_state_has_a_row_in_the_transition_table(role: AudioSocketRole) -> None:
    table = TRANSITIONS[role]
    assert {state for row in table.values() for state in row.values()} <= set(table)
    assert table[AudioSocketState.ENDED] == {}
    assert all(
        row[Hangup] is AudioSocketState.ENDED
        for state, row in table.items()
        if state is not AudioSocketState.ENDED
    )
