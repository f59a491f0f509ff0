"""Pipecat's OpenAI service against ``../server.py``, only the base URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``
"""

import asyncio
import json
import sys
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore", DeprecationWarning)
from loguru import logger  # noqa: E402
from pipecat.frames.frames import ErrorFrame, Frame, TTSAudioRawFrame, TTSSpeakFrame  # noqa: E402
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.openai.tts import VALID_VOICES, OpenAITTSService  # noqa: E402
from pipecat.tests.utils import run_test  # noqa: E402

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six."


async def frames_of(api_key: str = KEY, **settings: object) -> list[Frame]:
    service = OpenAITTSService(
        api_key=api_key, base_url=f"{URL}/v1", settings=OpenAITTSService.Settings(**settings)
    )
    down, up = await run_test(
        service,
        frames_to_send=[TTSSpeakFrame(TEXT)],
        pipeline_params=PipelineParams(audio_out_sample_rate=24_000),
        start_timeout=30.0,
    )
    return [*down, *up]


def seconds_in(frames: list[Frame]) -> float:
    return sum(len(frame.audio) for frame in frames if isinstance(frame, TTSAudioRawFrame)) / 48_000


async def every_voice_name_of_pipecat() -> None:
    for voice in VALID_VOICES:
        assert 1.1 < seconds_in(await frames_of(voice=voice)) < 1.4, voice


async def with_instructions_and_speed() -> None:
    assert 2.2 < seconds_in(await frames_of(voice="nova", instructions="Softly.", speed=0.25)) < 2.8


async def a_wrong_key_is_an_error_frame() -> None:
    assert any(isinstance(frame, ErrorFrame) for frame in await frames_of("wrong", voice="nova"))


async def main() -> None:
    logger.disable("pipecat")
    cases = (every_voice_name_of_pipecat, with_instructions_and_speed, a_wrong_key_is_an_error_frame)
    for case in cases:
        await case()
    print(json.dumps({"version": version("pipecat-ai"), "passed": [case.__name__ for case in cases]}))


if __name__ == "__main__":
    asyncio.run(main())
