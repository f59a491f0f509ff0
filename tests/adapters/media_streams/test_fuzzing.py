"""Fuzzing of the media streams: conversations of valid, damaged and disordered messages.

``VIVAVOCE_FUZZ=50000`` sets the number of examples for all wires together; the default is 350.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.calls.carrier_messages import FREESWITCH, FREESWITCH_METADATA, STARTS
from vivavoce.adapters.media_streams.asterisk import AsteriskStreamConnection
from vivavoce.adapters.media_streams.carriers.freeswitch import AudioForkConnection, AudioStreamConnection
from vivavoce.adapters.media_streams.connection import (
    DIGITS,
    MediaStreamConnection,
    MediaStreamState,
    Message,
)
from vivavoce.adapters.media_streams.events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamStarted,
    StreamStopped,
    StreamWarning,
)
from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerMark, PeerMedia

ASTERISK_JSON = {
    "event": "MEDIA_START",
    "connection_id": "c-1",
    "channel": "WebSocket/a",
    "format": "slin16",
    "optimal_frame_size": 640,
    "ptime": 20,
    "channel_variables": {"A": "b"},
}
ASTERISK_TEXT = "MEDIA_START connection_id:c-1 channel:a format:alaw optimal_frame_size:160 ptime:20"
PARAMETERS = {"call": "c-1", "rate": "16000", "caller": "1555"}


def audio_fork() -> AudioForkConnection:
    return AudioForkConnection(PARAMETERS)


def audio_stream() -> AudioStreamConnection:
    return AudioStreamConnection(PARAMETERS)


WIRES: list[tuple[Callable[[], MediaStreamConnection], Any]] = [
    *STARTS,
    (AsteriskStreamConnection, ASTERISK_JSON),
    (audio_fork, FREESWITCH_METADATA),
    (audio_stream, FREESWITCH_METADATA),
]
FUZZ = settings(max_examples=-(-int(os.environ.get("VIVAVOCE_FUZZ", "350")) // len(WIRES)), deadline=None)
IN_CALL: list[Any] = [
    {"event": "media", "media": {"track": "inbound", "payload": "/////w=="}},
    {"event": "media", "media": {"track": "outbound", "payload": "/w=="}},
    {"event": "dtmf", "dtmf": {"digit": "5"}},
    {"event": "dtmf", "dtmf": "5"},
    FREESWITCH_METADATA,
    "a text that is no JSON",
    {"event": "mark", "mark": {"name": "m1"}},
    {"event": "playedStream", "name": "m1"},
    {"event": "error", "payload": {"detail": "no"}},
    {"event": "stop"},
    {"event": "connected"},
    {"event": "websocket:dtmf", "digit": "5"},
    {"event": "websocket:notify", "payload": {"mark": "m1"}},
    {"type": "mark", "data": {"name": "m1", "event": "playout"}},
    {"event": "MEDIA_XOFF"},
    {"event": "MEDIA_XON"},
    {"event": "MEDIA_MARK_PROCESSED", "correlation_id": "m1"},
    {"event": "DTMF_END", "digit": "#"},
    {"event": "ERROR", "error_text": "x"},
    ASTERISK_TEXT,
    "DTMF_END digit:7 channel_id:x",
    "MEDIA_XOFF",
    "MEDIA_MARK_PROCESSED m1",
]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 10**20),
    st.floats(allow_nan=False),
    st.sampled_from(["", "x" * 600, "8000", "MZ1", "é", "a b", "../..", "5", "ZZ", "\x00", "="]),
    st.just([]),
    st.just({}),
    st.just({"a": {"b": [1]}}),
)


@st.composite
def damaged(draw: st.DrawFn, message: Any) -> Message:
    """The message with a field replaced, removed or added at any depth, cut, or as binary."""
    if isinstance(message, str):
        text = message
    else:
        copy = json.loads(json.dumps(message))
        place = copy
        while isinstance(place, dict) and place:
            field = draw(st.sampled_from(sorted(place)))
            if isinstance(place[field], dict) and draw(st.booleans()):
                place = place[field]
                continue
            match draw(st.integers(0, 2)):
                case 0:
                    place[field] = draw(JUNK)
                case 1:
                    del place[field]
                case _:
                    place[draw(st.sampled_from(["event", "type", "x", "media", "digit"]))] = draw(JUNK)
            break
        text = json.dumps(copy)
    match draw(st.integers(0, 5)):
        case 0:
            return text[: draw(st.integers(0, len(text)))]
        case 1:
            return text.encode()
        case _:
            return text


@st.composite
def conversations(draw: st.DrawFn, start: Any) -> list[Message]:
    def written(message: Any) -> Message:
        return message if isinstance(message, str) else json.dumps(message)

    some = st.sampled_from([*IN_CALL, start])
    message = st.one_of(
        some.map(written),
        some.flatmap(damaged),
        st.binary(max_size=700),
        st.sampled_from([b"\xff" * 160, bytes(70_000), "[" * 5_000, "7", "x" * 140_000]),
    )
    begin = draw(st.sampled_from([[], [written(start)], [written(start)], [draw(damaged(start))]]))
    return begin + draw(st.lists(message, max_size=12))


def check_event(event: StreamEvent, state: MediaStreamState) -> MediaStreamState:
    """The reference of the order of events; returns the next state."""
    match event:
        case StreamStarted():
            assert state is MediaStreamState.NEW
            assert event.format.sample_rate in (8_000, 16_000, 24_000, 48_000)
            assert 0 < event.packet_ms <= 200 and "/" not in event.call_id and len(event.call_id) <= 200
            return MediaStreamState.OPEN
        case StreamStopped():
            assert state is not MediaStreamState.ENDED
            return MediaStreamState.ENDED
        case StreamWarning():
            return state
        case StreamAudio(pcm, sample_rate):
            assert len(pcm) % 2 == 0 and sample_rate > 0
        case StreamKey(digit):
            assert digit in DIGITS
    assert state is MediaStreamState.OPEN
    return state


@pytest.mark.parametrize(("kind", "start"), WIRES, ids=lambda one: getattr(one, "__name__", ""))
@FUZZ
@given(st.data())
def test_any_conversation_gives_events_in_order_or_a_protocol_error(
    kind: Callable[[], MediaStreamConnection], start: Any, data: st.DataObject
) -> None:
    connection, state = kind(), MediaStreamState.NEW
    failure = ""
    for message in data.draw(conversations(start)):
        connection.receive_data(message)
        try:
            for event in connection.events():
                assert not failure
                state = check_event(event, state)
        except MediaStreamProtocolError as error:
            assert failure in ("", str(error)) and 0 < len(str(error)) < 400
            failure = str(error)
        if state is not MediaStreamState.NEW and connection.state is not MediaStreamState.NEW:
            for command in (PeerMedia(bytes(6_400)), PeerMark("m1"), PeerClear()):
                messages = connection.send(command) if state is MediaStreamState.OPEN else []
                assert all(len(one) <= 65_500 for one in messages)
    connection.send_hangup()


def taken(
    kind: Callable[[], MediaStreamConnection], messages: list[Message], *, at_once: bool
) -> list[StreamEvent | str]:
    """The events and errors of a conversation; with ``at_once``, audio is taken without the parser."""
    connection, found, rate = kind(), list[StreamEvent | str](), 0
    for message in messages:
        pcm = connection.receive_audio(message) if at_once else None
        if pcm is not None:
            found.append(StreamAudio(pcm, rate))
            continue
        connection.receive_data(message)
        try:
            for event in connection.events():
                found.append(event)
                rate = event.format.sample_rate if isinstance(event, StreamStarted) else rate
        except MediaStreamProtocolError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(("kind", "start"), WIRES, ids=lambda one: getattr(one, "__name__", ""))
@FUZZ
@given(st.data())
def test_audio_taken_at_once_is_that_of_the_events(
    kind: Callable[[], MediaStreamConnection], start: Any, data: st.DataObject
) -> None:
    messages = data.draw(conversations(start))
    assert taken(kind, messages, at_once=True) == taken(kind, messages, at_once=False)


@pytest.mark.parametrize("kind", FREESWITCH)
@FUZZ
@given(
    st.dictionaries(
        st.sampled_from(["call", "rate", "caller", "name", "called", "x", "x" * 600]),
        st.one_of(st.text(max_size=20), st.sampled_from(["8000", "16000", "24k", "é" * 5_000, "../..", ""])),
        max_size=5,
    ),
    st.one_of(st.just(b"\x00\x00"), st.text(max_size=20), st.just('{"rate":"48000","call":7}')),
)
def test_any_parameters_of_the_url_give_a_start_or_a_protocol_error(
    kind: Callable[[Mapping[str, str]], MediaStreamConnection],
    parameters: dict[str, str],
    message: Message,
) -> None:
    connection = kind(parameters)
    connection.receive_data(message)
    try:
        started, *rest = connection.events()
    except MediaStreamProtocolError as error:
        assert 0 < len(str(error)) < 400
        return
    assert check_event(started, MediaStreamState.NEW) is MediaStreamState.OPEN
    assert isinstance(started, StreamStarted)
    rate = parameters.get("rate", "8000") if "48000" not in str(message) else "48000"
    assert started.format.sample_rate == (8_000 if len(rate) > 4_096 else int(rate))
    assert [type(event) for event in rest] == [StreamAudio] * isinstance(message, bytes)
