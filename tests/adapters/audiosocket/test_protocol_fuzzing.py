"""Fuzzing of the AudioSocket protocol against a reference decoder.

``VIVAVOCE_FUZZ=50000`` sets the number of examples; the default is 300.
"""

import os
import struct
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.calls.audiosocket_messages import (
    AUDIO_MESSAGE,
    CALL_ID_MESSAGE,
    DTMF_MESSAGE,
    HANGUP_MESSAGE,
    received,
)
from vivavoce.adapters.audiosocket.protocol import (
    SAMPLE_RATE_OF_KIND,
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketError,
    AudioSocketMessage,
    AudioSocketProtocolError,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
)

FUZZ = settings(max_examples=int(os.environ.get("VIVAVOCE_FUZZ", "300")), deadline=None)
HEADER = struct.Struct("!BH")
TYPICAL_LENGTHS = st.sampled_from([0, 1, 2, 15, 16, 17, 159, 160, 319, 320, 960, 1_920])


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A well-formed header with a payload that may be invalid for it; some messages are truncated."""
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
    start = draw(st.sampled_from([b"", CALL_ID_MESSAGE, CALL_ID_MESSAGE, CALL_ID_MESSAGE]))
    rest = draw(
        st.lists(
            st.one_of(
                messages(), st.sampled_from([AUDIO_MESSAGE, DTMF_MESSAGE, HANGUP_MESSAGE, CALL_ID_MESSAGE])
            ),
            max_size=12,
        )
    )
    return start + b"".join(rest) + draw(st.binary(max_size=6))


def reference_events(role: AudioSocketRole, data: bytes, eof: bool) -> tuple[list[AudioSocketMessage], bool]:
    """Reference decoder of complete data: the events, and whether the data violates the protocol."""
    is_from_caller = role is AudioSocketRole.SERVER
    has_id, ended, offset = not is_from_caller, False, 0
    events: list[AudioSocketMessage] = []
    rates = dict(
        zip(range(0x10, 0x19), (8000, 12000, 16000, 24000, 32000, 44100, 48000, 96000, 192000), strict=True)
    )
    while len(data) - offset >= 3:
        kind, length = data[offset], data[offset + 1] * 256 + data[offset + 2]
        if ended or (kind not in rates and kind not in (0x00, 0x01, 0x03, 0xFF)):
            return events, True
        if not is_from_caller and kind in (0x01, 0x03, 0xFF):
            return events, True
        if (kind == 0x01 and has_id) or (kind not in (0x00, 0x01) and not has_id):
            return events, True
        low, high = {0x00: (0, 0), 0x01: (16, 16), 0x03: (1, 1), 0xFF: (0, 1)}.get(
            kind, (2, 2 * rates.get(kind, 0))
        )
        if not low <= length <= high or (kind in rates and length % 2):
            return events, True
        payload = data[offset + 3 : offset + 3 + length]
        if len(payload) < length:
            break
        offset += 3 + length
        if kind == 0x00:
            events.append(Hangup())
            ended = True
        elif kind == 0x01:
            events.append(CallId(UUID(bytes=payload)))
            has_id = True
        elif kind == 0x03:
            if payload not in b"0123456789ABCDabcd*#!":
                return events, True
            events.append(Dtmf(payload.decode()))
        elif kind == 0xFF:
            events.append(AudioSocketError(payload[0] if payload else 0))
        else:
            events.append(AudioSocketAudio(rates[kind], payload))
    if eof and not ended:
        if offset < len(data):
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
def test_any_split_gives_the_events_of_the_reference_decoder(
    role: AudioSocketRole, data: bytes, eof: bool, cuts: list[int]
) -> None:
    places = sorted({min(cut, len(data)) for cut in cuts})
    parts = [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
    events, error = received(role, *parts, eof=eof)
    assert (events, error) == received(role, data, eof=eof)
    assert (events, bool(error)) == reference_events(role, data, eof)
    assert error == "" or len(error) > 20


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(AudioSocketRole), conversations())
def test_single_bytes_give_the_events_of_the_whole(role: AudioSocketRole, data: bytes) -> None:
    data = data[:3_000]
    assert received(role, *(bytes([byte]) for byte in data)) == received(role, data)


@FUZZ
@given(st.binary(max_size=200))
def test_random_bytes_give_the_events_of_the_reference_decoder(data: bytes) -> None:
    events, error = received(AudioSocketRole.SERVER, data)
    assert (events, bool(error)) == reference_events(AudioSocketRole.SERVER, data, False)


@FUZZ
@given(st.lists(st.one_of(messages(), st.sampled_from([AUDIO_MESSAGE] * 8 + [HANGUP_MESSAGE])), max_size=40))
def test_audio_taken_at_once_is_that_of_the_message_parser(parts: list[bytes]) -> None:
    data = [CALL_ID_MESSAGE, *parts]
    connection = AudioSocketConnection(AudioSocketRole.SERVER)
    events: list[AudioSocketMessage] = []
    error = ""
    for part in data:
        sample_rate = connection.receive_audio(part)
        if sample_rate is not None:
            events.append(AudioSocketAudio(sample_rate, part[3:]))
            continue
        connection.receive_data(part)
        try:
            events.extend(connection.events())
        except AudioSocketProtocolError as raised:
            error = str(raised)
            break
    expected, expected_error = received(AudioSocketRole.SERVER, *data)
    assert (events, bool(error)) == (expected[: len(events)] if error else expected, bool(expected_error))


def test_a_whole_audio_message_of_a_call_is_taken_at_once() -> None:
    connection = AudioSocketConnection(AudioSocketRole.SERVER)
    assert connection.receive_audio(AUDIO_MESSAGE) is None  # before the call id
    for part in (CALL_ID_MESSAGE, *[AUDIO_MESSAGE] * 50):
        connection.receive_data(part)
        list(connection.events())
    assert connection.receive_audio(AUDIO_MESSAGE) == 8_000
    assert connection.receive_audio(AUDIO_MESSAGE * 2) is None
    connection.receive_data(AUDIO_MESSAGE[:5])
    list(connection.events())
    assert connection.receive_audio(AUDIO_MESSAGE) is None  # in the middle of a message


def test_every_audio_kind_has_a_sample_rate() -> None:
    assert list(SAMPLE_RATE_OF_KIND) == list(range(0x10, 0x19))
