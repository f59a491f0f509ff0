"""The server's side of an AudioSocket call: deadlines, violations, rate limit, and dropped packets."""

import uuid
from collections.abc import Callable

import pytest

from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketError,
    AudioSocketProtocolError,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
    encode,
)
from vivavoce.adapters.audiosocket.server_connection import AudioSocketServerConnection, AudioSocketTimeouts

CALL_ID = CallId(uuid.UUID(int=7))
PACKET = AudioSocketAudio(8_000, b"\x01\x00" * 160)
TIMEOUTS = AudioSocketTimeouts(first_message_s=5.0, stalled_s=2.0)


def connection_with(
    *messages: CallId | AudioSocketAudio | Dtmf | AudioSocketError | Hangup,
) -> AudioSocketServerConnection:
    """A connection accepted at 100 s, which has received ``messages``."""
    connection = AudioSocketServerConnection(100.0, TIMEOUTS)
    connection.receive_data(b"".join(map(encode, messages)))
    return connection


def test_the_events_are_the_messages_received() -> None:
    messages = CALL_ID, PACKET, Dtmf("5"), Hangup()
    assert tuple(connection_with(*messages).events(100.0)) == messages


def test_the_end_of_the_connection_is_a_hangup() -> None:
    connection = connection_with(CALL_ID)
    connection.receive_eof()
    assert tuple(connection.events(100.0)) == (CALL_ID, Hangup())


def test_a_missing_call_id_is_an_error_at_the_deadline() -> None:
    connection = connection_with()
    assert list(connection.events(101.0)) == []
    assert connection.deadline == 105.0
    connection.check_deadline(104.9)
    with pytest.raises(AudioSocketProtocolError, match="no call id within 5 s"):
        connection.check_deadline(105.0)


def test_a_part_of_the_call_id_does_not_extend_the_deadline() -> None:
    connection = AudioSocketServerConnection(100.0, TIMEOUTS)
    connection.receive_data(encode(CALL_ID)[:9])
    assert list(connection.events(104.0)) == []
    assert connection.deadline == 105.0


def test_there_is_no_deadline_between_messages() -> None:
    connection = connection_with(CALL_ID, PACKET)
    assert len(list(connection.events(101.0))) == 2
    assert connection.deadline is None
    connection.check_deadline(1e9)


def test_more_data_of_an_incomplete_message_does_not_extend_its_deadline() -> None:
    connection = connection_with(CALL_ID)
    for second, data in ((101.0, encode(PACKET)[:7]), (102.5, encode(PACKET)[7:9])):
        connection.receive_data(data)
        list(connection.events(second))
    assert connection.deadline == 103.0
    with pytest.raises(AudioSocketProtocolError, match="stayed incomplete for 2 s"):
        connection.check_deadline(103.0)


def test_a_message_completed_in_time_removes_the_deadline() -> None:
    connection = connection_with(CALL_ID)
    connection.receive_data(encode(PACKET)[:7])
    list(connection.events(101.0))
    connection.receive_data(encode(PACKET)[7:])
    assert list(connection.events(102.9)) == [PACKET]
    assert connection.deadline is None


@pytest.mark.parametrize(
    ("data", "error_text"),
    [
        (encode(AudioSocketError(1)), "the peer reported error 0x01"),
        (b"\x42\x00\x00", "got kind 0x42"),
        (encode(CALL_ID), "a caller must not send CallId in the call"),
    ],
)
def test_a_violation_is_raised_after_the_events_before_it(data: bytes, error_text: str) -> None:
    connection = connection_with(CALL_ID, Dtmf("1"))
    connection.receive_data(data)
    events = connection.events(100.0)
    assert [next(events), next(events)] == [CALL_ID, Dtmf("1")]
    with pytest.raises(AudioSocketProtocolError, match=error_text):
        list(events)


def test_30_s_of_delayed_audio_and_the_densest_packets_after_it_are_accepted() -> None:
    connection = connection_with(CALL_ID)
    connection.receive_data(encode(PACKET) * 1_490)
    assert len(list(connection.events(100.0))) == 1_491
    for second in range(101, 111):
        connection.receive_data(encode(AudioSocketAudio(8_000, bytes(160))) * 100)
        assert len(list(connection.events(float(second)))) == 100


@pytest.mark.parametrize(
    ("message", "error_text"),
    [
        (AudioSocketAudio(8_000, b"\x01\x00"), "more than 3000 messages at once"),
        (AudioSocketAudio(8_000, bytes(960)), "more than 30 s of audio at once"),
        (Dtmf("1"), "more than 400 control messages at once"),
    ],
)
def test_messages_faster_than_a_phone_sends_them_are_an_error(
    message: AudioSocketAudio | Dtmf, error_text: str
) -> None:
    connection = connection_with(CALL_ID)
    with pytest.raises(AudioSocketProtocolError, match=error_text):
        for _ in range(4_000):
            connection.receive_data(encode(message))
            list(connection.events(101.0))


def test_an_hour_of_ordinary_audio_earns_no_greater_burst() -> None:
    connection = connection_with(CALL_ID, PACKET)
    assert len(list(connection.events(100.0))) == 2
    connection.receive_data(encode(AudioSocketAudio(8_000, bytes(960))) * 501)
    with pytest.raises(AudioSocketProtocolError, match="more than 30 s of audio"):
        list(connection.events(3_700.0))


def decode(data: bytes) -> list[object]:
    caller = AudioSocketConnection(AudioSocketRole.CALLER)
    caller.send(CALL_ID)
    caller.receive_data(data)
    return list(caller.events())


def test_packets_and_the_hangup_are_encoded_as_complete_messages() -> None:
    connection = connection_with(CALL_ID)
    assert decode(
        connection.encode_packet(PACKET.sample_rate, PACKET.payload, 0)
        + connection.encode_packet(PACKET.sample_rate, PACKET.payload, 646)
        + connection.encode_hangup()
    ) == [
        PACKET,
        PACKET,
        Hangup(),
    ]


def test_packets_are_dropped_whole_while_more_than_two_are_unsent() -> None:
    connection = connection_with(CALL_ID)
    sent = [
        connection.encode_packet(PACKET.sample_rate, PACKET.payload, unsent)
        for unsent in (0, 646, 647, 5_000, 0)
    ]
    assert [bool(message) for message in sent] == [True, True, False, False, True]
    assert connection.dropped == 2


@pytest.mark.parametrize(
    ("unsent", "stalled"), [(lambda n: 9_999, True), (lambda n: 9_999 * (n % 99 > 0), False)]
)
def test_a_peer_has_stalled_only_if_it_reads_no_packet_at_all(
    unsent: Callable[[int], int], stalled: bool
) -> None:
    connection = connection_with(CALL_ID)
    for number in range(100):
        assert not connection.has_stalled
        connection.encode_packet(PACKET.sample_rate, PACKET.payload, unsent(number))
    assert connection.has_stalled is stalled
    assert connection.dropped > 90
