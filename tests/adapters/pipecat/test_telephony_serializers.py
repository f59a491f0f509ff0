"""Pipecat's serializers of carriers between its vivavoce service and simulated peers of these carriers.

The serializers were written by others from the same references, so they also check the peers.
"""

import asyncio
import json
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from pipecat.frames.frames import InputAudioRawFrame, InputDTMFFrame, InterruptionFrame, TTSAudioRawFrame
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer

from shared.audio.tones import pitch_of, tone
from shared.calls.peers.carrier import SimulatedCarrier
from shared.calls.peers.exotel import SimulatedExotel
from shared.calls.peers.peer import Message
from shared.calls.peers.plivo import SimulatedPlivo
from shared.calls.peers.telnyx import SimulatedTelnyx
from shared.calls.peers.twilio import SimulatedTwilio
from shared.calls.peers.vonage import SimulatedVonage
from shared.gateways.pipecat_pipeline import open_engine, run_pipeline, unpaced_service

RATE = 8_000
HANG_UP = {"auto_hang_up": False}  # it would ask the carrier's REST interface


def twilio(start: dict[str, Any]) -> TwilioFrameSerializer:
    return TwilioFrameSerializer(start["streamSid"], params=TwilioFrameSerializer.InputParams(**HANG_UP))


def telnyx(start: dict[str, Any]) -> TelnyxFrameSerializer:
    params = TelnyxFrameSerializer.InputParams(**HANG_UP)
    return TelnyxFrameSerializer(start["stream_id"], "PCMA", "PCMA", params=params)


def plivo(start: dict[str, Any]) -> PlivoFrameSerializer:
    params = PlivoFrameSerializer.InputParams(**HANG_UP)
    return PlivoFrameSerializer(start["start"]["streamId"], params=params)


def vonage(start: dict[str, Any]) -> VonageFrameSerializer:
    return VonageFrameSerializer(VonageFrameSerializer.InputParams(vonage_sample_rate=RATE))


def exotel(start: dict[str, Any]) -> ExotelFrameSerializer:
    return ExotelFrameSerializer(start["stream_sid"])


@pytest.mark.parametrize(
    ("peer", "make_serializer", "message_bytes"),
    [
        (SimulatedTwilio("c-1"), twilio, 640),
        (SimulatedTelnyx("c-1", "PCMA"), telnyx, 640),
        (SimulatedPlivo("c-1"), plivo, 640),
        (SimulatedVonage("c-1", RATE), vonage, 320),
        (SimulatedExotel("c-1", RATE), exotel, 3_200),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_bot_speaks_to_a_carrier_hears_it_and_clears_its_queue(
    peer: SimulatedCarrier, make_serializer: Callable[[dict[str, Any]], Any], message_bytes: int
) -> None:
    asyncio.run(check(peer, make_serializer, message_bytes))


async def check(
    peer: SimulatedCarrier, make_serializer: Callable[[dict[str, Any]], Any], message_bytes: int
) -> None:
    serializer = make_serializer(json.loads(peer.start()[-1]))
    await serializer.setup(SimpleNamespace(audio_in_sample_rate=RATE))

    # The service's speech, in messages of the size that the carrier asks for
    async with (
        open_engine() as engine,
        run_pipeline(unpaced_service(engine), sample_rate=RATE) as pipeline,
    ):
        await pipeline.turn("One two three.")
        speech = pipeline.audio
    for start in range(0, len(speech) - message_bytes, message_bytes):
        frame = TTSAudioRawFrame(speech[start : start + message_bytes], RATE, 1)
        peer.receive(await serializer.serialize(frame))
    assert (peer.refusal, peer.queue.packets > 20) == ("", True)
    heard = b"".join(peer.step().pcm for _ in range(20))
    assert pitch_of(heard, RATE) == pytest.approx(440, rel=0.03)

    peer.receive(await serializer.serialize(InterruptionFrame()))
    assert (peer.refusal, peer.flushes, peer.queue.packets) == ("", 1, 0)

    # The caller's audio and keys
    peer.say(tone(500, RATE, 0, RATE // 50))
    messages: list[Message] = [message for _ in range(10) for message in peer.step().messages]
    frames = [await serializer.deserialize(message) for message in messages]
    audio = b"".join(frame.audio for frame in frames if isinstance(frame, InputAudioRawFrame))
    assert pitch_of(audio[-1_600:], RATE) == pytest.approx(500, rel=0.02)
    (key,) = [await serializer.deserialize(message) for message in peer.press("5")]
    assert isinstance(key, InputDTMFFrame) and key.button.value == "5"
