"""The API bench's part for DashScope: pooled sockets as its SDK keeps them, without the SDK's 100 ms poll.

    run-task ->  <- task-started   continue-task, finish-task ->   <- the first binary frame

is timed from before the first arrow to the last one, on sockets that were open before. The servers are
processes of their own; the one with tones for voices is there to tell whose speech arrives at whom.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from .engine_watch import EngineWatch
from .engine_watch import open_connection as open_metrics_connection
from .report import BenchFigure

POOL_SIZE: Final = 20
TASK_COUNT: Final = 100
SENTENCE: Final = "Thank you for calling, how can I help you today?"
_TASK_TIMEOUT_S: Final = 60.0
_WARM_UP_TASKS: Final = 3


@dataclass(frozen=True, slots=True)
class _TaskResult:
    """One task. first_ms: from before run-task to the first audio."""

    first_ms: float
    pcm: bytes
    failed: bool


def dashscope_figures(url: str, requests: int) -> list[BenchFigure]:
    """All of this API's figures; ``url``: a server of the packaged voice."""
    address = url.removeprefix("http://")
    return [
        *asyncio.run(_first_byte_figures(address, requests)),
        *asyncio.run(_throughput_figures(address)),
        *asyncio.run(_disconnect_figures(address, min(20, requests))),
    ]


async def _first_byte_figures(address: str, requests: int) -> list[BenchFigure]:
    async with open_pool(address, 1) as (socket,):
        alone = [await _run_task(socket, SENTENCE) for _ in range(requests + _WARM_UP_TASKS)]
    async with open_pool(address, POOL_SIZE) as sockets:
        tasks_per_socket = max(3, requests // 10)
        together = await asyncio.gather(
            *(run_tasks(socket, SENTENCE, tasks_per_socket) for socket in sockets)
        )
    one = [heard.first_ms for heard in alone[_WARM_UP_TASKS:]]
    many = [heard.first_ms for tasks in together for heard in tasks]
    return [
        BenchFigure("DashScope pooled, 1 client: first byte, p50", _percentile(one, 50), "ms", at_most=60.0),
        BenchFigure("DashScope pooled, 1 client: first byte, p95", _percentile(one, 95), "ms"),
        BenchFigure("DashScope pooled, 20 clients: first byte, p50", _percentile(many, 50), "ms"),
        BenchFigure(
            "DashScope pooled, 20 clients: first byte, p95", _percentile(many, 95), "ms", at_most=250.0
        ),
    ]


async def _throughput_figures(address: str) -> list[BenchFigure]:
    """100 tasks over 20 sockets, the packaged voice: how much speech a second."""
    async with open_pool(address, POOL_SIZE) as sockets:
        started = time.perf_counter()
        heard = await asyncio.gather(
            *(run_tasks(socket, SENTENCE, TASK_COUNT // POOL_SIZE) for socket in sockets)
        )
        took_s = time.perf_counter() - started
    tasks = [task for some in heard for task in some]
    speech_s = sum(len(task.pcm) for task in tasks) / 48_000
    return [
        BenchFigure(
            "DashScope, 100 tasks over 20 sockets: failed", sum(task.failed for task in tasks), "", at_most=0
        ),
        BenchFigure("DashScope, 100 tasks over 20 sockets: speech", speech_s / took_s, "s/s"),
    ]


async def _disconnect_figures(address: str, clients: int) -> list[BenchFigure]:
    """Clients that vanish, or stop reading, while they are spoken to: how long the engine works on."""
    free_ms = []
    for _ in range(clients):
        async with _speaking_connection(address) as (engine, socket):
            aborted_at = time.perf_counter()
            socket.transport.abort()
            free_ms.append(await asyncio.to_thread(engine.idle_after_ms, aborted_at))
    async with _speaking_connection(address) as (engine, socket):
        socket.transport.pause_reading()
        ahead_s, settled_ms = await asyncio.to_thread(engine.rendered_until_settled, time.perf_counter())
        socket.transport.abort()
    return [
        BenchFigure("DashScope, a client vanishes: engine free, worst", max(free_ms), "ms", at_most=100.0),
        BenchFigure("DashScope, a client stops reading: speech rendered for it", ahead_s, "s"),
        BenchFigure(
            "DashScope, a client stops reading: rendering ends after", settled_ms, "ms", at_most=100.0
        ),
    ]


@contextlib.asynccontextmanager
async def _speaking_connection(address: str) -> AsyncIterator[tuple[EngineWatch, ClientConnection]]:
    """A client that has its first audio of a long text, and the engine that speaks to it."""
    with open_metrics_connection(f"http://{address}") as watching:
        engine = await asyncio.to_thread(EngineWatch, watching)
        async with open_pool(address, 1) as (socket,):
            await socket.send(_run_task_message("leaving", "longanyang", {"text": f"{SENTENCE} " * 50}))
            while not isinstance(await socket.recv(), bytes):
                pass
            yield engine, socket


# A client


@contextlib.asynccontextmanager
async def open_pool(address: str, size: int, key: str = "") -> AsyncIterator[list[ClientConnection]]:
    """Sockets that are open and idle."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                connect(
                    f"ws://{address}/api-ws/v1/inference",
                    additional_headers=headers,
                    compression=None,
                    proxy=None,
                    max_queue=None,
                )
            )
            for _ in range(size)
        ]


async def run_tasks(
    socket: ClientConnection, text: str, count: int, voice: str = "longanyang"
) -> Sequence[_TaskResult]:
    return [await _run_task(socket, text, voice) for _ in range(count)]


async def _run_task(socket: ClientConnection, text: str, voice: str = "longanyang") -> _TaskResult:
    task_id, first_ms, pcm = uuid4().hex, 0.0, bytearray()
    started = time.perf_counter()
    async with asyncio.timeout(_TASK_TIMEOUT_S):
        await socket.send(_run_task_message(task_id, voice, {}))
        async for frame in socket:
            if isinstance(frame, bytes):
                first_ms = first_ms or 1_000 * (time.perf_counter() - started)
                pcm += frame
                continue
            header = json.loads(frame)["header"]
            assert header["task_id"] == task_id, "an event of another task"
            match header["event"]:
                case "task-started":
                    await socket.send(_message("continue-task", task_id, {"text": text}))
                    await socket.send(_message("finish-task", task_id, {}))
                case "task-finished" | "task-failed" as event:
                    return _TaskResult(first_ms, bytes(pcm), event == "task-failed")
    return _TaskResult(first_ms, bytes(pcm), True)


def _run_task_message(task_id: str, voice: str, input_fields: dict[str, str]) -> str:
    parameters = {"voice": voice, "format": "pcm", "sample_rate": 24_000}
    return _message("run-task", task_id, input_fields, model="cosyvoice-v3-flash", parameters=parameters)


def _message(action: str, task_id: str, input_fields: dict[str, str], **payload: object) -> str:
    header = {"action": action, "task_id": task_id, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": input_fields, **payload}})


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


# A server
