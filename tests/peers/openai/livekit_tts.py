"""LiveKit's OpenAI plugin against ``../server.py``, only the base URL changed: prints passed cases as JSON.

``python livekit_tts.py URL KEY POOR_KEY``
"""

import sys

from livekit.agents import APIStatusError
from livekit.plugins import openai

from peers.client_cases import run_cases

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six."


async def seconds_of(**options: str) -> float:
    tts = openai.TTS(base_url=f"{URL}/v1", api_key=KEY, **options)
    seconds = 0.0
    async with tts.synthesize(TEXT) as stream:
        async for event in stream:
            assert event.request_id.startswith("req_")
            seconds += event.frame.duration
    await tts.aclose()
    return seconds


async def as_audio() -> None:
    for response_format in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
        seconds = await seconds_of(model="tts-1", response_format=response_format)
        assert 1.1 < seconds < 1.4, (response_format, seconds)


async def as_events() -> None:
    for response_format in ("mp3", "opus", "aac", "flac", "wav", "pcm"):
        seconds = await seconds_of(model="gpt-4o-mini-tts", response_format=response_format)
        assert 1.1 < seconds < 1.4, (response_format, seconds)


async def with_instructions_and_the_plugins_default_voice() -> None:
    assert 1.1 < await seconds_of(instructions="Cheerfully.") < 1.4


async def an_interruption_does_not_reach_the_next_answer() -> None:
    tts = openai.TTS(base_url=f"{URL}/v1", api_key=KEY)
    stream = tts.synthesize(TEXT * 50)
    await anext(aiter(stream))
    await stream.aclose()
    await tts.aclose()
    assert 1.1 < await seconds_of() < 1.4


async def an_error_is_the_plugins_own() -> None:
    try:
        await seconds_of(voice="unknown")
    except APIStatusError as error:
        assert error.status_code == 400
        return
    raise AssertionError("an unknown voice was accepted")


if __name__ == "__main__":
    run_cases(
        "livekit-plugins-openai",
        as_audio,
        as_events,
        with_instructions_and_the_plugins_default_voice,
        an_interruption_does_not_reach_the_next_answer,
        an_error_is_the_plugins_own,
    )
