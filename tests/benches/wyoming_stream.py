"""First audio over the Wyoming protocol beside the native stream: ``python -m benches wyoming``.

Both are asked in turns, of one server in a process of its own with the packaged voice, for texts of which
none comes twice. Text is written word by word, as a language model writes it, and audio has to come before
the last word. The Wyoming client is the protocol's own package.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from shared.gateways.server_process import server_process
from shared.gateways.tls_proxy import free_port
from vivavoce.adapters.client import RemoteUtterance, SpeechClient
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_MAX_ABOVE_MS: Final = 5.0
_WORD_INTERVAL_S: Final = 0.03
_WARM_UP: Final = 3
_NUMBERS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_PLACES: Final = ("house", "garden", "station", "office", "market", "river", "school", "library", "harbour")


@dataclass(frozen=True, slots=True)
class _Spoken:
    first_ms: float  # from the end of the first sentence to its first audio
    overlapped: bool  # whether audio came before the last word was written


_Speak = Callable[[list[str]], Awaitable[_Spoken]]


def measure(turns: int) -> BenchReport:
    """Speak ``turns`` texts over each."""
    native, wyoming = asyncio.run(_measure(turns))
    medians = [float(np.median([spoken.first_ms for spoken in found])) for found in (native, wyoming)]
    overlapped = sum(spoken.overlapped for spoken in wyoming)
    figures = (
        BenchFigure("native stream, first audio, p50", medians[0], "ms"),
        BenchFigure("Wyoming, first audio, p50", medians[1], "ms"),
        BenchFigure("Wyoming above the native stream", medians[1] - medians[0], "ms", at_most=_MAX_ABOVE_MS),
        BenchFigure(f"audio before the last word, of {turns}", overlapped, "", at_least=turns),
    )
    return BenchReport("wyoming", figures, {"turns": turns})


async def _measure(turns: int) -> tuple[list[_Spoken], list[_Spoken]]:
    port = free_port()
    os.environ["VIVAVOCE_APIS_PORTS"] = f'{{"wyoming": {port}}}'
    async with (
        server_process() as (_, url),
        SpeechClient(url.replace("http", "ws")) as native,
        AsyncTcpClient("127.0.0.1", port) as wyoming,
    ):
        ways: tuple[_Speak, _Speak] = (
            lambda words: _over_native(native, words),
            lambda words: _over_wyoming(wyoming, words),
        )
        found: tuple[list[_Spoken], list[_Spoken]] = ([], [])
        for turn in range(_WARM_UP + turns):
            for place in np.random.default_rng(turn).permutation(2):
                found[place].append(await ways[place](_text(2 * turn + int(place))))
    return found[0][_WARM_UP:], found[1][_WARM_UP:]


def _text(number: int) -> list[str]:
    """The words of two sentences that no other number has."""
    tens, ones = divmod(number, len(_NUMBERS))
    place = _PLACES[tens % len(_PLACES)]
    first = f"There are {_NUMBERS[ones]} people at the {place}"
    return f"{first}. They wait for number {number} and for somebody who opens the door.".split()


async def _write(words: list[str], write: Callable[[str], Awaitable[object]]) -> tuple[float, float]:
    """Write the words; return when the first sentence ended, and when all were written."""
    sentence_at = 0.0
    for word in words:
        await write(word + " ")
        if word.endswith(".") and not sentence_at:
            sentence_at = time.monotonic()
        await asyncio.sleep(_WORD_INTERVAL_S)
    return sentence_at, time.monotonic()


async def _over_native(client: SpeechClient, words: list[str]) -> _Spoken:
    async with client.utterance() as utterance:
        reading = asyncio.create_task(_first_of_native(utterance))
        sentence_at, written_at = await _write(words, utterance.push_text)
        await utterance.end_input()
        first_at = await reading
    return _Spoken(1000 * (first_at - sentence_at), first_at < written_at)


async def _first_of_native(utterance: RemoteUtterance) -> float:
    first_at = 0.0
    async for piece in utterance:
        first_at = first_at or (time.monotonic() if piece.audio else 0.0)
    return first_at


async def _over_wyoming(client: AsyncTcpClient, words: list[str]) -> _Spoken:
    reading = asyncio.create_task(_first_of_wyoming(client))
    await client.write_event(SynthesizeStart().event())
    sentence_at, written_at = await _write(
        words, lambda word: client.write_event(SynthesizeChunk(text=word).event())
    )
    await client.write_event(SynthesizeStop().event())
    first_at = await reading
    return _Spoken(1000 * (first_at - sentence_at), first_at < written_at)


async def _first_of_wyoming(client: AsyncTcpClient) -> float:
    first_at = 0.0
    while (event := await client.read_event()) is not None and not SynthesizeStopped.is_type(event.type):
        if AudioChunk.is_type(event.type):
            first_at = first_at or time.monotonic()
    return first_at
