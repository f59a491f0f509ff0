"""Pipecat's ElevenLabs services against ``../server.py``, only the URL changed: prints passed cases as JSON.

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
    TTSTextFrame,
)
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService  # noqa: E402
from pipecat.services.tts_service import TextAggregationMode, TTSService  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. Seven eight nine."


def make_service(api_key: str = KEY, voice: str = "tone-330", **options: object) -> ElevenLabsTTSService:
    return ElevenLabsTTSService(
        api_key=api_key,
        url=URL.replace("http", "ws", 1),
        settings=ElevenLabsTTSService.Settings(voice=voice),
        **options,
    )


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


def words_in(frames: list[Frame]) -> list[str]:
    return " ".join(frame.text for frame in frames if isinstance(frame, TTSTextFrame)).split()


def tokens(text: str = TEXT) -> list[Frame]:
    written = [LLMTextFrame(word + " ") for word in text.split()]
    return [LLMFullResponseStartFrame(), *written, LLMFullResponseEndFrame()]


async def sentences_are_spoken_with_their_words() -> None:
    frames = await frames_of(make_service(), tokens())
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


async def tokens_are_spoken_with_their_words() -> None:
    frames = await frames_of(make_service(text_aggregation_mode=TextAggregationMode.TOKEN), tokens())
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


async def an_interruption_does_not_reach_the_next_answer() -> None:
    interrupted = [*tokens(TEXT * 10), SleepFrame(sleep=0.3), InterruptionFrame(), *tokens()]
    frames = await frames_of(make_service(), interrupted)
    after = frames[[isinstance(frame, InterruptionFrame) for frame in frames].index(True) :]
    assert 1.7 < seconds_in(after) < 3.0, seconds_in(after)
    assert words_in(after) == TEXT.split(), words_in(after)


async def speech_over_http_has_its_words() -> None:
    async with aiohttp.ClientSession() as session:
        service = ElevenLabsHttpTTSService(
            api_key=KEY,
            base_url=URL,
            aiohttp_session=session,
            settings=ElevenLabsHttpTTSService.Settings(voice="hpp4J3VqNfWAUOO0d1Us"),
        )
        frames = await frames_of(service, [TTSSpeakFrame(TEXT)], 1.5)
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


async def a_wrong_key_is_an_error_frame() -> None:
    frames = await frames_of(make_service(api_key="wrong"), [TTSSpeakFrame(TEXT)], 0.5)
    assert any(isinstance(frame, ErrorFrame) for frame in frames)


async def main() -> None:
    logger.disable("pipecat")
    cases = (
        sentences_are_spoken_with_their_words,
        tokens_are_spoken_with_their_words,
        an_interruption_does_not_reach_the_next_answer,
        speech_over_http_has_its_words,
        a_wrong_key_is_an_error_frame,
    )
    for case in cases:
        await case()
    print(json.dumps({"version": version("pipecat-ai"), "passed": [case.__name__ for case in cases]}))


if __name__ == "__main__":
    asyncio.run(main())
