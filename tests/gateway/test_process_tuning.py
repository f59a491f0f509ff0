"""Memory that the server does not use is given back to the system while no call is up."""

import asyncio
import gc
import subprocess
import sys
import weakref
from contextlib import aclosing

import pytest

from shared.calls.call_server import Phone
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from shared.gateways.made_settings import make_settings
from vivavoce.gateway import process_tuning
from vivavoce.gateway.process_tuning import trim_memory
from vivavoce.gateway.serve import Gateway
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

FULL_COLLECTIONS_AFTER_LOADING = """
import gc
from vivavoce.gateway.process_tuning import tune_process

loaded = [[] for _ in range(2_000_000)]
tune_process()
before = gc.get_stats()[2]["collections"]
made = [[] for _ in range(300_000)]  # Python 3.13 waits for 264,000
print(gc.get_stats()[2]["collections"] - before)
"""

ARENAS_OF_THREADS = """
import ctypes, re, sys, tempfile, threading
from vivavoce.gateway.process_tuning import limit_memory_arenas

if "limit" in sys.argv:
    limit_memory_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
together = threading.Barrier(8)

def allocate():
    together.wait()
    libc.malloc(10_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.TemporaryFile() as file:
    libc.fdopen.restype, libc.fflush.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    stream = libc.fdopen(file.fileno(), b"w")
    libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.malloc_info(0, stream)
    libc.fflush(stream)
    file.seek(0)
    print(len(re.findall(b"<heap nr", file.read())))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_threads_share_two_arenas_of_the_allocator() -> None:
    arenas = [
        int(subprocess.check_output([sys.executable, "-c", ARENAS_OF_THREADS, limit]))
        for limit in ("", "limit")
    ]
    assert arenas[0] > 2 and arenas[1] <= 2


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREE_BETWEEN_OBJECTS], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 150


def test_full_collections_do_not_wait_for_as_many_objects_as_were_loaded() -> None:
    command = [sys.executable, "-c", FULL_COLLECTIONS_AFTER_LOADING]
    assert int(subprocess.check_output(command)) > 0


def test_reference_cycles_are_collected() -> None:
    class Ended:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        ended = weakref.ref(Ended())
        assert ended() is not None
        trim_memory()
        assert ended() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("media_processes", [0, 1], indirect=True)
def test_memory_is_trimmed_unless_this_process_sends_packets(
    media_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[None] = []
    monkeypatch.setattr(process_tuning, "TRIM_PERIOD_S", 0.01)
    monkeypatch.setattr(process_tuning, "trim_memory", lambda: trims.append(None))

    settings = make_settings(http_port=0, audiosocket_port=0, agents_default="none")

    async def scenario() -> None:
        async with (
            await Engine.open(backend=StandInBackend()) as engine,
            aclosing(await Gateway.open(settings, engine=engine)) as gateway,
        ):
            await until(lambda: trims)
            phone = Phone(*await asyncio.open_connection(*gateway.addresses.ways_in["audiosocket"]))
            await until(lambda: len(gateway.calls.registry))
            await asyncio.sleep(0.05)  # a trim that had begun ends
            trims.clear()
            await asyncio.sleep(0.2)
            assert bool(trims) == bool(media_processes)
            await phone.aclose()
            await until(lambda: trims)

    asyncio.run(asyncio.wait_for(scenario(), 30))
