"""What the programs with LiveKit's plugins share: text written word by word, its sound and its words."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from livekit.agents import APIConnectionError, APIError, APIStatusError

from peers.client_cases import IDLE_S

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


async def with_tts(
    make_tts: Callable[[aiohttp.ClientSession], Any], use: Callable[[Any], Awaitable[None]]
) -> None:
    """Use a plugin on a session of its own."""
    async with aiohttp.ClientSession() as session:
        tts = make_tts(session)
        await use(tts)
        await tts.aclose()


async def speak_twenty_turns(tts: Any) -> None:
    """Speak one turn after another on the plugin's connection; no attempt may fail."""
    retries = _recorded_warnings()
    for _ in range(20):
        length, _ = await speak(tts, "One two.")
        assert length > 0.3, length
    assert not retries, retries


async def speak_after_idling(tts: Any) -> None:
    """Speak again on a connection that was idle for ``IDLE_S``; no attempt may fail."""
    retries = _recorded_warnings()
    await speak(tts, "One two.")
    await asyncio.sleep(IDLE_S)
    length, _ = await speak(tts, "One two.")
    assert length > 0.3, length
    assert not retries, retries


def _recorded_warnings() -> list[str]:
    """The plugin logs a warning and tries again when its connection fails."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("livekit").addHandler(handler)
    return found


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
