"""Pipecat's Deepgram services against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``
"""

import sys

import aiohttp
from pipecat.frames.frames import InterruptionFrame, TTSSpeakFrame, TTSStoppedFrame
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService
from pipecat.tests.utils import SleepFrame

from peers.client_cases import run_cases
from peers.pipecat_speech import (
    TEXT,
    after_interruption,
    check_length,
    errors_in,
    frames_of,
    speak_after_idling,
    speak_twenty_turns,
    tokens,
)

URL, KEY, _ = sys.argv[1:4]
SOCKETS = URL.replace("http", "ws", 1)


def make_service(api_key: str = KEY) -> DeepgramTTSService:
    settings = DeepgramTTSService.Settings(voice="tone-330")
    return DeepgramTTSService(api_key=api_key, base_url=SOCKETS, settings=settings)


def make_turns_service() -> DeepgramFluxTTSService:
    return DeepgramFluxTTSService(api_key=KEY, url=f"{SOCKETS}/v2/speak")


async def sentences_are_spoken() -> None:
    frames = await frames_of(make_service(), tokens())
    check_length(frames)
    assert any(isinstance(frame, TTSStoppedFrame) for frame in frames)


async def tokens_are_spoken_as_a_turn() -> None:
    frames = await frames_of(make_turns_service(), tokens())
    check_length(frames)
    assert any(isinstance(frame, TTSStoppedFrame) for frame in frames)


async def an_interruption_does_not_reach_the_next_answer() -> None:
    # Audio has no ids in this protocol, so what is on its way at the interruption would count as the next
    # answer's if that began at once; a user who interrupts speaks for longer.
    speech_of_user = SleepFrame(sleep=1.0)
    for service in (make_service(), make_turns_service()):
        before = [*tokens(TEXT * 10), SleepFrame(sleep=0.3)]
        interrupted = [*before, InterruptionFrame(), speech_of_user, *tokens()]
        check_length(after_interruption(await frames_of(service, interrupted)))


async def speech_over_http() -> None:
    async with aiohttp.ClientSession() as session:
        service = DeepgramHttpTTSService(api_key=KEY, base_url=URL, aiohttp_session=session)
        check_length(await frames_of(service, [TTSSpeakFrame(TEXT)], 1.5))


async def a_wrong_key_is_an_error_frame_with_the_servers_text() -> None:
    errors = errors_in(await frames_of(make_service(api_key="wrong"), [TTSSpeakFrame(TEXT)], 0.5))
    assert any("Deepgram refused the connection (HTTP 401)" in error for error in errors), errors


async def twenty_turns_are_spoken_on_one_connection() -> None:
    await speak_twenty_turns(make_service())


async def a_turn_after_an_idle_time_is_spoken() -> None:
    await speak_after_idling(make_service())


if __name__ == "__main__":
    run_cases(
        "pipecat-ai",
        sentences_are_spoken,
        tokens_are_spoken_as_a_turn,
        an_interruption_does_not_reach_the_next_answer,
        speech_over_http,
        a_wrong_key_is_an_error_frame_with_the_servers_text,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
