"""Pipecat's ElevenLabs services against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``
"""

import sys

import aiohttp
from pipecat.frames.frames import InterruptionFrame, TTSSpeakFrame
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.tts_service import TextAggregationMode
from pipecat.tests.utils import SleepFrame

from peers.client_cases import run_cases
from peers.pipecat_speech import (
    TEXT,
    after_interruption,
    check_spoken,
    errors_in,
    frames_of,
    speak_after_idling,
    speak_twenty_turns,
    tokens,
)

URL, KEY, _ = sys.argv[1:4]


def make_service(api_key: str = KEY, voice: str = "tone-330", **options: object) -> ElevenLabsTTSService:
    return ElevenLabsTTSService(
        api_key=api_key,
        url=URL.replace("http", "ws", 1),
        settings=ElevenLabsTTSService.Settings(voice=voice),
        **options,
    )


async def sentences_are_spoken_with_their_words() -> None:
    check_spoken(await frames_of(make_service(), tokens()))


async def tokens_are_spoken_with_their_words() -> None:
    service = make_service(text_aggregation_mode=TextAggregationMode.TOKEN)
    check_spoken(await frames_of(service, tokens()))


async def an_interruption_does_not_reach_the_next_answer() -> None:
    interrupted = [*tokens(TEXT * 10), SleepFrame(sleep=0.3), InterruptionFrame(), *tokens()]
    check_spoken(after_interruption(await frames_of(make_service(), interrupted)))


async def speech_over_http_has_its_words() -> None:
    async with aiohttp.ClientSession() as session:
        service = ElevenLabsHttpTTSService(
            api_key=KEY,
            base_url=URL,
            aiohttp_session=session,
            settings=ElevenLabsHttpTTSService.Settings(voice="hpp4J3VqNfWAUOO0d1Us"),
        )
        check_spoken(await frames_of(service, [TTSSpeakFrame(TEXT)], 1.5))


async def a_wrong_key_is_an_error_frame() -> None:
    assert errors_in(await frames_of(make_service(api_key="wrong"), [TTSSpeakFrame(TEXT)], 0.5))


async def twenty_turns_are_spoken_on_one_connection() -> None:
    await speak_twenty_turns(make_service())


async def a_turn_after_an_idle_time_is_spoken() -> None:
    await speak_after_idling(make_service())


if __name__ == "__main__":
    run_cases(
        "pipecat-ai",
        sentences_are_spoken_with_their_words,
        tokens_are_spoken_with_their_words,
        an_interruption_does_not_reach_the_next_answer,
        speech_over_http_has_its_words,
        a_wrong_key_is_an_error_frame,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
