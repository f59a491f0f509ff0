"""Pipecat's Inworld services against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``

The service over HTTP has no parameter for its URL: the session here sends its requests to the server.
"""

import asyncio
import json
import sys
import warnings
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

warnings.simplefilter("ignore", DeprecationWarning)
import aiohttp  # noqa: E402
from loguru import logger  # noqa: E402
from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.inworld.tts import InworldHttpTTSService, InworldTTSService  # noqa: E402
from pipecat.services.tts_service import TextAggregationMode, TTSService  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. Seven eight nine."


def make_service(api_key: str = KEY, **options: Any) -> InworldTTSService:
    url = URL.replace("http", "ws", 1) + "/tts/v1/voice:streamBidirectional"
    return InworldTTSService(api_key=api_key, url=url, **options)


async def frames_of(service: TTSService, frames: list[Frame], wait_s: float = 2.5) -> list[Frame]:
    down, up = await run_test(
        service,
        frames_to_send=[*frames, SleepFrame(sleep=wait_s)],
        pipeline_params=PipelineParams(audio_out_sample_rate=24_000),
        start_timeout=30.0,
    )
    return [*down, *up]


def seconds_in(frames: list[Frame]) -> float:
    return sum(len(frame.audio) for frame in frames if isinstance(frame, TTSAudioRawFrame)) / 48_000


def words_in(frames: list[Frame]) -> list[str]:
    return " ".join(frame.text for frame in frames if isinstance(frame, TTSTextFrame)).split()


def tokens(text: str = TEXT) -> list[Frame]:
    written = [LLMTextFrame(word + " ") for word in text.split()]
    return [LLMFullResponseStartFrame(), *written, LLMFullResponseEndFrame()]


def check_spoken(frames: list[Frame]) -> None:
    assert not [frame for frame in frames if isinstance(frame, ErrorFrame)], frames
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


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
        frames = await frames_of(make_service(), interrupted)
        check_spoken(frames[[isinstance(frame, InterruptionFrame) for frame in frames].index(True) :])


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
        frames = await frames_of(service, [TTSSpeakFrame(TEXT)], 0.5)
        assert any(isinstance(frame, ErrorFrame) for frame in frames)


async def main() -> None:
    logger.disable("pipecat")
    cases = (
        sentences_are_spoken_with_their_words,
        tokens_are_spoken_with_their_words,
        the_pieces_of_linear16_are_joined_without_their_headers,
        an_interruption_does_not_reach_the_next_answer,
        speech_over_http_has_its_words,
        a_wrong_key_and_an_unknown_voice_are_error_frames,
    )
    for case in cases:
        await case()
    print(json.dumps({"version": version("pipecat-ai"), "passed": [case.__name__ for case in cases]}))


if __name__ == "__main__":
    asyncio.run(main())
