"""Pipecat's Inworld services against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``

The service over HTTP has no parameter for its URL: the session here sends its requests to the server.
"""

import sys
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from pipecat.frames.frames import InterruptionFrame, TTSSpeakFrame, TTSStoppedFrame
from pipecat.services.inworld.tts import InworldHttpTTSService, InworldTTSService
from pipecat.services.tts_service import TextAggregationMode
from pipecat.tests.utils import SleepFrame

from peers.client_cases import run_cases
from peers.pipecat_speech import (
    TEXT,
    after_interruption,
    check_spoken,
    errors_in,
    frames_of,
    seconds_in,
    speak_after_idling,
    speak_twenty_turns,
    tokens,
)

URL, KEY, _ = sys.argv[1:4]


def make_service(api_key: str = KEY, **options: Any) -> InworldTTSService:
    url = URL.replace("http", "ws", 1) + "/tts/v1/voice:streamBidirectional"
    return InworldTTSService(api_key=api_key, url=url, **options)


async def sentences_are_spoken_with_their_words() -> None:
    frames = await frames_of(make_service(), tokens())
    check_spoken(frames)
    assert sum(isinstance(frame, TTSStoppedFrame) for frame in frames) == 1


async def tokens_are_spoken_with_their_words() -> None:
    settings = InworldTTSService.Settings(voice="tone-330", speaking_rate=1.0, temperature=0.8)
    options = {"text_aggregation_mode": TextAggregationMode.TOKEN, "settings": settings}
    check_spoken(await frames_of(make_service(**options), tokens()))


async def the_pieces_of_linear16_are_joined_without_their_headers() -> None:
    plain, wrapped = [
        await frames_of(make_service(encoding=encoding), tokens()) for encoding in ("PCM", "LINEAR16")
    ]
    check_spoken(wrapped)
    assert seconds_in(plain) == seconds_in(wrapped)


async def an_interruption_does_not_reach_the_next_answer() -> None:
    for written in (tokens(TEXT * 10), tokens(TEXT * 10)[:-1]):  # whole, and while it is written
        interrupted = [*written, SleepFrame(sleep=0.3), InterruptionFrame(), *tokens()]
        check_spoken(after_interruption(await frames_of(make_service(), interrupted)))


class ServerSession(aiohttp.ClientSession):  # type: ignore[misc]  # aiohttp warns of derived classes
    """A session whose requests go to the server."""

    def post(self, url: str, **options: Any) -> Any:
        return super().post(URL + urlsplit(url).path, **options)


async def speech_over_http_has_its_words() -> None:
    async with ServerSession() as session:
        for streaming in (True, False):
            for encoding in ("PCM", "LINEAR16"):
                service = InworldHttpTTSService(
                    api_key=KEY, aiohttp_session=session, streaming=streaming, encoding=encoding
                )
                check_spoken(await frames_of(service, [TTSSpeakFrame(TEXT)], 1.5))


async def a_wrong_key_and_an_unknown_voice_are_error_frames() -> None:
    unknown = InworldTTSService.Settings(voice="nobody")
    for service in (make_service(api_key="wrong"), make_service(settings=unknown)):
        assert errors_in(await frames_of(service, [TTSSpeakFrame(TEXT)], 0.5))


async def twenty_turns_are_spoken_on_one_connection() -> None:
    await speak_twenty_turns(make_service())


async def a_turn_after_an_idle_time_is_spoken() -> None:
    await speak_after_idling(make_service())


if __name__ == "__main__":
    run_cases(
        "pipecat-ai",
        sentences_are_spoken_with_their_words,
        tokens_are_spoken_with_their_words,
        the_pieces_of_linear16_are_joined_without_their_headers,
        an_interruption_does_not_reach_the_next_answer,
        speech_over_http_has_its_words,
        a_wrong_key_and_an_unknown_voice_are_error_frames,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
