"""G.711 of media streams against the tables of ITU-T G.711, from the resampler to the message."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from shared.audio.g711_tables import A_LAW, MU_LAW, G711Law
from shared.calls.carrier_messages import PLIVO_START, TELNYX_START, TWILIO_START
from vivavoce.adapters.audio.resample import Downsampler, resampler_to
from vivavoce.adapters.media_streams.asterisk import AsteriskStreamConnection
from vivavoce.adapters.media_streams.carriers.plivo import PlivoStreamConnection
from vivavoce.adapters.media_streams.carriers.telnyx import TelnyxStreamConnection
from vivavoce.adapters.media_streams.carriers.twilio import TwilioStreamConnection
from vivavoce.adapters.media_streams.connection import MediaStreamConnection
from vivavoce.adapters.media_streams.events import StreamAudio, StreamStarted
from vivavoce.adapters.media_streams.peer_playout import PeerMedia
from vivavoce.adapters.media_streams.stream_format import ALAW, ULAW, StreamFormat

ALL_SAMPLES = np.arange(-32_768, 32_768).astype("<i2").tobytes()
ALL_CODES = bytes(range(256))


def asterisk_start(name: str) -> dict[str, Any]:
    return {
        "event": "MEDIA_START",
        "connection_id": "1",
        "format": name,
        "optimal_frame_size": 160,
        "ptime": 20,
    }


WAYS_IN = [
    (AsteriskStreamConnection, asterisk_start("ulaw"), MU_LAW),
    (AsteriskStreamConnection, asterisk_start("alaw"), A_LAW),
    (TwilioStreamConnection, TWILIO_START, MU_LAW),
    (TelnyxStreamConnection, TELNYX_START, A_LAW),
    (PlivoStreamConnection, PLIVO_START, MU_LAW),
]


@pytest.mark.parametrize(("stream_format", "law"), [(ULAW, MU_LAW), (ALAW, A_LAW)])
def test_every_sample_and_every_code_is_that_of_the_recommendation(
    stream_format: StreamFormat, law: G711Law
) -> None:
    assert stream_format.encode(ALL_SAMPLES) == law.encode(ALL_SAMPLES)
    decoded = np.frombuffer(stream_format.decode(ALL_CODES), "<i2")
    assert np.array_equal(decoded, law.decode(ALL_CODES))


@pytest.mark.parametrize(("kind", "start", "law"), WAYS_IN)
def test_each_way_in_sends_the_output_of_the_filter_and_takes_the_caller_as_g711(
    kind: type[MediaStreamConnection], start: dict[str, Any], law: G711Law
) -> None:
    connection = kind()
    connection.receive_data(json.dumps(start))
    (started,) = connection.events()
    assert isinstance(started, StreamStarted)
    speech = np.random.default_rng(0).integers(-30_000, 30_000, 24_000).astype("<i2").tobytes()
    resampled = resampler_to(started.format.sample_rate).push(speech)[: 2 * 160 * 40]
    assert resampled == Downsampler().push(speech)[: 2 * 160 * 40]
    assert payloads(connection.send(PeerMedia(resampled))) == law.encode(resampled)
    connection.receive_data(
        ALL_CODES
        if kind is AsteriskStreamConnection
        else json.dumps({"event": "media", "media": {"payload": base64.b64encode(ALL_CODES).decode()}})
    )
    (audio,) = connection.events()
    assert isinstance(audio, StreamAudio)
    assert np.array_equal(np.frombuffer(audio.pcm, "<i2"), law.decode(ALL_CODES))


def payloads(messages: list[str | bytes]) -> bytes:
    return b"".join(
        one if isinstance(one, bytes) else base64.b64decode(json.loads(one)["media"]["payload"])
        for one in messages
    )
