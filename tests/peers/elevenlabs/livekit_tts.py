"""LiveKit's ElevenLabs plugin against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any

import aiohttp
from livekit.agents import APIConnectionError, APIStatusError, tokenize
from livekit.plugins import elevenlabs

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. One two three four five six."
TOKENS = tokenize.basic.WordTokenizer(ignore_punctuation=False)


def make_tts(session: aiohttp.ClientSession, **options: Any) -> elevenlabs.TTS:
    given = {"api_key": KEY, "encoding": "pcm_24000", **options}
    return elevenlabs.TTS(base_url=f"{URL}/v1", http_session=session, **given)


async def speak(tts: elevenlabs.TTS, text: str = TEXT) -> tuple[float, list[Any]]:
    """Write a text word by word; return the seconds of speech and its words."""
    length, words = 0.0, []
    async with tts.stream() as stream:
        for word in text.split():
            stream.push_text(word + " ")
            await asyncio.sleep(0.01)
        stream.end_input()
        async for event in stream:
            length += event.frame.duration
            words += event.frame.userdata.get("lk.timed_transcripts", [])
    return length, words


async def sentences_are_spoken_with_their_words_and_the_plugins_default_voice() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        for _ in range(3):  # on one connection
            length, words = await speak(tts)
            assert 2.2 < length < 3.4, length
            assert "".join(words).split() == TEXT.split(), words
        await tts.aclose()


async def tokens_are_spoken_with_their_words() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session, auto_mode=False, word_tokenizer=TOKENS, voice_id="tone-330")
        length, words = await speak(tts)
        assert 2.2 < length < 3.4, length
        assert "".join(words).split() == TEXT.split(), words
        times = [time for word in words for time in (word.start_time, word.end_time)]
        assert times == sorted(times) and length - 0.8 < times[-1] <= length, times
        await tts.aclose()


async def a_text_is_spoken_whole_in_the_default_mp3() -> None:
    async with aiohttp.ClientSession() as session:
        tts = elevenlabs.TTS(base_url=f"{URL}/v1", http_session=session, api_key=KEY)
        length = 0.0
        async with tts.synthesize(TEXT) as stream:
            async for event in stream:
                length += event.frame.duration
        assert 2.2 < length < 3.4, length
        assert "tone-330" in {voice.id for voice in await tts.list_voices()}


async def an_interruption_does_not_reach_the_next_answer() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        stream = tts.stream()
        stream.push_text(TEXT * 5)
        stream.end_input()
        await anext(aiter(stream))
        await stream.aclose()
        length, words = await speak(tts)
        assert 2.2 < length < 3.4, length
        assert "".join(words).split() == TEXT.split(), words
        await tts.aclose()


async def a_wrong_key_is_the_plugins_own_error() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session, api_key="wrong")
        try:
            await speak(tts, "One.")
        except (APIStatusError, APIConnectionError):
            return
        raise AssertionError("a wrong key was accepted")


async def main() -> None:
    cases = (
        sentences_are_spoken_with_their_words_and_the_plugins_default_voice,
        tokens_are_spoken_with_their_words,
        a_text_is_spoken_whole_in_the_default_mp3,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_is_the_plugins_own_error,
    )
    for case in cases:
        await case()
    passed = [case.__name__ for case in cases]
    print(json.dumps({"version": version("livekit-plugins-elevenlabs"), "passed": passed}))


if __name__ == "__main__":
    asyncio.run(main())
