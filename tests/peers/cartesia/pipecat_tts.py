"""Pipecat's Cartesia service against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``
"""

import asyncio
import json
import sys
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore", DeprecationWarning)
from loguru import logger  # noqa: E402
from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSTextFrame,
)
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.cartesia.tts import CartesiaTTSService  # noqa: E402
from pipecat.services.tts_service import TextAggregationMode  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. Seven eight nine."


async def frames_of(
    frames: list[Frame], api_key: str = KEY, voice: str = "tone-330", **options: object
) -> list[Frame]:
    service = CartesiaTTSService(
        api_key=api_key,
        url=f"{URL.replace('http', 'ws', 1)}/tts/websocket",
        settings=CartesiaTTSService.Settings(voice=voice),
        **options,
    )
    down, up = await run_test(
        service,
        frames_to_send=[*frames, SleepFrame(sleep=3.0)],
        pipeline_params=PipelineParams(audio_out_sample_rate=24_000),
        start_timeout=30.0,
    )
    return [*down, *up]


def seconds_in(frames: list[Frame]) -> float:
    return sum(len(frame.audio) for frame in frames if isinstance(frame, TTSAudioRawFrame)) / 48_000


def words_in(frames: list[Frame]) -> list[str]:
    return " ".join(frame.text for frame in frames if isinstance(frame, TTSTextFrame)).split()


def tokens() -> list[Frame]:
    written = [LLMTextFrame(word + " ") for word in TEXT.split()]
    return [LLMFullResponseStartFrame(), *written, LLMFullResponseEndFrame()]


async def sentences_are_spoken_with_their_words() -> None:
    frames = await frames_of(tokens())
    assert 1.7 < seconds_in(frames) < 2.8, seconds_in(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


async def tokens_are_spoken_with_their_words() -> None:
    frames = await frames_of(tokens(), text_aggregation_mode=TextAggregationMode.TOKEN)
    assert 1.7 < seconds_in(frames) < 2.8, seconds_in(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


async def the_voice_of_cartesias_catalogue_is_the_default_voice() -> None:
    frames = await frames_of([TTSSpeakFrame(TEXT)], voice="71a7ad14-091c-4e8e-a314-022ece01c121")
    assert 1.7 < seconds_in(frames) < 2.8, seconds_in(frames)


async def a_wrong_key_is_an_error_frame() -> None:
    frames = await frames_of([TTSSpeakFrame(TEXT)], api_key="wrong")
    assert any(isinstance(frame, ErrorFrame) for frame in frames)


async def main() -> None:
    logger.disable("pipecat")
    cases = (
        sentences_are_spoken_with_their_words,
        tokens_are_spoken_with_their_words,
        the_voice_of_cartesias_catalogue_is_the_default_voice,
        a_wrong_key_is_an_error_frame,
    )
    for case in cases:
        await case()
    print(json.dumps({"version": version("pipecat-ai"), "passed": [case.__name__ for case in cases]}))


if __name__ == "__main__":
    asyncio.run(main())
