"""Memory that the server does not use is given back to the system while no call is up."""

import asyncio
import subprocess
import sys
from contextlib import aclosing

import pytest

from shared.calls.call_server import Phone
from shared.event_loop import until
from shared.standin_backend import StandInBackend
from vivavoce.gateway import process_tuning
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.settings import Settings
from vivavoce.tts_engine.engine import Engine

FREE_BETWEEN_OBJECTS = """
import asyncio
from shared.process_footprint import ProcessFootprint
from vivavoce.gateway.process_tuning import trim_memory

async def main():
    pieces = [bytes(4_000) for _ in range(50_000)]  # 200 MB
    del pieces[:-1]  # the last one keeps the end of the heap
    held = ProcessFootprint.now().resident_mb
    trim_memory()
    print(held - ProcessFootprint.now().resident_mb)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREE_BETWEEN_OBJECTS], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 150


@pytest.mark.parametrize("media_processes", [0, 1])
def test_memory_is_trimmed_unless_this_process_sends_packets(
    media_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[None] = []
    monkeypatch.setattr(process_tuning, "TRIM_PERIOD_S", 0.01)
    monkeypatch.setattr(process_tuning, "trim_memory", lambda: trims.append(None))

    settings = Settings(http_port=0, audiosocket_port=0, agent="none", media_processes=media_processes)

    async def scenario() -> None:
        async with (
            await Engine.open(backend=StandInBackend()) as engine,
            aclosing(await Gateway.open(settings, engine=engine)) as gateway,
        ):
            await until(lambda: trims)
            phone = Phone(*await asyncio.open_connection(*gateway.addresses.audiosocket))
            await until(lambda: len(gateway.call_registry))
            await asyncio.sleep(0.05)  # a trim that had begun ends
            trims.clear()
            await asyncio.sleep(0.2)
            assert bool(trims) == bool(media_processes)
            await phone.aclose()
            await until(lambda: trims)

    asyncio.run(asyncio.wait_for(scenario(), 30))
