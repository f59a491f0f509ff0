"""The API bench's arithmetic, asked of a gateway over tones."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shared.standin_backend import StandInBackend
from vivavoce.gateway.cli.bench import commands, openai_api
from vivavoce.gateway.cli.bench.engine_watch import open_connection
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.settings import Settings
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.metrics import Metrics


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway on a thread of its own, as the bench has it in a process of its own."""
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        ports: dict[str, Any] = {"http_port": 0, "audiosocket_port": 0}
        async with Engine(StandInBackend(), EngineConfig(), Metrics()) as engine:
            gateway = await Gateway.open(Settings(**ports, agent="none"), engine=engine)
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


def test_the_first_byte_is_timed_over_one_connection(url: str) -> None:
    p50, p95 = openai_api.openai_figures(url, 3)
    assert 0 < p50.value <= p95.value
    assert (p50.unit, p50.at_most) == ("ms", 50.0)


def test_leaving_is_timed_until_the_engine_is_free(url: str) -> None:
    worst, p50, ahead, settled = openai_api.disconnect_figures(url, 2)
    assert 0 < p50.value <= worst.value
    assert worst.at_most == 100.0
    assert 0 < ahead.value < 60
    assert settled.at_most == 100.0


def test_an_answer_that_is_an_error_ends_the_bench_with_its_sentence(url: str) -> None:
    with (
        open_connection(url) as connection,
        pytest.raises(openai_api.BenchFailed, match=r"answered 400: .*is empty"),
    ):
        openai_api._request_speech(connection, "")


def test_every_part_has_a_measure_and_a_choice_on_the_command_line() -> None:
    assert set(openai_api.FIGURES_BY_PART) == set(openai_api.ApiBenchPart)
    assert tuple(openai_api.ApiBenchPart) == commands._API_PARTS
