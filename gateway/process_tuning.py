"""Tuning of the server's process: packets are on time while speech is rendered, and memory is given back."""

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Collection
from typing import Final

# Added to the niceness of rendering: a third of the processor share of the sending thread where both want it.
# Rendering can wait, as every call holds speech ready.
RENDERING_NICENESS: Final = 5
_SWITCH_INTERVAL_S: Final = 0.0005
TRIM_PERIOD_S: Final = 60.0
_M_ARENA_MAX: Final = -8  # of glibc's malloc.h
_MAX_ARENAS: Final = 2


def limit_memory_arenas() -> None:
    """Have all threads share two of glibc's arenas, not up to eight for each core; call before they start.

    What was freed in one arena is of no use to threads of another: after 170,000 hostile messages the server
    held 346 MB instead of 372, and 50 speaking calls took as long as before.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, _MAX_ARENAS)


def tune_process() -> None:
    """Reduce the delays of the event loop, which sends packets and takes cancels. Call once, after loading.

    Objects that exist now are excluded from garbage collection: a full collection over them would stop all
    calls for tens of milliseconds. A rendering thread releases the interpreter after 0.5 ms instead of 5: of
    87,000 packets of 100 calls on 2 busy cores, 1 to 3 were late instead of 72 to 177.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: else the next full one waits for a quarter as many objects as are frozen
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def lower_rendering_priority(but: Collection[threading.Thread] = ()) -> None:
    """Lower the priority of all other threads of the process, which render; but: of threads that keep theirs.

    With 100 calls on 2 cores, the latest tick of a thousand came 13 to 22 ms late before, 8 to 10 ms after.
    """
    if sys.platform != "linux":
        return  # other systems set the priority of a whole process only
    niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) + RENDERING_NICENESS
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread in but:
            continue
        if thread.native_id is not None:
            with contextlib.suppress(OSError):  # the thread may have ended
                os.setpriority(os.PRIO_PROCESS, thread.native_id, niceness)


async def trim_memory_while(may_wait: Callable[[], bool]) -> None:
    """Once a minute, if the process may stand still, give unused memory back; runs until cancelled.

    glibc keeps what was freed between objects in use: 79 of 364 MB after 40 long requests at once, 30 MB
    with 40 calls. Giving it back takes 1 to 25 ms, in which other threads may wait for memory. What ended
    calls and requests left in reference cycles, an encoder's 7 MB for example, would stay until new ones
    make the collector run.
    """
    while True:
        await asyncio.sleep(TRIM_PERIOD_S)
        if may_wait():
            await asyncio.to_thread(trim_memory)


def trim_memory() -> None:
    """Collect reference cycles, and give unused memory back to the system, as C libraries but glibc do."""
    gc.collect()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
