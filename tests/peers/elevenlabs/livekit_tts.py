"""LiveKit's ElevenLabs plugin against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import sys
from typing import Any

import aiohttp
from livekit.agents import tokenize
from livekit.plugins import elevenlabs

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
TOKENS = tokenize.basic.WordTokenizer(ignore_punctuation=False)


def make_tts(session: aiohttp.ClientSession, **options: Any) -> elevenlabs.TTS:
    given = {"api_key": KEY, "encoding": "pcm_24000", **options}
    return elevenlabs.TTS(base_url=f"{URL}/v1", http_session=session, **given)


async def sentences_are_spoken_with_their_words_and_the_plugins_default_voice() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        for _ in range(3):  # on one connection
            length, words = await speak(tts)
            check_length(length)
            check_words(words)
        await tts.aclose()


async def tokens_are_spoken_with_their_words() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session, auto_mode=False, word_tokenizer=TOKENS, voice_id="tone-330")
        length, words = await speak(tts)
        check_length(length)
        check_words(words)
        check_times(length, words)
        await tts.aclose()


async def a_text_is_spoken_whole_in_the_default_mp3() -> None:
    async with aiohttp.ClientSession() as session:
        tts = elevenlabs.TTS(base_url=f"{URL}/v1", http_session=session, api_key=KEY)
        length, _ = await speak_whole(tts)
        check_length(length)
        assert "tone-330" in {voice.id for voice in await tts.list_voices()}


async def an_interruption_does_not_reach_the_next_answer() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        await interrupt(tts)
        length, words = await speak(tts)
        check_length(length)
        check_words(words)
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
        "livekit-plugins-elevenlabs",
        sentences_are_spoken_with_their_words_and_the_plugins_default_voice,
        tokens_are_spoken_with_their_words,
        a_text_is_spoken_whole_in_the_default_mp3,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_is_the_plugins_own_error,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
