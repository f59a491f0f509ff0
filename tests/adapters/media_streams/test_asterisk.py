"""chan_websocket: its two control formats, its measured limits, and the order of messages."""

import json

import pytest

from vivavoce.adapters.media_streams.asterisk import AsteriskStreamConnection
from vivavoce.adapters.media_streams.connection import Message
from vivavoce.adapters.media_streams.events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamMark,
    StreamPaused,
    StreamResumed,
    StreamStarted,
    StreamWarning,
)
from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerMark, PeerMedia

# As Asterisk 23.4.1 sends them.
PLAIN_START = (
    "MEDIA_START connection_id:rigws channel:WebSocket/a/0x1 format:ulaw optimal_frame_size:160 ptime:20"
)
JSON_START = json.dumps(
    {
        "event": "MEDIA_START",
        "connection_id": "e226e283",
        "channel": "WebSocket/a",
        "channel_id": "pbx1-1.9",
        "format": "slin24",
        "optimal_frame_size": 960,
        "ptime": 20,
        "channel_variables": {"ACCOUNT": "7"},
    }
)


def received(connection: AsteriskStreamConnection, *messages: Message) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    for message in messages:
        connection.receive_data(message)
        events += connection.events()
    return events


def test_plain_text_control_is_understood_and_answered_in_plain_text() -> None:
    connection = AsteriskStreamConnection()
    started, *events = received(
        connection,
        PLAIN_START,
        "DTMF_END digit:5 channel_id:pbx1-1.9",
        "MEDIA_XOFF",
        "MEDIA_XON",
        "MEDIA_MARK_PROCESSED m1",
        "MEDIA_MARK_PROCESSED correlation_id:m2",
        "QUEUE_DRAINED",
    )
    assert isinstance(started, StreamStarted)
    assert (started.call_id, started.format.name, started.packet_ms) == ("", "ulaw", 20)
    assert started.fills_pauses
    assert events == [StreamKey("5"), StreamPaused(), StreamResumed(), StreamMark("m1"), StreamMark("m2")]
    assert connection.send(PeerMark("m3")) == ["MARK_MEDIA m3"]
    assert connection.send(PeerClear()) == ["FLUSH_MEDIA", "CONTINUE_MEDIA"]
    assert connection.send_hangup() == ["HANGUP"]


def test_json_control_is_understood_and_answered_in_json() -> None:
    connection = AsteriskStreamConnection()
    started, *events = received(
        connection,
        JSON_START,
        '{"event":"DTMF_END","channel_id":"c","digit":"1"}',
        '{"event":"MEDIA_MARK_PROCESSED","channel_id":"c","correlation_id":"m1"}',
        '{"event":"ERROR","channel_id":"c","error_text":"bad"}',
        '{"event":"STATUS","channel_id":"c","queue_length":43}',
    )
    assert isinstance(started, StreamStarted)
    assert (started.format.sample_rate, started.variables["ACCOUNT"]) == (24_000, "7")
    assert events == [StreamKey("1"), StreamMark("m1"), StreamWarning("bad")]
    assert connection.send(PeerMark("m3")) == ['{"command": "MARK_MEDIA", "correlation_id": "m3"}']
    assert connection.send(PeerClear()) == ['{"command": "FLUSH_MEDIA"}', '{"command": "CONTINUE_MEDIA"}']


def test_audio_before_the_start_is_kept_for_the_call() -> None:
    connection = AsteriskStreamConnection()
    events = received(connection, b"\xff" * 160, b"\x80" * 160, PLAIN_START, b"\xff" * 160)
    assert [type(event) for event in events] == [StreamStarted, StreamAudio, StreamAudio]
    assert [len(event.pcm) for event in events[1:]] == [640, 320]  # type: ignore[union-attr]


def test_speech_goes_out_in_messages_that_asterisk_takes_whole() -> None:
    connection = AsteriskStreamConnection()
    received(connection, JSON_START)
    messages = connection.send(PeerMedia(bytes(960 * 100)))
    assert sum(map(len, messages)) == 96_000
    assert all(len(message) <= 65_500 and len(message) % 960 == 0 for message in messages)


def test_a_command_that_asterisk_would_ignore_is_an_error_of_ours() -> None:
    connection = AsteriskStreamConnection()
    received(connection, JSON_START)
    with pytest.raises(ValueError, match="Asterisk ignores it"):
        connection.send(PeerMark("m" * 128))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (PLAIN_START.replace("ulaw", "opus"), "got format 'opus'"),
        (PLAIN_START.replace("160", "0"), "optimal_frame_size 0"),
        (JSON_START.replace("960", "961"), "optimal_frame_size 961"),
        (JSON_START.replace("pbx1-1.9", "a/b"), "got the call id 'a/b'"),
        ("MEDIA_START format:ulaw", "optimal_frame_size"),
        ('{"event":"MEDIA_START"', "not JSON"),
        ("DTMF_END digit:5", "got a key before its start"),
        (bytes(200_000), "at most 131072"),
    ],
)
def test_a_wrong_message_ends_the_stream_with_a_sentence(message: Message, error: str) -> None:
    connection = AsteriskStreamConnection()
    with pytest.raises(MediaStreamProtocolError, match=error):
        received(connection, message)
    with pytest.raises(MediaStreamProtocolError, match=error):
        received(connection, PLAIN_START)


def test_a_second_start_is_an_error() -> None:
    with pytest.raises(MediaStreamProtocolError, match="got a start in the call"):
        received(AsteriskStreamConnection(), PLAIN_START, PLAIN_START)


def test_a_wrong_second_start_leaves_the_size_of_the_frames() -> None:
    connection = AsteriskStreamConnection()
    received(connection, PLAIN_START)
    with pytest.raises(MediaStreamProtocolError, match="optimal_frame_size 0"):
        received(connection, PLAIN_START.replace("160", "0"))
    assert connection.send(PeerMedia(bytes(320)))[0] == b"\xff" * 160


def test_variables_of_the_channel_identify_the_call_and_its_own_are_left_out() -> None:
    inherited = {"__VIVAVOCE_CALL": "7", "__VIVAVOCE_CALLER": "100", "_LEVEL": "gold"}
    own = {"MEDIA_WEBSOCKET_CONNECTION_ID": "vivavoce", "DIALEDPEERNUMBER": "vivavoce/c(ulaw)"}
    for variables, call_id in (({**inherited, **own}, "7"), (own, "pbx1-1.9")):
        connection = AsteriskStreamConnection()
        connection.receive_data(json.dumps(json.loads(JSON_START) | {"channel_variables": variables}))
        (started,) = connection.events()
        assert isinstance(started, StreamStarted)
        assert started.call_id == call_id  # not the id of the connection, which all calls share
        assert started.number == ("100" if call_id == "7" else "")
        names = {name.lstrip("_") for name in variables.keys() - own.keys()}
        assert started.variables.keys() - {"channel"} == names
