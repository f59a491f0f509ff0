"""What the programs with LiveKit's plugins share: text written word by word, its sound and its words."""

import asyncio
from typing import Any

from livekit.agents import APIConnectionError, APIError, APIStatusError

TEXT = "One two three four five six. One two three four five six."


async def speak(tts: Any, text: str = TEXT) -> tuple[float, list[Any]]:
    """Write a text word by word; return the seconds of speech and its words."""
    async with tts.stream() as stream:
        for word in text.split():
            stream.push_text(word + " ")
            await asyncio.sleep(0.01)
        stream.end_input()
        return await _heard(stream)


async def speak_whole(tts: Any, text: str = TEXT) -> tuple[float, list[Any]]:
    """Speak a text that is given at once; return the seconds of speech and its words."""
    async with tts.synthesize(text) as stream:
        return await _heard(stream)


async def _heard(stream: Any) -> tuple[float, list[Any]]:
    length, words = 0.0, []
    async for event in stream:
        length += event.frame.duration
        words += event.frame.userdata.get("lk.timed_transcripts", [])
    return length, words


async def interrupt(tts: Any) -> None:
    """Leave a long answer after its first sound."""
    stream = tts.stream()
    stream.push_text(TEXT * 5)
    stream.end_input()
    await anext(aiter(stream))
    await stream.aclose()


def check_length(seconds: float) -> None:
    """Assert that the text was spoken whole, once."""
    assert 2.2 < seconds < 3.4, seconds


def check_words(words: list[Any]) -> None:
    """Assert that the words are those of the text."""
    assert "".join(words).split() == TEXT.split(), words


def check_times(seconds: float, words: list[Any]) -> None:
    """Assert that the times of the words ascend to the end of the speech."""
    times = [time for word in words for time in (word.start_time, word.end_time)]
    assert times == sorted(times) and seconds - 0.8 < times[-1] <= seconds, times


async def check_refused(tts: Any) -> None:
    """Assert that speaking ends in an error of the plugin."""
    try:
        await speak(tts, "One.")
    except (APIError, APIStatusError, APIConnectionError):
        return
    raise AssertionError("the server did not refuse to speak")
