"""Kept speech after a restart, and what files cost: ``PYTHONPATH=tests python -m benches.kept_speech_files``.

An engine says many sentences once, for phones, and is closed. Another one says some of them again, from files
that the system has in memory and from files that it has not, and others that are new. Then two engines, one
of which writes files, say new sentences in turns.
"""

import argparse
import asyncio
import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared.engine.kept_noise import wait_until_written
from vivavoce.tts_engine.backends.voice_kind import KeptSpeechConfig
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream_request import Delivery

_ASKED_AGAIN: Final = 100
_MEMORY_BYTES: Final = 32_000_000
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def _sentence(number: int) -> str:
    return f"Order {number} leaves our warehouse on {_DAYS[number % len(_DAYS)]} morning."


async def _open(folder: Path | None) -> Engine:
    config = EngineConfig(SchedulerPolicy(max_load=math.inf))  # on a busy machine too
    return await Engine.open(config=config, kept_speech=KeptSpeechConfig(_MEMORY_BYTES, folder))


async def _speak(engine: Engine, text: str) -> tuple[float, float]:
    """Seconds to the first sound, and of speech."""
    begun = time.perf_counter()
    async with engine.stream(delivery=Delivery(listener_rate=8_000)) as stream:
        stream.push_text(text)
        stream.end_input()
        chunks = aiter(stream)
        spoken_s = (await anext(chunks)).seconds
        first_s = time.perf_counter() - begun
        return first_s, spoken_s + sum([chunk.seconds async for chunk in chunks])


async def _first_sounds(engine: Engine, numbers: Sequence[int]) -> str:
    """The median and the 95th percentile."""
    times = sorted([(await _speak(engine, _sentence(number)))[0] for number in numbers])
    return f"{1000 * statistics.median(times):.1f} ms, p95 {1000 * times[len(times) * 95 // 100]:.1f} ms"


async def _cost(engine: Engine, numbers: Sequence[int]) -> float:
    """Processor milliseconds for a second of speech, of all threads, until all is written."""
    begun, spoken_s = time.process_time(), 0.0
    for number in numbers:
        spoken_s += (await _speak(engine, _sentence(number)))[1]
    return 1000 * (time.process_time() - begun) / spoken_s


def _drop_from_memory(folder: Path) -> None:
    """Have the system read the files from the disk again."""
    for path in folder.rglob("*.speech"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_all(folder: Path) -> None:
    """Print what there is, and how long an engine would take at its start to read it, without decoding."""
    begun = time.perf_counter()
    sizes = [len(path.read_bytes()) for path in folder.rglob("*.speech")]
    read_s = time.perf_counter() - begun
    print(f"{len(sizes)} lines on file, {sum(sizes) / 1e6:.0f} MB, read in {read_s:.2f} s")


async def _measure_restart(folder: Path, lines: int) -> None:
    async with await _open(folder) as engine:
        for number in range(lines):
            await _speak(engine, _sentence(number))
    wait_until_written()
    _read_all(folder)
    _drop_from_memory(folder)
    async with await _open(folder) as engine:
        new = range(lines, lines + _ASKED_AGAIN)
        again = range(0, lines, max(1, lines // _ASKED_AGAIN))
        print(f"first sound, on file and read from the disk: {await _first_sounds(engine, again)}")
        print(f"first sound, said since: {await _first_sounds(engine, again)}")
        print(f"first sound, rendered: {await _first_sounds(engine, new)}")
    async with await _open(folder) as engine:
        print(f"first sound, on file and in the system's memory: {await _first_sounds(engine, again)}")


async def _measure_misses(folder: Path, rounds: int) -> None:
    ratios = []
    async with await _open(None) as plain, await _open(folder) as filing:
        for at in range(rounds):
            numbers = range(100_000 + 20 * at, 100_020 + 20 * at)
            both = [(plain, "without"), (filing, "with")][:: 1 if at % 2 else -1]
            cost = {name: await _cost(engine, numbers) for engine, name in both}
            ratios.append(cost["with"] / cost["without"])
            print(f"a miss: {cost['without']:.2f} ms without files, {cost['with']:.2f} with")
    ratios.sort()
    print(f"ratio: {statistics.median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure_restart(Path(folder), options.lines))
        asyncio.run(_measure_misses(Path(folder), options.rounds))
        wait_until_written()


if __name__ == "__main__":
    main()
