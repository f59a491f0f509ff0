"""The AudioSocket protocol: bytes to events and events to bytes, for both roles."""

from collections.abc import Callable

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
    MAX_SENT_BYTES,
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketError,
    AudioSocketMessage,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
    encode,
)

# Receiving


def test_a_server_receives_the_call_id_audio_digits_and_the_hangup() -> None:
    events, error = received(
        AudioSocketRole.SERVER,
        CALL_ID_MESSAGE + AUDIO_MESSAGE + DTMF_MESSAGE + AUDIO_MESSAGE + HANGUP_MESSAGE,
    )
    assert events == [
        CallId(CALL_UUID),
        AudioSocketAudio(8_000, PAYLOAD),
        Dtmf("5"),
        AudioSocketAudio(8_000, PAYLOAD),
        Hangup(),
    ]
    assert error == ""


def test_a_caller_receives_audio_and_the_hangup() -> None:
    assert received(AudioSocketRole.CALLER, AUDIO_MESSAGE + AUDIO_MESSAGE + HANGUP_MESSAGE) == (
        [AudioSocketAudio(8_000, PAYLOAD), AudioSocketAudio(8_000, PAYLOAD), Hangup()],
        "",
    )


@pytest.mark.parametrize(
    ("kind", "sample_rate"),
    [
        (0x10, 8_000),
        (0x11, 12_000),
        (0x12, 16_000),
        (0x13, 24_000),
        (0x14, 32_000),
        (0x15, 44_100),
        (0x16, 48_000),
        (0x17, 96_000),
        (0x18, 192_000),
    ],
)
def test_each_audio_kind_has_its_sample_rate_in_both_directions(kind: int, sample_rate: int) -> None:
    message = bytes([kind, 0, 4]) + b"abcd"
    assert received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + message)[0] == [
        CallId(CALL_UUID),
        AudioSocketAudio(sample_rate, b"abcd"),
    ]
    assert received(AudioSocketRole.CALLER, message)[0] == [AudioSocketAudio(sample_rate, b"abcd")]
    assert (
        AudioSocketConnection(AudioSocketRole.SERVER).send(AudioSocketAudio(sample_rate, b"abcd")) == message
    )


@pytest.mark.parametrize("digit", "0123456789ABCDabcd*#!")
def test_every_dtmf_digit_is_received(digit: str) -> None:
    assert received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + b"\x03\x00\x01" + digit.encode())[0][1:] == [
        Dtmf(digit)
    ]


@pytest.mark.parametrize(("payload", "code"), [(b"", 0), (b"\x02", 2), (b"\xff", 255)])
def test_an_error_message_is_received_with_its_code_and_the_call_continues(payload: bytes, code: int) -> None:
    message = b"\xff\x00" + bytes([len(payload)]) + payload
    events, error = received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + message + AUDIO_MESSAGE)
    assert events == [CallId(CALL_UUID), AudioSocketError(code), AudioSocketAudio(8_000, PAYLOAD)]
    assert error == ""


def test_an_error_without_a_code_has_code_0() -> None:
    assert AudioSocketError() == AudioSocketError(0)


def test_each_side_receives_the_messages_that_the_other_sends() -> None:
    caller = AudioSocketConnection(AudioSocketRole.CALLER)
    server = AudioSocketConnection(AudioSocketRole.SERVER)
    sent: list[AudioSocketMessage] = [
        CallId(CALL_UUID),
        AudioSocketAudio(8_000, PAYLOAD),
        Dtmf("#"),
        AudioSocketError(1),
        AudioSocketAudio(24_000, b"ab"),
        Hangup(),
    ]
    for event in sent:
        server.receive_data(caller.send(event))
    assert list(server.events()) == sent
    answer: list[AudioSocketMessage] = [
        AudioSocketAudio(16_000, PAYLOAD),
        AudioSocketAudio(8_000, b"cd"),
        Hangup(),
    ]
    for event in answer:
        caller.receive_data(server.send(event))
    assert list(caller.events()) == answer


# Sending


def test_a_message_is_encoded_as_one_bytes_object_with_its_header() -> None:
    message = AudioSocketConnection(AudioSocketRole.SERVER).send(AudioSocketAudio(8_000, PAYLOAD))
    assert type(message) is bytes
    assert message == AUDIO_MESSAGE
    caller = AudioSocketConnection(AudioSocketRole.CALLER)
    assert caller.send(CallId(CALL_UUID)) == CALL_ID_MESSAGE
    assert caller.send(Dtmf("5")) == DTMF_MESSAGE
    assert caller.send(AudioSocketError(2)) == b"\xff\x00\x01\x02"
    assert caller.send(Hangup()) == HANGUP_MESSAGE


def message_name(event: AudioSocketMessage) -> str:
    return type(event).__name__.removeprefix("AudioSocket")


@pytest.mark.parametrize("event", [CallId(CALL_UUID), Dtmf("1"), AudioSocketError(2)])
def test_a_server_refuses_to_send_messages_that_make_asterisk_hang_up(event: AudioSocketMessage) -> None:
    server = AudioSocketConnection(AudioSocketRole.SERVER)
    with pytest.raises(ValueError, match=f"a server must not send {message_name(event)} in the call"):
        server.send(event)
    assert server.send(AudioSocketAudio(8_000, PAYLOAD)) == AUDIO_MESSAGE


def test_a_server_may_send_audio_before_the_call_id_is_received() -> None:
    assert (
        AudioSocketConnection(AudioSocketRole.SERVER).send(AudioSocketAudio(8_000, PAYLOAD)) == AUDIO_MESSAGE
    )


@pytest.mark.parametrize("event", [AudioSocketAudio(8_000, PAYLOAD), Dtmf("1"), AudioSocketError(1)])
def test_a_caller_must_send_the_call_id_first_and_once(event: AudioSocketMessage) -> None:
    caller = AudioSocketConnection(AudioSocketRole.CALLER)
    with pytest.raises(ValueError, match=f"a caller must not send {message_name(event)} before the call id"):
        caller.send(event)
    caller.send(CallId(CALL_UUID))
    caller.send(event)
    with pytest.raises(ValueError, match="a caller must not send CallId in the call"):
        caller.send(CallId(CALL_UUID))


@pytest.mark.parametrize("role", AudioSocketRole)
def test_nothing_may_be_sent_after_a_hangup(role: AudioSocketRole) -> None:
    connection = AudioSocketConnection(role)
    connection.send(Hangup())
    for event in (AudioSocketAudio(8_000, PAYLOAD), CallId(CALL_UUID), Hangup()):
        with pytest.raises(ValueError, match="after the end of the call"):
            connection.send(event)
    with pytest.raises(ValueError, match="after the end of the call"):
        connection.send_audio(8_000, PAYLOAD)


def test_audio_is_sent_as_its_message_and_refused_for_the_same_reasons() -> None:
    server = AudioSocketConnection(AudioSocketRole.SERVER)
    assert server.send_audio(8_000, PAYLOAD) == AUDIO_MESSAGE
    for sample_rate, pcm in ((8_001, PAYLOAD), (8_000, b""), (8_000, b"odd"), (8_000, bytes(1_402))):
        with pytest.raises(ValueError, match="got"):
            server.send_audio(sample_rate, pcm)


def test_more_audio_than_fits_one_tcp_segment_is_refused() -> None:
    server = AudioSocketConnection(AudioSocketRole.SERVER)
    assert len(server.send(AudioSocketAudio(32_000, bytes(1_280)))) == 1_283  # 20 ms
    assert len(server.send(AudioSocketAudio(8_000, bytes(MAX_SENT_BYTES)))) == MAX_SENT_BYTES + 3
    with pytest.raises(ValueError, match="got 1402 bytes of audio; at most 1400 fit one TCP segment"):
        server.send(AudioSocketAudio(8_000, bytes(1_402)))
    server.send(AudioSocketAudio(8_000, PAYLOAD))


def test_a_refused_message_leaves_the_call_open() -> None:
    caller = AudioSocketConnection(AudioSocketRole.CALLER)
    caller.send(CallId(CALL_UUID))
    with pytest.raises(ValueError, match="at most"):
        caller.send(AudioSocketAudio(48_000, bytes(1_920)))
    assert caller.send(Hangup()) == HANGUP_MESSAGE


def test_a_message_can_be_encoded_without_a_connection() -> None:
    assert encode(Dtmf("5")) == DTMF_MESSAGE


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AudioSocketAudio(11_025, b"ab"), "got 11025 Hz; AudioSocket has 8000, 12000, 16000"),
        (lambda: AudioSocketAudio(8_000, b""), "got 0 bytes of audio"),
        (
            lambda: AudioSocketAudio(8_000, b"abc"),
            "got 3 bytes of audio; allowed are one or more 16-bit samples",
        ),
        (lambda: Dtmf("x"), "got key 'x'; keys are 0-9"),
        (lambda: Dtmf(""), "got key ''"),
        (lambda: Dtmf("12"), "got key '12'"),
        (lambda: AudioSocketError(-1), "got error code -1; it must fit one byte"),
        (lambda: AudioSocketError(256), "got error code 256"),
    ],
)
def test_an_event_with_invalid_values_cannot_be_constructed(
    make: Callable[[], AudioSocketMessage], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# The end of a call


def test_the_end_of_the_connection_is_a_hangup() -> None:
    assert received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + AUDIO_MESSAGE, eof=True)[0][2:] == [Hangup()]
    assert received(AudioSocketRole.SERVER, eof=True) == ([Hangup()], "")
    assert received(AudioSocketRole.CALLER, eof=True) == ([Hangup()], "")


def test_a_call_yields_one_hangup() -> None:
    assert received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + HANGUP_MESSAGE, eof=True) == (
        [CallId(CALL_UUID), Hangup()],
        "",
    )
    connection = open_call()
    connection.receive_eof()
    assert list(connection.events()) == [Hangup()]
    assert list(connection.events()) == []


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 322])
def test_closing_within_a_message_is_an_error_with_the_number_of_bytes_received(cut: int) -> None:
    events, error = received(AudioSocketRole.SERVER, CALL_ID_MESSAGE + AUDIO_MESSAGE[:cut], eof=True)
    assert events == [CallId(CALL_UUID)]
    assert error == f"the connection closed after {cut} bytes of an incomplete message"


def test_messages_received_after_sending_a_hangup_are_still_yielded() -> None:
    connection = open_call()
    connection.send(Hangup())
    connection.receive_data(AUDIO_MESSAGE + DTMF_MESSAGE)
    assert list(connection.events()) == [AudioSocketAudio(8_000, PAYLOAD), Dtmf("5")]


def test_in_message_is_true_while_a_message_is_incomplete() -> None:
    connection = open_call()
    assert not connection.in_message
    connection.receive_data(AUDIO_MESSAGE[:1])
    assert list(connection.events()) == []
    assert connection.in_message
    connection.receive_data(AUDIO_MESSAGE[1:])
    assert list(connection.events()) == [AudioSocketAudio(8_000, PAYLOAD)]
    assert not connection.in_message
