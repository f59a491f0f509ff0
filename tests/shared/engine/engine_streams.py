"""Streams of an engine and stand-in backends for tests of the engine."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from shared.engine.standin_backend import StandInBackend
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.chunk import AudioChunk
from vivavoce.tts_engine.speech_engine import SpeechEngine, SpeechStream

TEXT = "One two three four, five six seven eight nine ten. Then eleven and twelve follow!"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def collect(stream: SpeechStream) -> list[AudioChunk]:
    return [chunk async for chunk in stream]


async def speak(engine: SpeechEngine, text: str, *, split: int = 0, **options: Any) -> list[AudioChunk]:
    async with engine.stream(**options) as stream:
        size = split or len(text) or 1
        for start in range(0, len(text), size):
            stream.push_text(text[start : start + size])
        stream.end_input()
        return await collect(stream)


def pcm(chunks: Sequence[AudioChunk]) -> bytes:
    return b"".join(chunk.pcm for chunk in chunks)


def content(chunks: Sequence[AudioChunk]) -> list[object]:
    """The chunks without their provenance."""
    return [(chunk.pcm, chunk.samples, chunk.text, chunk.words) for chunk in chunks]


MakeStandIn = Callable[..., StandInBackend | ProcessBackend]


class Processes:
    """Stand-in backends in child processes, one for each set of arguments, reused by all tests."""

    def __init__(self) -> None:
        self._started: dict[str, ProcessBackend] = {}

    def stand_in(self, *arguments: Any, **options: Any) -> ProcessBackend:
        key = repr((arguments, options))
        if key not in self._started:
            backend = ProcessBackend.start_backend(functools.partial(StandInBackend, *arguments, **options))
            self._started[key] = backend
            backend.close = lambda: None  # type: ignore[method-assign]
        return self._started[key]

    def close(self) -> None:
        for backend in self._started.values():
            ProcessBackend.close(backend)
