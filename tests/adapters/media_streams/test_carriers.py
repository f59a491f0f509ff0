"""The dialects of carriers: what each sends at the start, in the call and at the end, and what it is sent.

The messages are those of the carriers' references; none was captured from a live call.
"""

import base64
import json
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from shared.calls.carrier_messages import (
    EXOTEL_START,
    JAMBONZ_START,
    PLIVO_START,
    STARTS,
    TELNYX_START,
    TWILIO_START,
    VONAGE_START,
)
from vivavoce.adapters.audio.formats.g711 import alaw_decode, ulaw_decode
from vivavoce.adapters.media_streams.carriers.exotel import ExotelStreamConnection
from vivavoce.adapters.media_streams.carriers.jambonz import JambonzStreamConnection
from vivavoce.adapters.media_streams.carriers.plivo import PlivoStreamConnection
from vivavoce.adapters.media_streams.carriers.telnyx import TelnyxStreamConnection
from vivavoce.adapters.media_streams.carriers.twilio import TwilioStreamConnection
from vivavoce.adapters.media_streams.carriers.vonage import VonageStreamConnection
from vivavoce.adapters.media_streams.connection import MediaStreamConnection, Message
from vivavoce.adapters.media_streams.events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamMark,
    StreamStarted,
    StreamStopped,
    StreamWarning,
)
from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerMark, PeerMedia

PAYLOAD = bytes(range(160))
BASE64 = base64.b64encode(PAYLOAD).decode()


def received(connection: MediaStreamConnection, *messages: dict[str, Any] | Message) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    for message in messages:
        connection.receive_data(json.dumps(message) if isinstance(message, dict) else message)
        events += connection.events()
    return events


def started(
    kind: type[MediaStreamConnection], start: dict[str, Any]
) -> tuple[MediaStreamConnection, StreamStarted]:
    connection = kind()
    (event,) = received(connection, start)
    assert isinstance(event, StreamStarted)
    return connection, event


def sent(connection: MediaStreamConnection, command: PeerMedia | PeerMark | PeerClear) -> list[Any]:
    return [json.loads(one) if isinstance(one, str) else one for one in connection.send(command)]


def test_twilio() -> None:
    connection, start = started(TwilioStreamConnection, TWILIO_START)
    assert (start.call_id, start.number, start.called) == ("CA1", "+1555", "+1666")
    assert start.variables["order"] == "7"
    events = received(
        connection,
        {
            "event": "media",
            "streamSid": "MZ1",
            "media": {"track": "inbound", "chunk": "1", "payload": BASE64},
        },
        {"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "1"}},
        {"event": "mark", "streamSid": "MZ1", "mark": {"name": "m1"}},
        {"event": "stop", "streamSid": "MZ1", "stop": {"accountSid": "AC1", "callSid": "CA1"}},
        {"event": "media", "streamSid": "MZ1", "media": {"payload": BASE64}},
    )
    assert events == [
        StreamAudio(ulaw_decode(PAYLOAD), 8_000),
        StreamKey("1"),
        StreamMark("m1"),
        StreamStopped(),
    ]
    assert sent(connection, PeerMedia(bytes(320))) == [
        {"event": "media", "streamSid": "MZ1", "media": {"payload": base64.b64encode(b"\xff" * 160).decode()}}
    ]
    assert sent(connection, PeerMark("m1")) == [{"event": "mark", "streamSid": "MZ1", "mark": {"name": "m1"}}]
    assert sent(connection, PeerClear()) == [{"event": "clear", "streamSid": "MZ1"}]


def test_telnyx() -> None:
    connection, start = started(TelnyxStreamConnection, TELNYX_START)
    assert (start.call_id, start.number, start.called, start.format.name) == (
        "v2:T02l-x_y",
        "+1555",
        "+1666",
        "alaw",
    )
    events = received(
        connection,
        {"event": "media", "stream_id": "32DE", "media": {"track": "inbound", "payload": BASE64}},
        {"event": "media", "stream_id": "32DE", "media": {"track": "outbound", "payload": BASE64}},
        {"event": "dtmf", "stream_id": "32DE", "dtmf": {"digit": "#"}},
        {"event": "mark", "stream_id": "32DE", "mark": {"name": "m1"}},
        {"event": "error", "stream_id": "32DE", "payload": {"code": 100002, "detail": "bad base64"}},
        {"event": "stop", "stream_id": "32DE"},
    )
    assert events == [
        StreamAudio(alaw_decode(PAYLOAD), 8_000),
        StreamKey("#"),
        StreamMark("m1"),
        StreamWarning("bad base64"),
        StreamStopped(),
    ]
    (media,) = sent(connection, PeerMedia(bytes(320)))
    assert media == {"event": "media", "media": {"payload": base64.b64encode(b"\xd5" * 160).decode()}}
    assert sent(connection, PeerMark("m1")) == [{"event": "mark", "mark": {"name": "m1"}}]
    assert sent(connection, PeerClear()) == [{"event": "clear"}]


@pytest.mark.parametrize("order", ["<i2", ">i2"])
def test_telnyx_l16_has_the_order_of_bytes_of_the_callers_audio(order: str) -> None:
    media_format = {"encoding": "L16", "sample_rate": 16_000, "channels": 1}
    connection, start = started(TelnyxStreamConnection, telnyx_start(media_format))
    assert (start.format.sample_rate, start.format.name) == (16_000, "L16 at 16000 Hz")
    said = np.arange(-160, 160)

    def heard(samples: NDArray[np.int64]) -> NDArray[np.int16]:
        payload = base64.b64encode(samples.astype(order).tobytes()).decode()
        (audio,) = received(connection, {"event": "media", "media": {"track": "inbound", "payload": payload}})
        assert isinstance(audio, StreamAudio) and audio.sample_rate == 16_000
        return np.frombuffer(audio.pcm, "<i2")

    def spoken() -> NDArray[np.int16]:
        (media,) = sent(connection, PeerMedia(said.astype("<i2").tobytes()))
        return np.frombuffer(base64.b64decode(media["media"]["payload"]), order)

    assert not heard(np.zeros(320, np.int64)).any()
    assert np.array_equal(spoken(), said) == (order == "<i2")  # silence has no order
    faint = np.resize(np.array([0, 1, 2, 1, 0, -1, -2, -1]), 320)
    assert np.array_equal(heard(faint), faint)
    assert np.array_equal(spoken(), said)
    loud = (30_000 * np.sin(np.arange(320))).astype(np.int64)  # 2.5 kHz at its loudest decides no more
    assert np.array_equal(heard(loud), loud)


def test_telnyx_opus_is_one_packet_of_20_ms_in_each_message() -> None:
    media_format = {"encoding": "OPUS", "sample_rate": "16000", "channels": 1}
    connection, start = started(TelnyxStreamConnection, telnyx_start(media_format))
    assert start.format.sample_rate == 16_000
    tone = (8_000 * np.sin(2 * np.pi * 500 * np.arange(16_000) / 16_000)).astype("<i2").tobytes()
    messages = sent(connection, PeerMedia(tone[: 2 * (16_000 - 100)]))  # the last packet is filled up
    assert len(messages) == 50
    decoder = av.CodecContext.create("opus", "r")
    packets = [base64.b64decode(message["media"]["payload"]) for message in messages]
    durations = [frame.samples / 48_000 for packet in packets for frame in decoder.decode(av.Packet(packet))]
    assert durations == pytest.approx([0.02] * 50)
    echoed = received(
        connection, *({"event": "media", "media": message["media"]} for message in messages[:10])
    )
    pcm = b"".join(event.pcm for event in echoed if isinstance(event, StreamAudio))
    heard = np.frombuffer(pcm, "<i2").astype(float)
    assert len(heard) == pytest.approx(3_200, abs=320)
    assert np.abs(heard[-1_600:]).max() == pytest.approx(8_000, rel=0.2)
    wrong = base64.b64encode(b"\xff\x00").decode()
    (event,) = received(connection, {"event": "media", "media": {"payload": wrong}})
    assert isinstance(event, StreamAudio)


@pytest.mark.parametrize(
    ("media_format", "problem"),
    [
        (
            {"encoding": "G722", "sample_rate": 8_000},
            "got encoding 'G722'; allowed are PCMU, PCMA, L16, OPUS",
        ),
        ({"encoding": "L16", "sample_rate": 22_050}, "got L16 at 22050 Hz; allowed are 8000, 16000, 24000"),
        ({"encoding": "OPUS", "sample_rate": 48_000}, "got OPUS at 48000 Hz; allowed are 8000, 16000, 24000"),
        ({"encoding": "L16"}, "sample_rate: got None; allowed is a whole number"),
    ],
)
def test_telnyx_streams_of_other_formats_are_refused(media_format: dict[str, Any], problem: str) -> None:
    with pytest.raises(MediaStreamProtocolError, match=problem):
        started(TelnyxStreamConnection, telnyx_start(media_format))


def telnyx_start(media_format: dict[str, Any]) -> dict[str, Any]:
    return {**TELNYX_START, "start": {**TELNYX_START["start"], "media_format": media_format}}


def test_plivo() -> None:
    connection, start = started(PlivoStreamConnection, PLIVO_START)
    assert start.call_id == "c-1"
    events = received(
        connection,
        {"event": "media", "streamId": "s-1", "media": {"track": "inbound", "payload": BASE64}},
        {"event": "dtmf", "streamId": "s-1", "dtmf": {"track": "inbound", "digit": "*"}},
        {"event": "playedStream", "streamId": "s-1", "name": "m1"},
        {"event": "clearedAudio", "streamId": "s-1"},
    )
    assert events == [StreamAudio(ulaw_decode(PAYLOAD), 8_000), StreamKey("*"), StreamMark("m1")]
    (media,) = sent(connection, PeerMedia(bytes(320)))
    assert media == {
        "event": "playAudio",
        "streamId": "s-1",
        "media": {
            "contentType": "audio/x-mulaw",
            "sampleRate": 8000,
            "payload": base64.b64encode(b"\xff" * 160).decode(),
        },
    }
    assert sent(connection, PeerMark("m1")) == [{"event": "checkpoint", "streamId": "s-1", "name": "m1"}]
    assert sent(connection, PeerClear()) == [{"event": "clearAudio", "streamId": "s-1"}]


def test_vonage() -> None:
    connection, start = started(VonageStreamConnection, VONAGE_START)
    assert (start.call_id, start.number, start.format.sample_rate) == ("u-1", "1555", 16_000)
    events = received(
        connection,
        bytes(640),
        {"event": "websocket:dtmf", "digit": "5", "duration": 260},
        {"event": "websocket:notify", "payload": {"mark": "m1"}},
        {"event": "websocket:cleared"},
    )
    assert events == [StreamAudio(bytes(640), 16_000), StreamKey("5"), StreamMark("m1")]
    assert sent(connection, PeerMedia(bytes(1_920))) == [bytes(640)] * 3
    assert sent(connection, PeerMark("m1")) == [{"action": "notify", "payload": {"mark": "m1"}}]
    assert sent(connection, PeerClear()) == [{"action": "clear"}]


def test_exotel() -> None:
    connection, start = started(ExotelStreamConnection, EXOTEL_START)
    assert (start.call_id, start.number, start.min_media_ms) == ("CA1", "+91", 200)
    pcm = base64.b64encode(bytes(320)).decode()
    events = received(
        connection,
        {"event": "media", "stream_sid": "MZ1", "media": {"chunk": "2", "payload": pcm}},
        {"event": "dtmf", "stream_sid": "MZ1", "dtmf": {"digit": "5", "duration": "100"}},
        {"event": "mark", "stream_sid": "MZ1", "mark": {"name": "m1"}},
        {"event": "stop", "stream_sid": "MZ1", "stop": {"reason": "callended"}},
    )
    assert events == [StreamAudio(bytes(320), 8_000), StreamKey("5"), StreamMark("m1"), StreamStopped()]
    (media,) = sent(connection, PeerMedia(bytes(3_200)))
    assert media["stream_sid"] == "MZ1" and len(base64.b64decode(media["media"]["payload"])) == 3_200
    assert sent(connection, PeerClear()) == [{"event": "clear", "stream_sid": "MZ1"}]


def test_jambonz() -> None:
    connection, start = started(JambonzStreamConnection, JAMBONZ_START)
    assert (start.call_id, start.number, start.name, start.called) == ("j-1", "1555", "Ann", "1666")
    events = received(
        connection,
        bytes(320),
        {"event": "dtmf", "dtmf": "2", "duration": "1600"},
        {"type": "mark", "data": {"name": "m1", "event": "playout"}},
        {"type": "mark", "data": {"name": "m2", "event": "cleared"}},
    )
    assert events == [StreamAudio(bytes(320), 8_000), StreamKey("2"), StreamMark("m1")]
    assert sent(connection, PeerMedia(bytes(320))) == [bytes(320)]
    assert sent(connection, PeerMark("m1")) == [{"type": "mark", "data": {"name": "m1"}}]
    assert sent(connection, PeerClear()) == [{"type": "killAudio"}]
    assert connection.send_hangup() == ['{"type":"disconnect"}']


@pytest.mark.parametrize(("kind", "start"), STARTS)
def test_audio_is_taken_at_once_and_nothing_else(
    kind: type[MediaStreamConnection], start: dict[str, Any]
) -> None:
    is_binary = kind in (VonageStreamConnection, JambonzStreamConnection)
    media = {"event": "media", "media": {"track": "inbound", "payload": BASE64}}
    message = bytes(320) if is_binary else json.dumps(media)
    assert kind().receive_audio(message) is None  # before the start
    connection, event = started(kind, start)
    payload = bytes(320) if is_binary else PAYLOAD
    assert connection.receive_audio(message) == event.format.decode(payload)
    for other in ("{}", "7", "x", '{"event":"mark","mark":{"name":"m1"}}', "x" * 200_000):
        assert connection.receive_audio(other) is None
    if not is_binary:
        for wrong in ({"payload": "="}, {"payload": 7}, {"track": "outbound", "payload": BASE64}, [], None):
            assert connection.receive_audio(json.dumps({"event": "media", "media": wrong})) is None


@pytest.mark.parametrize(("kind", "start"), STARTS)
def test_a_second_start_or_audio_before_the_start_is_an_error(
    kind: type[MediaStreamConnection], start: dict[str, Any]
) -> None:
    with pytest.raises(MediaStreamProtocolError):
        media = {"event": "media", "media": {"payload": BASE64}}
        received(kind(), bytes(320) if kind in (VonageStreamConnection, JambonzStreamConnection) else media)
    if kind is not JambonzStreamConnection:  # its later texts are events without a name
        with pytest.raises(MediaStreamProtocolError, match="got a start in the call"):
            received(kind(), start, start)


@pytest.mark.parametrize(("kind", "start"), STARTS)
@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"event":7}', "[" * 50_000, '{"event":"start"}', "x" * 200_000]
)
def test_text_that_is_no_message_is_an_error(
    kind: type[MediaStreamConnection], start: dict[str, Any], text: str
) -> None:
    connection, _ = started(kind, start)
    try:
        assert received(connection, text) == []  # an unknown event of a carrier
    except MediaStreamProtocolError as error:
        assert len(str(error)) < 300


@pytest.mark.parametrize("payload", ["=", "ab", 7, None, "ÿ" * 8])
def test_wrong_base64_is_an_error(payload: object) -> None:
    connection, _ = started(TwilioStreamConnection, TWILIO_START)
    with pytest.raises(MediaStreamProtocolError, match=r"media\.payload"):
        received(connection, {"event": "media", "media": {"track": "inbound", "payload": payload}})
