"""Manners on an AudioSocket line, from bytes and moments: who is hung up on and why; what is not sent."""

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

ID = CallId(uuid.UUID(int=7))
PACKET = AudioSocketAudio(8_000, b"\x01\x00" * 160)
PATIENCE = AudioSocketTimeouts(first_message_s=5.0, stalled_s=2.0)


def a_line(
    *said: CallId | AudioSocketAudio | Dtmf | AudioSocketError | Hangup,
) -> AudioSocketServerConnection:
    """A line on which a caller has said something at second 100."""
    line = AudioSocketServerConnection(100.0, PATIENCE)
    line.receive_data(b"".join(map(encode, said)))
    return line


def test_a_call_is_its_id_and_then_what_is_said_on_it() -> None:
    said = ID, PACKET, Dtmf("5"), Hangup()
    assert tuple(a_line(*said).events(100.0)) == said


def test_the_end_of_the_connection_is_a_hang_up() -> None:
    line = a_line(ID)
    line.receive_eof()
    assert tuple(line.events(100.0)) == (ID, Hangup())


def test_an_id_must_have_come_in_time() -> None:
    line = a_line()
    assert list(line.events(101.0)) == []
    assert line.deadline == 105.0
    line.check_deadline(104.9)
    with pytest.raises(AudioSocketProtocolError, match="no call id within 5 s"):
        line.check_deadline(105.0)


def test_half_an_id_buys_no_time() -> None:
    line = AudioSocketServerConnection(100.0, PATIENCE)
    line.receive_data(encode(ID)[:9])
    assert list(line.events(104.0)) == []
    assert line.deadline == 105.0


def test_between_messages_there_is_no_deadline() -> None:
    line = a_line(ID, PACKET)
    assert len(list(line.events(101.0))) == 2
    assert line.deadline is None
    line.check_deadline(1e9)


def test_a_message_that_was_begun_must_end_and_more_of_it_buys_no_time() -> None:
    line = a_line(ID)
    for second, data in ((101.0, encode(PACKET)[:7]), (102.5, encode(PACKET)[7:9])):
        line.receive_data(data)
        list(line.events(second))
    assert line.deadline == 103.0
    with pytest.raises(AudioSocketProtocolError, match="stayed incomplete for 2 s"):
        line.check_deadline(103.0)


def test_a_message_that_ends_in_time_takes_the_deadline_away() -> None:
    line = a_line(ID)
    line.receive_data(encode(PACKET)[:7])
    list(line.events(101.0))
    line.receive_data(encode(PACKET)[7:])
    assert list(line.events(102.9)) == [PACKET]
    assert line.deadline is None


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (encode(AudioSocketError(1)), "the peer reported error 0x01"),
        (b"\x42\x00\x00", "got kind 0x42"),
        (encode(ID), "a caller must not send CallId in the call"),
        (encode(AudioSocketAudio(8_000, b"\xd5" * 160)) * 9, r"c\(slin\)"),
    ],
)
def test_a_fault_is_told_behind_what_was_said_before_it(said: bytes, complaint: str) -> None:
    line = a_line(ID, Dtmf("1"))
    line.receive_data(said)
    events = line.events(100.0)
    assert [next(events), next(events)] == [ID, Dtmf("1")]
    with pytest.raises(AudioSocketProtocolError, match=complaint):
        list(events)


def test_a_line_may_catch_up_30_s_and_go_on_at_its_densest() -> None:
    line = a_line(ID)
    line.receive_data(encode(PACKET) * 1_490)
    assert len(list(line.events(100.0))) == 1_491
    for second in range(101, 111):
        line.receive_data(encode(PACKET) * 100)
        assert len(list(line.events(float(second)))) == 100


def test_messages_faster_than_any_line_are_a_fault() -> None:
    line = a_line(ID)
    line.receive_data(encode(AudioSocketAudio(8_000, b"\x01\x00")) * 2_000)
    with pytest.raises(AudioSocketProtocolError, match="1701 messages came faster than a phone sends them"):
        list(line.events(101.0))


def packets(data: bytes) -> list[object]:
    phone = AudioSocketConnection(AudioSocketRole.CALLER)
    phone.send(ID)
    phone.receive_data(data)
    return list(phone.events())


def test_packets_and_the_goodbye_are_whole_messages() -> None:
    line = a_line(ID)
    assert packets(
        line.encode_packet(PACKET, 0) + line.encode_packet(PACKET, 646) + line.encode_hangup()
    ) == [
        PACKET,
        PACKET,
        Hangup(),
    ]


def test_a_backlog_of_over_two_packets_costs_whole_ones() -> None:
    line = a_line(ID)
    sent = [line.encode_packet(PACKET, unsent) for unsent in (0, 646, 647, 5_000, 0)]
    assert [bool(message) for message in sent] == [True, True, False, False, True]
    assert line.dropped == 2


@pytest.mark.parametrize(
    ("unsent", "stalled"), [(lambda n: 9_999, True), (lambda n: 9_999 * (n % 99 > 0), False)]
)
def test_only_who_takes_nothing_at_all_has_stalled(unsent: Callable[[int], int], stalled: bool) -> None:
    line = a_line(ID)
    for number in range(100):
        assert not line.has_stalled
        line.encode_packet(PACKET, unsent(number))
    assert line.has_stalled is stalled
    assert line.dropped > 90
