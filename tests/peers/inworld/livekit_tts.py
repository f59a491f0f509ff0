"""LiveKit's Inworld plugin against ``../server.py``, only the URLs changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import sys
from typing import Any

import aiohttp
from livekit.plugins import inworld

from peers.client_cases import run_cases
from peers.livekit_speech import (
    check_length,
    check_refused,
    check_times,
    check_words,
    interrupt,
    speak,
    speak_after_idling,
    speak_twenty_turns,
    speak_whole,
    with_tts,
)

URL, KEY, _ = sys.argv[1:4]


def make_tts(session: aiohttp.ClientSession, **options: Any) -> inworld.TTS:
    urls = {"base_url": URL, "ws_url": URL.replace("http", "ws", 1)}
    return inworld.TTS(http_session=session, **{"api_key": KEY, "timestamp_type": "WORD", **urls, **options})


def check_spoken(length: float, words: list[Any]) -> None:
    check_length(length)
    check_words(words)
    check_times(length, words)


async def sentences_and_tokens_are_spoken_with_their_words() -> None:
    async with aiohttp.ClientSession() as session:
        for model in ("inworld-tts-1.5-max", "inworld-tts-2"):  # the latter's text is sent as it is written
            tts = make_tts(session, model=model)
            for _ in range(3):  # on one connection
                check_spoken(*await speak(tts))
            await tts.aclose()


async def every_encoding_is_decoded() -> None:
    async with aiohttp.ClientSession() as session:
        for encoding in ("LINEAR16", "MP3", "OGG_OPUS", "FLAC"):
            tts = make_tts(session, encoding=encoding, voice="tone-330")
            length, _ = await speak(tts)
            check_length(length)
            await tts.aclose()


async def a_text_is_spoken_over_http_with_its_words() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        check_spoken(*await speak_whole(tts))
        assert "tone-330" in {voice["voiceId"] for voice in await tts.list_voices()}
        assert not await tts.list_voices(language="xx")


async def an_interruption_does_not_reach_the_next_answer() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        await interrupt(tts)
        check_spoken(*await speak(tts))
        await tts.aclose()


async def a_wrong_key_and_an_unknown_voice_are_the_plugins_own_errors() -> None:
    async with aiohttp.ClientSession() as session:
        await check_refused(make_tts(session, api_key="wrong"))
        await check_refused(make_tts(session, voice="nobody"))


async def twenty_turns_are_spoken_on_one_connection() -> None:
    await with_tts(make_tts, speak_twenty_turns)


async def a_turn_after_an_idle_time_is_spoken() -> None:
    await with_tts(make_tts, speak_after_idling)


if __name__ == "__main__":
    run_cases(
        "livekit-plugins-inworld",
        sentences_and_tokens_are_spoken_with_their_words,
        every_encoding_is_decoded,
        a_text_is_spoken_over_http_with_its_words,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_and_an_unknown_voice_are_the_plugins_own_errors,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
