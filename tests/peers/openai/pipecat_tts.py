"""Pipecat's OpenAI service against ``../server.py``, only the base URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``
"""

import sys

from pipecat.frames.frames import Frame, InterruptionFrame, TTSSpeakFrame
from pipecat.services.openai.tts import VALID_VOICES, OpenAITTSService
from pipecat.tests.utils import SleepFrame

from peers.client_cases import run_cases
from peers.pipecat_speech import (
    TEXT,
    after_interruption,
    check_length,
    errors_in,
    frames_of,
    seconds_in,
    tokens,
)

URL, KEY, _ = sys.argv[1:4]


async def speak(api_key: str = KEY, **settings: object) -> list[Frame]:
    service = OpenAITTSService(
        api_key=api_key, base_url=f"{URL}/v1", settings=OpenAITTSService.Settings(**settings)
    )
    return await frames_of(service, [TTSSpeakFrame("One two three four five six.")], wait_s=0.0)


async def every_voice_name_of_pipecat() -> None:
    for voice in VALID_VOICES:
        assert 1.1 < seconds_in(await speak(voice=voice)) < 1.4, voice


async def with_instructions_and_speed() -> None:
    assert 2.2 < seconds_in(await speak(voice="nova", instructions="Softly.", speed=0.25)) < 2.8


async def an_interruption_does_not_reach_the_next_answer() -> None:
    settings = OpenAITTSService.Settings(voice="nova")
    service = OpenAITTSService(api_key=KEY, base_url=f"{URL}/v1", settings=settings)
    interrupted = [*tokens(TEXT * 10), SleepFrame(sleep=0.3), InterruptionFrame(), *tokens()]
    check_length(after_interruption(await frames_of(service, interrupted)))


async def a_wrong_key_is_an_error_frame() -> None:
    assert errors_in(await speak("wrong", voice="nova"))


if __name__ == "__main__":
    run_cases(
        "pipecat-ai",
        every_voice_name_of_pipecat,
        with_instructions_and_speed,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_is_an_error_frame,
    )
