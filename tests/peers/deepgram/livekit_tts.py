"""LiveKit's Deepgram plugins against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any

import aiohttp
from livekit.agents import APIConnectionError, APIStatusError
from livekit.plugins import deepgram

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. One two three four five six."


def make_tts(session: aiohttp.ClientSession, **options: Any) -> Any:
    return deepgram.TTS(base_url=f"{URL}/v1/speak", http_session=session, **{"api_key": KEY, **options})


async def speak(tts: Any, text: str = TEXT) -> float:
    """Write a text word by word; return the seconds of speech."""
    length = 0.0
    async with tts.stream() as stream:
        for word in text.split():
            stream.push_text(word + " ")
            await asyncio.sleep(0.01)
        stream.end_input()
        async for event in stream:
            length += event.frame.duration
    return length


async def text_is_streamed_in_with_the_plugins_default_voice() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        for _ in range(3):  # on one connection
            length = await speak(tts)
            assert 2.2 < length < 3.4, length
        await tts.aclose()


async def turns_are_streamed_in() -> None:
    async with aiohttp.ClientSession() as session:
        tts = deepgram.TTSv2(base_url=f"{URL}/v2/speak", http_session=session, api_key=KEY)
        for _ in range(2):
            length = await speak(tts)
            assert 2.2 < length < 3.4, length
        await tts.aclose()


async def a_text_is_spoken_whole() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session, model="tone-330", speed=1.0)
        length = 0.0
        async with tts.synthesize(TEXT) as stream:
            async for event in stream:
                length += event.frame.duration
        assert 2.2 < length < 3.4, length


async def an_interruption_does_not_reach_the_next_answer() -> None:
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        stream = tts.stream()
        stream.push_text(TEXT * 10)
        stream.end_input()
        await anext(aiter(stream))
        await stream.aclose()
        length = await speak(tts)
        assert 2.2 < length < 3.4, length
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
        text_is_streamed_in_with_the_plugins_default_voice,
        turns_are_streamed_in,
        a_text_is_spoken_whole,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_is_the_plugins_own_error,
    )
    for case in cases:
        await case()
    passed = [case.__name__ for case in cases]
    print(json.dumps({"version": version("livekit-plugins-deepgram"), "passed": passed}))


if __name__ == "__main__":
    asyncio.run(main())
