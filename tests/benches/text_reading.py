"""Benchmark of reading: time of a character in all languages, and how long texts hold the event loop.

The second part gives an engine texts of the largest size and measures the processor time of the loop's thread
in one callback, which does not depend on what else the machine does, and the delay of a timer, which does.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.reading_work import LANGUAGES, ORDINARY, UNITS, read, repeated, segmenter_maker
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.process_tuning import tune_process
from vivavoce.tts_engine.engine import Engine

MAX_LOOP_MS = 10.0
_CHARACTERS = 1_600
_LARGEST_TEXT = 200_000  # characters; the limit of a stream
_HEARD_S = 1.0  # of each text
_TIMER_S = 0.002


@dataclass(slots=True)
class LoopTimes:
    """Of an event loop, in ms."""

    longest_callback: float = 0.0  # processor time of the loop's thread
    longest_delay: float = 0.0  # of a timer


def measure(languages: tuple[str, ...] = LANGUAGES) -> BenchReport:
    """Measure reading in some languages, and the loop with English texts."""
    figures: list[BenchFigure] = []
    for language in languages:
        figures += _figures_of_reading(language)
    figures += asyncio.run(_figures_of_loop())
    return BenchReport(bench="text-reading", figures=tuple(figures), settings={"characters": _CHARACTERS})


def _figures_of_reading(language: str) -> Iterator[BenchFigure]:
    make = segmenter_maker(language)

    def us_a_character(unit: str, characters: int) -> float:
        text = repeated(unit, characters)
        read(make(), text)  # compiles the patterns
        begin = time.thread_time()
        read(make(), text)
        return (time.thread_time() - begin) / characters * 1e6

    costs = {unit: us_a_character(unit, _CHARACTERS) for unit in UNITS}
    worst = max(costs, key=lambda unit: costs[unit])
    yield BenchFigure(f"{language}: ordinary text, a character", us_a_character(ORDINARY, _CHARACTERS), "µs")
    yield BenchFigure(f"{language}: {worst!r} repeated, a character", costs[worst], "µs")
    yield BenchFigure(
        f"{language}: the same in a text four times as long", us_a_character(worst, 4 * _CHARACTERS), "µs"
    )


async def _figures_of_loop() -> list[BenchFigure]:
    figures = []
    async with await Engine.open() as engine:
        tune_process()
        texts = {"ordinary text": ORDINARY, **{repr(unit): unit for unit in ("½", "1e", "a1b2")}}
        for name, unit in {"no text": "", **texts}.items():
            with _timed_callbacks() as times:
                await _speak_for_a_moment(engine, repeated(unit, _LARGEST_TEXT) if unit else "", times)
            title = f"{_LARGEST_TEXT} characters of {name}" if unit else name
            figures += [
                BenchFigure(f"{title}, longest callback", times.longest_callback, "ms", at_most=MAX_LOOP_MS),
                BenchFigure(f"{title}, longest delay of a timer", times.longest_delay, "ms"),
            ]
    return figures


async def _speak_for_a_moment(engine: Engine, text: str, times: LoopTimes) -> None:
    async with engine.stream() as stream:
        stream.push_text(text)
        stream.end_input()
        await anext(stream)
        end = time.monotonic() + _HEARD_S
        while (begin := time.monotonic()) < end:
            await asyncio.sleep(_TIMER_S)
            delay_s = time.monotonic() - begin - _TIMER_S
            times.longest_delay = max(times.longest_delay, 1000 * delay_s)


@contextmanager
def _timed_callbacks() -> Iterator[LoopTimes]:
    """Time the callbacks of all loops."""
    times, run = LoopTimes(), asyncio.Handle._run

    def run_timed(handle: asyncio.Handle) -> None:
        begin = time.thread_time()
        run(handle)
        times.longest_callback = max(times.longest_callback, 1000 * (time.thread_time() - begin))

    asyncio.Handle._run = run_timed  # type: ignore[method-assign, assignment]
    try:
        yield times
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
