"""The DashScope part of the API bench: its client against a gateway of tones, and its ear."""

import asyncio

import numpy as np

from shared.standin_backend import StandInBackend
from vivavoce.gateway.cli.bench import dashscope_api as bench
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.settings import Settings
from vivavoce.tts_engine.engine import Engine


def test_first_bytes_throughput_and_leaving_are_measured() -> None:
    async def run() -> list[bench.BenchFigure]:
        settings = Settings(http_port=0, audiosocket_port=0, agent="none")
        async with await Engine.open(backend=StandInBackend()) as engine:
            gateway = await Gateway.open(settings, engine=engine)
            at = "{}:{}".format(*gateway.addresses.http)
            figures = [
                *await bench._first_byte_figures(at, 1),
                *await bench._throughput_figures(at),
                *await bench._disconnect_figures(at, 2),
            ]
            await gateway.aclose()
            return figures

    found = {figure.name.partition(", ")[2]: figure for figure in asyncio.run(run())}
    assert 0 < found["1 client: first byte, p50"].value <= found["1 client: first byte, p95"].value
    assert found["20 clients: first byte, p95"].at_most == 250.0
    assert found["100 tasks over 20 sockets: failed"].value == 0
    assert found["100 tasks over 20 sockets: speech"].value > 0
    assert found["a client vanishes: engine free, worst"].value > 0
    assert 0 < found["a client stops reading: speech rendered for it"].value < 60
    assert found["a client stops reading: rendering ends after"].at_most == 100.0


def test_a_hundred_tasks_of_twenty_voices_arrive_at_whom_they_are_for() -> None:
    (mixed,) = asyncio.run(bench._voice_isolation_figures())
    assert (mixed.value, mixed.at_most) == (0, 0)


def tone(pitch_hz: int, seconds: float) -> bytes:
    samples = 8_000 * np.sin(2 * np.pi * pitch_hz * np.arange(round(24_000 * seconds)) / 24_000)
    return bytes(samples.astype("<i2").tobytes())


def test_the_ear_of_the_bench_hears_a_foreign_tenth_of_a_second() -> None:
    assert bench._is_single_tone(tone(600, 0.8) + bytes(9_600), 600)
    assert not bench._is_single_tone(tone(600, 0.8), 750)
    assert not bench._is_single_tone(tone(600, 0.4) + tone(750, 0.1) + tone(600, 0.3), 600)
    assert not bench._is_single_tone(bytes(48_000), 600)
