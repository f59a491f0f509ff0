"""Pipecat's Deepgram services against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``
"""

import asyncio
import json
import sys
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore", DeprecationWarning)
import aiohttp  # noqa: E402
from loguru import logger  # noqa: E402
from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService  # noqa: E402
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService  # noqa: E402
from pipecat.services.tts_service import TTSService  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

URL, KEY, _ = sys.argv[1:4]
SOCKETS = URL.replace("http", "ws", 1)
TEXT = "One two three four five six. Seven eight nine."


def make_service(api_key: str = KEY) -> DeepgramTTSService:
    settings = DeepgramTTSService.Settings(voice="tone-330")
    return DeepgramTTSService(api_key=api_key, base_url=SOCKETS, settings=settings)


async def frames_of(service: TTSService, frames: list[Frame], wait_s: float = 2.5) -> list[Frame]:
    down, up = await run_test(
        service,
        frames_to_send=[*frames, SleepFrame(sleep=wait_s)],
        pipeline_params=PipelineParams(audio_out_sample_rate=24_000),
        start_timeout=30.0,
    )
    return [*down, *up]


def seconds_in(frames: list[Frame]) -> float:
    return sum(len(frame.audio) for frame in frames if isinstance(frame, TTSAudioRawFrame)) / 48_000


def tokens(text: str = TEXT) -> list[Frame]:
    written = [LLMTextFrame(word + " ") for word in text.split()]
    return [LLMFullResponseStartFrame(), *written, LLMFullResponseEndFrame()]


async def sentences_are_spoken() -> None:
    frames = await frames_of(make_service(), tokens())
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)
    assert any(isinstance(frame, TTSStoppedFrame) for frame in frames)


async def tokens_are_spoken_as_a_turn() -> None:
    service = DeepgramFluxTTSService(api_key=KEY, url=f"{SOCKETS}/v2/speak")
    frames = await frames_of(service, tokens())
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)
    assert any(isinstance(frame, TTSStoppedFrame) for frame in frames)


async def an_interruption_does_not_reach_the_next_answer() -> None:
    # Audio has no ids in this protocol, so what is on its way at the interruption would count as the next
    # answer's if that began at once; a user who interrupts speaks for longer.
    speech_of_user = SleepFrame(sleep=1.0)
    for service in (make_service(), DeepgramFluxTTSService(api_key=KEY, url=f"{SOCKETS}/v2/speak")):
        before = [*tokens(TEXT * 10), SleepFrame(sleep=0.3)]
        interrupted = [*before, InterruptionFrame(), speech_of_user, *tokens()]
        frames = await frames_of(service, interrupted)
        after = frames[[isinstance(frame, InterruptionFrame) for frame in frames].index(True) :]
        assert 1.7 < seconds_in(after) < 3.0, seconds_in(after)


async def speech_over_http() -> None:
    async with aiohttp.ClientSession() as session:
        service = DeepgramHttpTTSService(api_key=KEY, base_url=URL, aiohttp_session=session)
        frames = await frames_of(service, [TTSSpeakFrame(TEXT)], 1.5)
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)


async def a_wrong_key_is_an_error_frame_with_the_servers_words() -> None:
    frames = await frames_of(make_service(api_key="wrong"), [TTSSpeakFrame(TEXT)], 0.5)
    errors = [frame.error for frame in frames if isinstance(frame, ErrorFrame)]
    assert any("Deepgram refused the connection (HTTP 401)" in error for error in errors), errors


async def main() -> None:
    logger.disable("pipecat")
    cases = (
        sentences_are_spoken,
        tokens_are_spoken_as_a_turn,
        an_interruption_does_not_reach_the_next_answer,
        speech_over_http,
        a_wrong_key_is_an_error_frame_with_the_servers_words,
    )
    for case in cases:
        await case()
    print(json.dumps({"version": version("pipecat-ai"), "passed": [case.__name__ for case in cases]}))


if __name__ == "__main__":
    asyncio.run(main())
