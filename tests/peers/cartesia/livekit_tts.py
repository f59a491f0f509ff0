"""LiveKit's Cartesia plugin against ``../server.py``, only the base URL changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import sys
from typing import Any

import aiohttp
from livekit.plugins import cartesia

from peers.client_cases import run_cases
from peers.livekit_speech import (
    TEXT,
    check_length,
    check_refused,
    interrupt,
    speak,
    speak_after_idling,
    speak_twenty_turns,
    speak_whole,
    with_tts,
)

URL, KEY, _ = sys.argv[1:4]


def make_tts(session: aiohttp.ClientSession, **options: Any) -> cartesia.TTS:
    return cartesia.TTS(base_url=URL, http_session=session, **{"api_key": KEY, **options})


async def text_is_streamed_in_with_its_words_and_the_plugins_default_voice() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        for _ in range(4):  # on one connection
            length, words = await speak(tts)
            check_length(length)
            # The plugin drops the blank between two sentences when the second one comes late.
            assert "".join(words).replace(" ", "") == TEXT.replace(" ", ""), words
        await tts.aclose()


async def a_text_is_spoken_whole() -> None:
    async with aiohttp.ClientSession() as session:
        length, _ = await speak_whole(make_tts(session, voice="tone-330", speed=1.0))
        check_length(length)


async def an_interruption_does_not_reach_the_next_answer() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        await interrupt(tts)
        length, _ = await speak(tts)
        check_length(length)
        await tts.aclose()


async def a_wrong_key_is_the_plugins_own_error() -> None:
    async with aiohttp.ClientSession() as session:
        await check_refused(make_tts(session, api_key="wrong"))


async def twenty_turns_are_spoken_on_one_connection() -> None:
    await with_tts(make_tts, speak_twenty_turns)


async def a_turn_after_an_idle_time_is_spoken() -> None:
    await with_tts(make_tts, speak_after_idling)


if __name__ == "__main__":
    run_cases(
        "livekit-plugins-cartesia",
        text_is_streamed_in_with_its_words_and_the_plugins_default_voice,
        a_text_is_spoken_whole,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_is_the_plugins_own_error,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
