"""AudioSocket: bytes in, events out, from both sides; every way a peer can be wrong has its sentence.

``VIVAVOCE_FUZZ=50000`` runs that many structured cases instead of the few that keep CI quick.
"""

import os
import struct
import tracemalloc
from collections.abc import Callable, Iterable
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.adapters.audio.codecs import alaw_encode, ulaw_encode
from vivavoce.adapters.audiosocket.g711_detection import PayloadEncoding, guess_encoding
from vivavoce.adapters.audiosocket.protocol import (
    MAX_SENT_BYTES,
    MAX_UNREAD_BYTES,
    SAMPLE_RATE_OF_KIND,
    TRANSITIONS,
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketError,
    AudioSocketEvent,
    AudioSocketMessage,
    AudioSocketProtocolError,
    AudioSocketRole,
    AudioSocketState,
    CallId,
    Dtmf,
    Hangup,
    MislabelledG711,
    encode,
)
from vivavoce.tts_engine.errors import VivavoceError

CALL = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
HELLO = b"\x01\x00\x10" + CALL.bytes
SPEECH = bytes(range(160)) * 2  # 20 ms at 8 kHz
AUDIO = b"\x10\x01\x40" + SPEECH
KEY = b"\x03\x00\x015"
BYE = b"\x00\x00\x00"


def received(role: AudioSocketRole, *parts: bytes, eof: bool = False) -> tuple[list[AudioSocketEvent], str]:
    """The events of these bytes, and the sentence of the error that ended them or nothing."""
    connection = AudioSocketConnection(role)
    events: list[AudioSocketEvent] = []
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


def _rest(connection: AudioSocketConnection) -> Iterable[AudioSocketEvent]:
    with pytest.raises(AudioSocketProtocolError):
        yield from connection.events()


def answered(*parts: bytes) -> AudioSocketConnection:
    """Our side of a call that Asterisk has opened."""
    connection = AudioSocketConnection(AudioSocketRole.SERVER)
    for part in (HELLO, *parts):
        connection.receive_data(part)
    list(connection.events())
    return connection


# What a call looks like


def test_asterisk_says_the_call_id_then_audio_and_keys_and_hangs_up() -> None:
    events, error = received(AudioSocketRole.SERVER, HELLO + AUDIO + KEY + AUDIO + BYE)
    assert events == [
        CallId(CALL),
        AudioSocketAudio(8_000, SPEECH),
        Dtmf("5"),
        AudioSocketAudio(8_000, SPEECH),
        Hangup(),
    ]
    assert error == ""


def test_a_phone_hears_audio_until_the_server_hangs_up() -> None:
    assert received(AudioSocketRole.CALLER, AUDIO + AUDIO + BYE) == (
        [AudioSocketAudio(8_000, SPEECH), AudioSocketAudio(8_000, SPEECH), Hangup()],
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
def test_each_kind_of_audio_has_its_rate_in_both_directions(kind: int, sample_rate: int) -> None:
    message = bytes([kind, 0, 4]) + b"abcd"
    assert received(AudioSocketRole.SERVER, HELLO + message)[0] == [
        CallId(CALL),
        AudioSocketAudio(sample_rate, b"abcd"),
    ]
    assert received(AudioSocketRole.CALLER, message)[0] == [AudioSocketAudio(sample_rate, b"abcd")]
    assert (
        AudioSocketConnection(AudioSocketRole.SERVER).send(AudioSocketAudio(sample_rate, b"abcd")) == message
    )


@pytest.mark.parametrize("digit", "0123456789ABCDabcd*#!")
def test_every_key_of_a_phone_arrives(digit: str) -> None:
    assert received(AudioSocketRole.SERVER, HELLO + b"\x03\x00\x01" + digit.encode())[0][1:] == [Dtmf(digit)]


@pytest.mark.parametrize(("payload", "code"), [(b"", 0), (b"\x02", 2), (b"\xff", 255)])
def test_an_error_of_asterisk_arrives_with_its_code_and_the_call_goes_on(payload: bytes, code: int) -> None:
    message = b"\xff\x00" + bytes([len(payload)]) + payload
    events, error = received(AudioSocketRole.SERVER, HELLO + message + AUDIO)
    assert events == [CallId(CALL), AudioSocketError(code), AudioSocketAudio(8_000, SPEECH)]
    assert error == ""


def test_an_error_without_a_code_is_code_0() -> None:
    assert AudioSocketError() == AudioSocketError(0)


def test_what_one_side_sends_the_other_receives() -> None:
    phone, gateway = (
        AudioSocketConnection(AudioSocketRole.CALLER),
        AudioSocketConnection(AudioSocketRole.SERVER),
    )
    said: list[AudioSocketMessage] = [
        CallId(CALL),
        AudioSocketAudio(8_000, SPEECH),
        Dtmf("#"),
        AudioSocketError(1),
        AudioSocketAudio(24_000, b"ab"),
        Hangup(),
    ]
    for event in said:
        gateway.receive_data(phone.send(event))
    assert list(gateway.events()) == said
    answer: list[AudioSocketMessage] = [
        AudioSocketAudio(16_000, SPEECH),
        AudioSocketAudio(8_000, b"cd"),
        Hangup(),
    ]
    for event in answer:
        phone.receive_data(gateway.send(event))
    assert list(phone.events()) == answer


# Sending


def test_a_message_is_one_piece_of_bytes_header_first() -> None:
    message = AudioSocketConnection(AudioSocketRole.SERVER).send(AudioSocketAudio(8_000, SPEECH))
    assert type(message) is bytes
    assert message == AUDIO
    phone = AudioSocketConnection(AudioSocketRole.CALLER)
    assert phone.send(CallId(CALL)) == HELLO
    assert phone.send(Dtmf("5")) == KEY
    assert phone.send(AudioSocketError(2)) == b"\xff\x00\x01\x02"
    assert phone.send(Hangup()) == BYE


def name_of(event: AudioSocketMessage) -> str:
    return type(event).__name__.removeprefix("AudioSocket")


@pytest.mark.parametrize("event", [CallId(CALL), Dtmf("1"), AudioSocketError(2)])
def test_a_server_does_not_send_what_asterisk_hangs_up_on(event: AudioSocketMessage) -> None:
    gateway = AudioSocketConnection(AudioSocketRole.SERVER)
    with pytest.raises(ValueError, match=f"a server must not send {name_of(event)} in the call"):
        gateway.send(event)
    assert gateway.send(AudioSocketAudio(8_000, SPEECH)) == AUDIO


def test_a_server_may_speak_before_the_call_id_has_come() -> None:
    assert AudioSocketConnection(AudioSocketRole.SERVER).send(AudioSocketAudio(8_000, SPEECH)) == AUDIO


@pytest.mark.parametrize("event", [AudioSocketAudio(8_000, SPEECH), Dtmf("1"), AudioSocketError(1)])
def test_a_caller_says_its_id_first(event: AudioSocketMessage) -> None:
    phone = AudioSocketConnection(AudioSocketRole.CALLER)
    with pytest.raises(ValueError, match=f"a caller must not send {name_of(event)} before the call id"):
        phone.send(event)
    phone.send(CallId(CALL))
    phone.send(event)
    with pytest.raises(ValueError, match="a caller must not send CallId in the call"):
        phone.send(CallId(CALL))


@pytest.mark.parametrize("role", AudioSocketRole)
def test_nothing_is_sent_after_hanging_up(role: AudioSocketRole) -> None:
    connection = AudioSocketConnection(role)
    connection.send(Hangup())
    for event in (AudioSocketAudio(8_000, SPEECH), CallId(CALL), Hangup()):
        with pytest.raises(ValueError, match="after the end of the call"):
            connection.send(event)


def test_more_audio_than_fits_one_tcp_segment_is_refused() -> None:
    gateway = AudioSocketConnection(AudioSocketRole.SERVER)
    assert len(gateway.send(AudioSocketAudio(32_000, bytes(1_280)))) == 1_283  # 20 ms
    assert len(gateway.send(AudioSocketAudio(8_000, bytes(MAX_SENT_BYTES)))) == MAX_SENT_BYTES + 3
    with pytest.raises(ValueError, match="got 1402 bytes of audio; at most 1400 fit one TCP segment"):
        gateway.send(AudioSocketAudio(8_000, bytes(1_402)))
    gateway.send(AudioSocketAudio(8_000, SPEECH))


def test_a_refused_hang_up_leaves_the_call_open() -> None:
    phone = AudioSocketConnection(AudioSocketRole.CALLER)
    phone.send(CallId(CALL))
    with pytest.raises(ValueError, match="at most"):
        phone.send(AudioSocketAudio(48_000, bytes(1_920)))
    assert phone.send(Hangup()) == BYE


def test_a_message_can_be_made_without_a_connection() -> None:
    assert encode(Dtmf("5")) == KEY


def test_what_is_only_ever_told_is_not_sent() -> None:
    with pytest.raises(ValueError, match="a server must not send MislabelledG711"):
        AudioSocketConnection(AudioSocketRole.SERVER).send(MislabelledG711())  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        encode(MislabelledG711())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "sentence"),
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
def test_an_event_that_cannot_be_sent_cannot_be_made(
    make: Callable[[], AudioSocketEvent], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


# The peer is wrong


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x02\x00\x00", "got kind 0x02 of 0 bytes; kinds are 0x00, 0x01, 0x03, 0x10-0x18, 0xff"),
        (b"\x19\x01\x40", "got kind 0x19 of 320 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "got kind 0x47 of 17748 bytes"),
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
        (HELLO, "a caller must not send CallId in the call"),
        (BYE + AUDIO, "a caller must not send Audio after the end of the call"),
        (BYE + BYE, "a caller must not send Hangup after the end of the call"),
    ],
)
def test_a_bad_message_ends_the_events_with_a_sentence(data: bytes, sentence: str) -> None:
    events, error = received(AudioSocketRole.SERVER, HELLO + AUDIO + data)
    assert events[:2] == [CallId(CALL), AudioSocketAudio(8_000, SPEECH)]
    assert error.startswith(sentence)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (AUDIO, "a caller must not send Audio before the call id"),
        (KEY, "a caller must not send Dtmf before the call id"),
        (b"\x01\x00\x0f" + bytes(15), "got CallId (0x01) with 15 bytes; allowed: 16"),
        (b"\x01\x00\x11" + bytes(17), "got CallId (0x01) with 17 bytes; allowed: 16"),
        (b"\x01\x00\x00", "got CallId (0x01) with 0 bytes; allowed: 16"),
    ],
)
def test_a_call_begins_with_its_id(data: bytes, sentence: str) -> None:
    assert received(AudioSocketRole.SERVER, data) == ([], sentence)


@pytest.mark.parametrize("message", [HELLO, KEY, b"\xff\x00\x00"])
def test_a_phone_takes_from_a_server_what_asterisk_takes(message: bytes) -> None:
    events, error = received(AudioSocketRole.CALLER, AUDIO + message)
    assert events == [AudioSocketAudio(8_000, SPEECH)]
    assert error.startswith("a server must not send ")


@pytest.mark.parametrize(
    ("kind", "longest"), [(0x10, 16_000), (0x12, 32_000), (0x13, 48_000), (0x14, 64_000)]
)
def test_a_message_holds_a_second_of_audio_at_most(kind: int, longest: int) -> None:
    whole = struct.pack("!BH", kind, longest) + bytes(longest)
    assert len(received(AudioSocketRole.SERVER, HELLO, whole)[0]) == 2
    events, error = received(AudioSocketRole.SERVER, HELLO, struct.pack("!BH", kind, longest + 2))
    assert len(events) == 1
    assert f"with {longest + 2} bytes" in error


def test_the_longest_message_of_all_arrives() -> None:
    events, error = received(AudioSocketRole.SERVER, HELLO, b"\x18\xff\xfe" + bytes(65_534))
    assert error == ""
    assert events[1] == AudioSocketAudio(192_000, bytes(65_534))


def test_a_bad_header_is_told_before_its_payload_comes() -> None:
    assert received(AudioSocketRole.SERVER, HELLO + b"\x10\xff\xff")[1] != ""


def test_a_protocol_error_is_one_of_ours() -> None:
    assert issubclass(AudioSocketProtocolError, VivavoceError)


def test_after_an_error_the_same_sentence_comes_again_and_nothing_is_kept() -> None:
    connection = answered()
    connection.receive_data(b"\x77\x00\x00" + bytes(1_000))
    for _ in range(3):
        with pytest.raises(AudioSocketProtocolError, match="got kind 0x77"):
            list(connection.events())
        connection.receive_data(AUDIO)
        assert not connection.in_message


# The end


def test_closing_is_hanging_up() -> None:
    assert received(AudioSocketRole.SERVER, HELLO + AUDIO, eof=True)[0][2:] == [Hangup()]
    assert received(AudioSocketRole.SERVER, eof=True) == ([Hangup()], "")
    assert received(AudioSocketRole.CALLER, eof=True) == ([Hangup()], "")


def test_a_call_ends_once() -> None:
    assert received(AudioSocketRole.SERVER, HELLO + BYE, eof=True) == ([CallId(CALL), Hangup()], "")
    connection = answered()
    connection.receive_eof()
    assert list(connection.events()) == [Hangup()]
    assert list(connection.events()) == []


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 322])
def test_closing_inside_a_message_is_told_with_what_had_come(cut: int) -> None:
    events, error = received(AudioSocketRole.SERVER, HELLO + AUDIO[:cut], eof=True)
    assert events == [CallId(CALL)]
    assert error == f"the connection closed after {cut} bytes of an incomplete message"


def test_what_still_comes_after_we_hung_up_is_heard() -> None:
    connection = answered()
    connection.send(Hangup())
    connection.receive_data(AUDIO + KEY)
    assert list(connection.events()) == [AudioSocketAudio(8_000, SPEECH), Dtmf("5")]


def test_a_stalled_message_can_be_seen() -> None:
    connection = answered()
    assert not connection.in_message
    connection.receive_data(AUDIO[:1])
    assert list(connection.events()) == []
    assert connection.in_message
    connection.receive_data(AUDIO[1:])
    assert list(connection.events()) == [AudioSocketAudio(8_000, SPEECH)]
    assert not connection.in_message


# Bounds


def test_bytes_that_nobody_takes_the_events_of_are_refused() -> None:
    connection = answered()
    connection.receive_data(bytes(MAX_UNREAD_BYTES))
    with pytest.raises(ValueError, match="more than 1048576 bytes are unread; take events"):
        connection.receive_data(b"a")


def test_a_long_call_in_small_pieces_keeps_one_message_at_most() -> None:
    connection = answered()
    message = b"\x10\x3e\x80" + bytes(16_000)
    tracemalloc.start()
    try:
        for _ in range(30):
            for start in range(0, len(message), 100):
                connection.receive_data(message[start : start + 100])
                for _ in connection.events():
                    pass
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * 16_003


def test_events_may_be_left_and_taken_up_again() -> None:
    connection = answered()
    connection.receive_data(AUDIO + KEY + KEY)
    for event in connection.events():
        assert event == AudioSocketAudio(8_000, SPEECH)
        break
    connection.receive_data(BYE)
    assert list(connection.events()) == [Dtmf("5"), Dtmf("5"), Hangup()]


def test_more_may_be_received_while_events_are_taken() -> None:
    connection = answered()
    connection.receive_data(AUDIO + KEY[:2])
    events = connection.events()
    assert next(events) == AudioSocketAudio(8_000, SPEECH)
    connection.receive_data(KEY[2:] + BYE)
    assert list(events) == [Dtmf("5"), Hangup()]


@pytest.mark.parametrize("role", AudioSocketRole)
def test_every_state_that_can_be_reached_is_in_the_table(role: AudioSocketRole) -> None:
    table = TRANSITIONS[role]
    assert {state for row in table.values() for state in row.values()} <= set(table)
    assert table[AudioSocketState.ENDED] == {}
    assert all(
        row[Hangup] is AudioSocketState.ENDED
        for state, row in table.items()
        if state is not AudioSocketState.ENDED
    )


# Raw G.711 under the label of 16-bit audio

Law = Callable[[bytes], bytes]


def voice(level_db: float, seconds: float = 1.0) -> bytes:
    """Something like a vowel: harmonics of 120 Hz under two formants."""
    time = np.arange(round(8_000 * seconds)) / 8_000
    random = np.random.default_rng(3)
    tones = [
        np.cos(2 * np.pi * hertz * time + random.uniform(0, 6))
        / (1 + ((hertz - 600) / 400) ** 2 + (hertz / 1_500) ** 2)
        for hertz in range(120, 3_400, 120)
    ]
    return at_level(np.sum(tones, axis=0), level_db)


def hiss(level_db: float) -> bytes:
    return at_level(np.random.default_rng(4).standard_normal(8_000), level_db)


def keypress(level_db: float) -> bytes:
    time = np.arange(8_000) / 8_000
    return at_level(np.sin(2 * np.pi * 770 * time) + np.sin(2 * np.pi * 1_336 * time), level_db)


def at_level(signal: npt.NDArray[np.float64], level_db: float) -> bytes:
    scaled = signal / signal.std() * 32_768 * 10 ** (level_db / 20)
    return np.clip(np.rint(scaled), -32_768, 32_767).astype("<i2").tobytes()


def warned_after(payloads: Iterable[bytes]) -> int | None:
    """How many messages of kind 0x10 until the call is known to be companded."""
    connection = answered()
    warnings = []
    for number, payload in enumerate(payloads, 1):
        connection.receive_data(b"\x10" + struct.pack("!H", len(payload)) + payload)
        warnings += [number for event in connection.events() if event == MislabelledG711()]
    assert len(warnings) <= 1
    return warnings[0] if warnings else None


def in_messages(data: bytes, size: int = 160) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("law", [ulaw_encode, alaw_encode])
@pytest.mark.parametrize("level_db", [-60, -40, -20, -6])
@pytest.mark.parametrize("signal", [voice, hiss, keypress])
def test_raw_g711_is_noticed_within_100_ms(
    law: Law, level_db: float, signal: Callable[[float], bytes]
) -> None:
    assert warned_after(in_messages(law(signal(level_db)))) == 5


@pytest.mark.parametrize("level_db", [-60, -40, -20, -12])
@pytest.mark.parametrize("signal", [voice, hiss, keypress])
def test_genuine_audio_of_a_10_ms_phone_is_not_suspected(
    level_db: float, signal: Callable[[float], bytes]
) -> None:
    assert warned_after(in_messages(signal(level_db))) is None


@pytest.mark.parametrize("silence", [b"\xff", b"\x7f", b"\xd5", b"\x55"])
def test_the_silence_of_both_laws_is_noticed(silence: bytes) -> None:
    assert warned_after([silence * 160] * 10) == 5


def test_the_silence_of_16_bit_audio_is_not_suspected() -> None:
    assert warned_after([bytes(160)] * 100) is None
    comfort_noise = np.random.default_rng(5).integers(-2, 2, 8_000).astype("<i2").tobytes()
    assert warned_after(in_messages(comfort_noise)) is None


def test_silence_first_hides_nothing() -> None:
    quiet_then_voice = [bytes(160)] * 50 + in_messages(ulaw_encode(voice(-20)))
    assert warned_after(quiet_then_voice) == 55


def test_audio_of_another_length_or_rate_ends_the_suspicion() -> None:
    companded = in_messages(ulaw_encode(voice(-20)))
    assert warned_after([*companded[:4], SPEECH, *companded]) is None
    connection = answered()
    connection.receive_data(b"\x11\x00\xa0" + companded[0])
    connection.receive_data(b"".join(b"\x10\x00\xa0" + payload for payload in companded[:20]))
    assert MislabelledG711() not in list(connection.events())


def test_once_16_bit_audio_is_recognized_the_question_is_closed() -> None:
    companded = in_messages(ulaw_encode(voice(-20)))
    assert warned_after(in_messages(voice(-20))[:5] + companded) is None
    assert warned_after(in_messages(voice(-20))[:4] + companded) == 4 + 4 + 5


def test_keys_do_not_disturb_the_suspicion() -> None:
    connection = answered()
    companded = b"".join(b"\x10\x00\xa0" + payload for payload in in_messages(ulaw_encode(voice(-20)))[:5])
    connection.receive_data(companded[: 163 * 3] + KEY + companded[163 * 3 :])
    events = list(connection.events())
    assert [type(event) for event in events] == [AudioSocketAudio] * 3 + [Dtmf] + [AudioSocketAudio] * 2 + [
        MislabelledG711
    ]


def test_a_phone_suspects_nobody() -> None:
    connection = AudioSocketConnection(AudioSocketRole.CALLER)
    connection.receive_data((b"\x10\x00\xa0" + b"\xff" * 160) * 20)
    assert MislabelledG711() not in list(connection.events())


def test_the_advice_says_what_to_change() -> None:
    assert "c(slin)" in MislabelledG711().advice
    assert "160-byte" in MislabelledG711().advice


@pytest.mark.parametrize(
    ("payload", "encoding"),
    [
        (bytes(160), None),
        (b"\x01\x00\xff\xff" * 40, None),
        (struct.pack("<hh", 255, -255) * 40, None),
        (struct.pack("<hh", 256, -255) * 40, PayloadEncoding.COMPANDED),
        (b"\xff" * 160, PayloadEncoding.COMPANDED),
        (voice(-20, 0.01), PayloadEncoding.LINEAR),
        (ulaw_encode(voice(-20, 0.02)), PayloadEncoding.COMPANDED),
    ],
)
def test_one_message_is_guessed_by_its_bytes(payload: bytes, encoding: PayloadEncoding | None) -> None:
    assert guess_encoding(payload) is encoding


# Any bytes, any split

FUZZ = settings(max_examples=int(os.environ.get("VIVAVOCE_FUZZ", "300")), deadline=None)
HEADER = struct.Struct("!BH")
TYPICAL_LENGTHS = st.sampled_from([0, 1, 2, 15, 16, 17, 159, 160, 319, 320, 960, 1_920])


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A well-formed header with a payload that may not fit it, now and then cut short."""
    kind = draw(st.one_of(st.sampled_from([0x00, 0x01, 0x03, 0x10, 0x13, 0x18, 0xFF]), st.integers(0, 255)))
    fitting = {0x00: 0, 0x01: 16, 0x03: 1, 0xFF: 1}.get(kind, 320)
    length = draw(st.one_of(st.just(fitting), TYPICAL_LENGTHS, st.integers(0, 65_535)))
    filler = draw(st.binary(min_size=1, max_size=24)) if kind != 0x03 else draw(st.sampled_from([b"5", b"x"]))
    payload = (filler * (length // len(filler) + 1))[:length]
    message = HEADER.pack(kind, length) + payload
    cut = draw(st.one_of(st.none(), st.none(), st.integers(0, len(message))))
    return message[:cut]


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    begin = draw(st.sampled_from([b"", HELLO, HELLO, HELLO]))
    talk = draw(st.lists(st.one_of(messages(), st.sampled_from([AUDIO, KEY, BYE, HELLO])), max_size=12))
    return begin + b"".join(talk) + draw(st.binary(max_size=6))


def expected(role: AudioSocketRole, data: bytes, eof: bool) -> tuple[list[AudioSocketEvent], bool]:
    """The protocol again, as plainly as can be: whole bytes, no states but two flags."""
    from_caller = role is AudioSocketRole.SERVER
    named, over, place = not from_caller, False, 0
    events: list[AudioSocketEvent] = []
    rates = dict(
        zip(range(0x10, 0x19), (8000, 12000, 16000, 24000, 32000, 44100, 48000, 96000, 192000), strict=True)
    )
    while len(data) - place >= 3:
        kind, length = data[place], data[place + 1] * 256 + data[place + 2]
        if over or (kind not in rates and kind not in (0x00, 0x01, 0x03, 0xFF)):
            return events, True
        if not from_caller and kind in (0x01, 0x03, 0xFF):
            return events, True
        if (kind == 0x01 and named) or (kind not in (0x00, 0x01) and not named):
            return events, True
        low, high = {0x00: (0, 0), 0x01: (16, 16), 0x03: (1, 1), 0xFF: (0, 1)}.get(
            kind, (2, 2 * rates.get(kind, 0))
        )
        if not low <= length <= high or (kind in rates and length % 2):
            return events, True
        payload = data[place + 3 : place + 3 + length]
        if len(payload) < length:
            break
        place += 3 + length
        if kind == 0x00:
            events.append(Hangup())
            over = True
        elif kind == 0x01:
            events.append(CallId(UUID(bytes=payload)))
            named = True
        elif kind == 0x03:
            if payload not in b"0123456789ABCDabcd*#!":
                return events, True
            events.append(Dtmf(payload.decode()))
        elif kind == 0xFF:
            events.append(AudioSocketError(payload[0] if payload else 0))
        else:
            events.append(AudioSocketAudio(rates[kind], payload))
    if eof and not over:
        if place < len(data):
            return events, True
        events.append(Hangup())
    return events, False


@FUZZ
@given(
    st.sampled_from(AudioSocketRole),
    conversations(),
    st.booleans(),
    st.lists(st.integers(0, 2_000), max_size=8),
)
def test_any_bytes_in_any_split_mean_what_the_protocol_says(
    role: AudioSocketRole, data: bytes, eof: bool, cuts: list[int]
) -> None:
    places = sorted({min(cut, len(data)) for cut in cuts})
    parts = [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
    events, error = received(role, *parts, eof=eof)
    assert (events, error) == received(role, data, eof=eof)
    told = [event for event in events if event != MislabelledG711()]
    assert (told, bool(error)) == expected(role, data, eof)
    assert error == "" or len(error) > 20


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(AudioSocketRole), conversations())
def test_byte_by_byte_means_the_same(role: AudioSocketRole, data: bytes) -> None:
    data = data[:3_000]
    assert received(role, *(bytes([byte]) for byte in data)) == received(role, data)


@FUZZ
@given(st.binary(max_size=200))
def test_no_bytes_at_all_break_more_than_the_protocol(data: bytes) -> None:
    events, error = received(AudioSocketRole.SERVER, data)
    assert ([event for event in events if event != MislabelledG711()], bool(error)) == expected(
        AudioSocketRole.SERVER, data, False
    )


def test_the_rates_are_all_there() -> None:
    assert list(SAMPLE_RATE_OF_KIND) == list(range(0x10, 0x19))
