"""LiveKit's Inworld plugin against ``../server.py``, only the URLs changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any

import aiohttp
from livekit.agents import APIConnectionError, APIError, APIStatusError
from livekit.plugins import inworld

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. One two three four five six."


def make_tts(session: aiohttp.ClientSession, **options: Any) -> inworld.TTS:
    urls = {"base_url": URL, "ws_url": URL.replace("http", "ws", 1)}
    return inworld.TTS(http_session=session, **{"api_key": KEY, "timestamp_type": "WORD", **urls, **options})


async def speak(tts: inworld.TTS, text: str = TEXT) -> tuple[float, list[Any]]:
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


def check_spoken(length: float, words: list[Any]) -> None:
    assert 2.2 < length < 3.4, length
    assert "".join(words).split() == TEXT.split(), words
    times = [time for word in words for time in (word.start_time, word.end_time)]
    assert times == sorted(times) and length - 0.8 < times[-1] <= length, times


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
            assert 2.2 < length < 3.4, (encoding, length)
            await tts.aclose()


async def a_text_is_spoken_over_http_with_its_words() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        length, words = 0.0, []
        async with tts.synthesize(TEXT) as stream:
            async for event in stream:
                length += event.frame.duration
                words += event.frame.userdata.get("lk.timed_transcripts", [])
        check_spoken(length, words)
        assert "tone-330" in {voice["voiceId"] for voice in await tts.list_voices()}
        assert not await tts.list_voices(language="xx")


async def an_interruption_does_not_reach_the_next_answer() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        stream = tts.stream()
        stream.push_text(TEXT * 5)
        stream.end_input()
        await anext(aiter(stream))
        await stream.aclose()
        check_spoken(*await speak(tts))
        await tts.aclose()


async def a_wrong_key_and_an_unknown_voice_are_the_plugins_own_errors() -> None:
    async with aiohttp.ClientSession() as session:
        for options in ({"api_key": "wrong"}, {"voice": "nobody"}):
            tts = make_tts(session, **options)
            try:
                await speak(tts, "One.")
            except (APIError, APIStatusError, APIConnectionError):
                continue
            raise AssertionError(f"accepted: {options}")


async def main() -> None:
    cases = (
        sentences_and_tokens_are_spoken_with_their_words,
        every_encoding_is_decoded,
        a_text_is_spoken_over_http_with_its_words,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_and_an_unknown_voice_are_the_plugins_own_errors,
    )
    for case in cases:
        await case()
    passed = [case.__name__ for case in cases]
    print(json.dumps({"version": version("livekit-plugins-inworld"), "passed": passed}))


if __name__ == "__main__":
    asyncio.run(main())
