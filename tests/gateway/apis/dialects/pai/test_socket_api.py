"""PAI's WebSocket: the frames of its published client, several tasks on a socket, and errors."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until

PATH = "/api-ws/v1/audio/speech"
PARAMETERS = {"mode": "fast_replication", "reference_audio_id": "tone-330", "output_format": "pcm"}


class PaiClient:
    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.audio = b""
        self.metrics: list[dict[str, float]] = []

    async def send(self, action: str, task_id: str = "a", **payload: Any) -> None:
        header = {"action": action, "task_id": task_id, "streaming": "duplex"}
        await self.socket.send(json.dumps({"header": header, "payload": {"input": {}, **payload}}))

    async def run(self, task_id: str = "a", **parameters: Any) -> None:
        parameters = {**PARAMETERS, **parameters}
        await self.send("run-task", task_id, model="cosyvoice-v2", parameters=parameters)

    async def until(self, event: str) -> dict[str, Any]:
        while True:
            message = await self.socket.recv()
            frame: dict[str, Any] = json.loads(message)  # the published client parses every message
            if frame["header"]["event"] == "result-generated":
                self.audio += base64.b64decode(frame["payload"]["output"]["audio"]["data"])
                self.metrics.append(frame["payload"]["metrics"])
            if frame["header"]["event"] == event:
                return frame


@asynccontextmanager
async def open_socket(served: Any, headers: dict[str, str] | None = None) -> AsyncIterator[PaiClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield PaiClient(socket)


def test_tasks_follow_each_other_on_a_socket(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for task_id, voice, pitch in (("a", "tone-330", 330), ("b", "tone-440", 440)):
                client.audio = b""
                client.metrics.clear()
                await client.run(task_id, reference_audio_id=voice)
                await client.until("task-started")
                for text in ("One two", " three.", " Four."):
                    await client.send("continue-task", task_id, input={"text": text})
                await client.send("finish-task", task_id)
                done = await client.until("task-finished")
                assert done["payload"]["usage"]["characters"] == 20
                assert len(client.audio) >= 4 * WORD_S * 48_000
                assert pitch_of(client.audio) == pytest.approx(pitch, rel=0.02)
                assert all(metrics["speech_len"] > 0 for metrics in client.metrics)
                assert sum(one["speech_len"] for one in client.metrics) == pytest.approx(
                    len(client.audio) / 48_000
                )
                assert served.backend.open_slots == 0

    run_every_api(test)


def test_a_task_without_text_has_one_result(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.run()
            await client.send("finish-task")
            await client.until("task-finished")
            assert len(client.metrics) >= 1 and client.metrics[0]["speech_len"] > 0

    run_every_api(test)


def test_a_flush_speaks_and_a_cancel_ends_the_task(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.run()
            await client.send("continue-task", input={"text": "One two"})
            await client.send("continue-task", input={"flush": True})
            await client.until("result-generated")
            await client.send("continue-task", input={"text": "Three four. " * 100})
            await client.send("finish-task", input={"directive": "cancel"})
            await client.until("task-finished")
            await until(lambda: served.backend.open_slots == 0)

    run_every_api(test, step_s=0.005)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"reference_audio_id": "nobody"}, "nobody"),
        ({"mode": "natural_language_replication"}, "instruct"),
        ({"mode": "sing"}, "mode"),
        ({"speed": 9}, "speed"),
        ({"top_p": 2}, "top_p"),
    ],
)
def test_a_wrong_task_fails_and_the_next_one_is_spoken(
    run_every_api: Any, parameters: dict[str, Any], word: str
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.run("a", **parameters)
            failed = await client.until("task-failed")
            assert failed["header"]["error_code"] == "InvalidParameter"
            assert word in failed["header"]["error_message"]
            await client.socket.send("no JSON")
            await client.until("task-failed")
            await client.run("b")
            await client.send("continue-task", "b", input={"text": "One."})
            await client.send("finish-task", "b")
            await client.until("task-finished")
            assert client.audio

    run_every_api(test)
