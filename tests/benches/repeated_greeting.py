"""A greeting of all calls, kept and not kept: ``PYTHONPATH=tests python -m benches.repeated_greeting``.

An engine in this process speaks it on many streams at once, at the rate of phones, in turns with and without
what it keeps. Printed is the processor time of a second of speech, and the ratio.
"""

import argparse
import asyncio
import math
import statistics
import time
from typing import Final

from vivavoce.tts_engine.backends.voice_kind import KeptSpeechConfig
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream_request import Delivery

GREETING: Final = (
    "Thank you for calling the Riverside Clinic. Your call may be recorded. "
    "Please tell me in a few words what you are calling about, and I will help you."
)


async def _speak(engine: Engine) -> float:
    async with engine.stream(delivery=Delivery(listener_rate=8_000)) as stream:
        stream.push_text(GREETING)
        stream.end_input()
        return sum([chunk.seconds async for chunk in stream])


async def _round_s(engine: Engine, streams: int) -> float:
    """Processor seconds for a second of speech."""
    begun = time.process_time()
    spoken_s = sum(await asyncio.gather(*(_speak(engine) for _ in range(streams))))
    return (time.process_time() - begun) / spoken_s


async def measure(streams: int, rounds: int) -> None:
    """Print each way's median of a second of speech, and the ratio."""
    config = EngineConfig(SchedulerPolicy(max_load=math.inf))  # on a busy machine too
    async with (
        await Engine.open(config=config) as plain,
        await Engine.open(config=config, kept_speech=KeptSpeechConfig(32_000_000)) as keeping,
    ):
        times: dict[str, list[float]] = {"not kept": [], "kept": []}
        for _ in range(rounds):
            times["not kept"].append(await _round_s(plain, streams))
            times["kept"].append(await _round_s(keeping, streams))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name}: {1000 * median:.2f} ms of processor time for a second of speech")
    ratio, first = (kept / medians["not kept"] for kept in (medians["kept"], times["kept"][0]))
    print(f"ratio {ratio:.3f}, of the first round, in which nothing was kept before, {first:.3f}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    asyncio.run(measure(options.streams, options.rounds))


if __name__ == "__main__":
    main()
