"""The dialects of FreeSWITCH's modules: parameters, metadata, audio and keys both ways."""

import base64
import json

import pytest

from shared.calls.carrier_messages import FREESWITCH
from vivavoce.adapters.media_streams.carriers.freeswitch import AudioForkConnection, AudioStreamConnection
from vivavoce.adapters.media_streams.connection import MediaStreamConnection, Message
from vivavoce.adapters.media_streams.events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamMark,
    StreamStarted,
)
from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerMark, PeerMedia

PARAMETERS = {"call": "u-1", "rate": "16000", "caller": "1555", "called": "1666", "queue": "sales"}
PCM = bytes(range(256)) * 5
MakeConnection = type[AudioForkConnection] | type[AudioStreamConnection]
both = pytest.mark.parametrize("kind", FREESWITCH)


def received(connection: MediaStreamConnection, *messages: Message) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    for message in messages:
        connection.receive_data(message)
        events += connection.events()
    return events


@both
def test_a_stream_starts_with_its_first_audio(kind: MakeConnection) -> None:
    started, audio = received(kind(PARAMETERS), PCM)
    assert isinstance(started, StreamStarted)
    assert (started.call_id, started.number, started.called) == ("u-1", "1555", "1666")
    assert started.variables["queue"] == "sales" and started.format.sample_rate == 16_000
    assert audio == StreamAudio(PCM, 16_000)


@both
@pytest.mark.parametrize(
    ("metadata", "name", "expected"),
    [
        ('{"name":"Ann","rate":"8000","count":7}', "Ann", "8000"),
        ("a plain text", "", "16000"),
    ],
)
def test_a_stream_starts_with_metadata_of_any_form(
    kind: MakeConnection, metadata: str, name: str, expected: str
) -> None:
    connection = kind(PARAMETERS)
    (started,) = received(connection, metadata)
    assert isinstance(started, StreamStarted)
    assert (started.name, started.format.sample_rate) == (name, int(expected))
    assert received(connection, PCM) == [StreamAudio(PCM, int(expected))]


@both
def test_keys_come_as_texts_and_others_are_ignored(kind: MakeConnection) -> None:
    connection = kind({})
    received(connection, PCM)
    assert received(connection, '{"event":"dtmf","dtmf":"#"}', "hello", '{"a":1}') == [StreamKey("#")]


@both
def test_a_wrong_rate_is_an_error(kind: MakeConnection) -> None:
    with pytest.raises(MediaStreamProtocolError, match="rate: got '16k'; allowed are 8000, 16000"):
        received(kind({"rate": "16k"}), PCM)


def test_mod_audio_fork_plays_binary_messages_and_has_marks() -> None:
    connection = AudioForkConnection(PARAMETERS)
    (started, _) = received(connection, PCM)
    assert isinstance(started, StreamStarted) and started.min_media_ms == 80
    assert connection.send(PeerMedia(PCM)) == [PCM]
    assert connection.send(PeerMark("m1")) == ['{"type":"mark","data":{"name":"m1"}}']
    assert connection.send(PeerClear()) == ['{"type":"killAudio"}']
    assert connection.send_hangup() == ['{"type":"disconnect"}']
    assert received(connection, '{"type":"mark","data":{"name":"m1","event":"playout"}}') == [
        StreamMark("m1")
    ]


def test_mod_audio_stream_plays_base64_holds_little_and_has_no_marks() -> None:
    connection = AudioStreamConnection(PARAMETERS)
    (started, _) = received(connection, PCM)
    assert isinstance(started, StreamStarted)
    assert (started.reports_marks, started.max_ahead_s) == (False, 0.3)
    (media,) = connection.send(PeerMedia(PCM))
    assert json.loads(media) == {
        "type": "streamAudio",
        "data": {
            "audioDataType": "raw",
            "sampleRate": 16_000,
            "audioData": base64.b64encode(PCM).decode(),
        },
    }
    assert connection.send(PeerClear()) == ['{"type":"killAudio"}']
    assert connection.send_hangup() == ['{"type":"disconnect"}']
