"""The serve bench: its figures, its clients against a gateway of tones, and a run against a real server."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from vivavoce.gateway.cli.bench import commands
from vivavoce.gateway.cli.bench.api_clients import SpeechApi, open_client
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.requests.disconnect import disconnect_figures
from vivavoce.gateway.cli.bench.requests.first_byte import figures_above_native, first_byte_figures
from vivavoce.gateway.cli.bench.requests.open_loop import (
    RequestLoadOptions,
    RequestTimes,
    audible_after_s,
    draw_waits,
    load_figures,
    max_in_flight,
)
from vivavoce.gateway.cli.bench.serve import ServeBenchPart, measure
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.metrics import Metrics


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a gateway with tone voices on a thread of its own; the bench uses a process instead."""
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        ports: dict[str, Any] = {"http_port": 0, "audiosocket_port": 0}
        async with Engine(StandInBackend(), EngineConfig(), Metrics()) as engine:
            gateway = await Gateway.open(make_settings(**ports, agents_default="none"), engine=engine)
            found.append("http://{}:{}".format(*gateway.addresses.http))
            ready.set()
            await asyncio.to_thread(over.wait)
            await gateway.aclose()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    over.set()
    thread.join()


def heard(asked_at: float, *gaps_s: float, ended_at: float = 10.0, failure: str = "") -> RequestTimes:
    return RequestTimes(asked_at, 0.1, 0.12, 2.0, list(gaps_s), ended_at, failure)


def shown(report_figures: object) -> dict[str, float]:
    return {figure.name: figure.value for figure in report_figures}  # type: ignore[attr-defined]


def test_only_gaps_over_60_ms_are_underruns() -> None:
    assert heard(0, 0.01, 0.06).underruns == 0
    assert heard(0, 0.061, 0.5, 0.02).underruns == 2


def test_the_first_audible_sample_is_the_first_above_minus_50_dbfs() -> None:
    samples = np.zeros(SAMPLE_RATE, "<i2")
    samples[12_000:] = 103
    assert audible_after_s(samples.tobytes(), 1.0) is None
    samples[18_000:] = -104
    assert audible_after_s(samples.tobytes(), 1.0) == pytest.approx(1.75)


def test_failures_are_counted_by_kind_and_excluded_from_the_waits() -> None:
    table = shown(load_figures([heard(0), heard(1, 0.2), heard(2, failure="refused (streams)")], took_s=4.0))
    assert table["requests served"] == 2
    assert table["requests not served: refused (streams)"] == 1
    assert table["listeners with an underrun"] == table["underruns"] == 1
    assert table["speech made a second"] == 1.0
    assert table["first byte, p50"] == pytest.approx(100)


def test_without_a_served_request_there_are_no_waits() -> None:
    assert "first byte, p50" not in shown(load_figures([heard(0, failure="ServerUnavailable")], took_s=1.0))


def test_the_peak_counts_requests_in_progress_at_once() -> None:
    assert max_in_flight([heard(0, ended_at=3), heard(1, ended_at=2), heard(2, ended_at=4)]) == 2
    assert max_in_flight([]) == 0


def test_a_plot_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "waits.png"
    draw_waits(
        [heard(0.0), heard(1.0, 0.5), heard(2.0, failure="ServerUnavailable")],
        RequestLoadOptions(1.0, 1, 3),
        file,
    )
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("api", SpeechApi)
def test_first_bytes_and_throughput_are_measured_over_every_api(api: SpeechApi, url: str) -> None:
    all_clients = ((20, 250.0), (50, None)) if api is SpeechApi.NATIVE else ((20, 250.0),)
    figures = asyncio.run(first_byte_figures(api, url, 3, max_clients=all_clients[-1][0]))
    p50, p95, *at_once = figures
    assert 0 < p50.value <= p95.value and p50.at_most in (50.0, 60.0)
    size = len(at_once) // len(all_clients)
    for index, (clients, max_p95_ms) in enumerate(all_clients):
        p50, p95, *speech = at_once[index * size : (index + 1) * size]
        assert p50.name == f"{api}, {clients} clients: first byte, p50"
        assert 0 < p50.value <= p95.value and p95.at_most == max_p95_ms
        assert [figure.value > 0 for figure in speech] == [True] * api.has_pcm


def test_no_more_clients_are_measured_than_the_server_takes(url: str) -> None:
    names = [figure.name for figure in asyncio.run(first_byte_figures(SpeechApi.OPENAI, url, 3, 32))]
    assert [name for name in names if "clients" in name] == [
        *("openai, 20 clients: first byte, p50", "openai, 20 clients: first byte, p95"),
        "openai, 20 clients: speech",
    ]


async def words() -> AsyncIterator[str]:
    for word in "This sentence is read over every way in, and takes as long everywhere. ".split(" "):
        yield f"{word} "


@pytest.mark.parametrize("api", SpeechApi)
def test_an_answer_is_as_long_as_its_speech_over_every_api(api: SpeechApi, url: str) -> None:
    async def seconds_over(api: SpeechApi) -> float:
        async with open_client(api, url) as client:
            return sum([len(piece) async for piece in client.speak(words())]) / api.bytes_per_s

    async def scenario() -> None:
        heard_s = await seconds_over(SpeechApi.NATIVE)
        assert heard_s > 1
        assert await seconds_over(api) == pytest.approx(heard_s, abs=0.1)  # MP3 comes in frames

    asyncio.run(scenario())


@pytest.mark.parametrize("api", ["native", "openai", "dashscope", "ray"])
def test_disconnects_are_timed_until_the_engine_is_idle(api: str, url: str) -> None:
    worst, p50, ahead, settled = asyncio.run(disconnect_figures(SpeechApi(api), url, 2))
    assert 0 < p50.value <= worst.value
    assert worst.at_most == 100.0
    assert 0 < ahead.value < 60
    assert settled.at_most == 100.0


@pytest.mark.parametrize("api", [SpeechApi.OPENAI, SpeechApi.DASHSCOPE])
def test_an_error_of_the_server_ends_the_bench_with_its_message(api: SpeechApi, url: str) -> None:
    async def words() -> AsyncIterator[str]:
        yield ""

    async def speak() -> None:
        async with open_client(api, url) as client:
            async for _ in client.speak(words(), "no-such-voice"):
                pass

    with pytest.raises((BenchFailed, ExceptionGroup), match=r"answered 400|task failed|unhandled"):
        asyncio.run(speak())


def test_every_part_and_api_is_a_choice_on_the_command_line() -> None:
    assert tuple(ServeBenchPart) == commands._SERVE_PARTS
    assert list(SpeechApi) == commands._SERVE_APIS


@pytest.mark.slow
def test_requests_beyond_the_limit_are_counted_as_refused() -> None:
    report: BenchReport = measure(RequestLoadOptions(rate=50.0, max_streams=2, requests=8))
    table = shown(report.figures)
    refused = table.get("native: requests not served: refused (overloaded_streams)", 0)
    assert table["native: requests served"] + refused == 8
    assert refused > 0
    assert table["native: first byte, p50"] < table["native: first audible sample, p50"]
    assert table["native: peak in flight"] >= 3


def test_first_bytes_are_compared_with_the_native_websocket_of_the_same_run() -> None:
    measured = [
        BenchFigure("native, 1 client: first byte, p50", 14.0, "ms"),
        BenchFigure("openai, 1 client: first byte, p50", 16.5, "ms"),
        BenchFigure("pai, 1 client: first byte, p50", 25.0, "ms"),
        BenchFigure("pai, 20 clients: first byte, p50", 90.0, "ms"),
    ]
    above = figures_above_native(measured)
    assert [(figure.name, figure.value, figure.reached) for figure in above] == [
        ("openai: first byte above native, p50", 2.5, True),
        ("pai: first byte above native, p50", 11.0, False),
    ]
    assert figures_above_native(measured[1:]) == []
