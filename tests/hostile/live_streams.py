"""The healthy peers beside an attack: a phone whose program speaks, and a client of the speech API."""

import asyncio
import json
from collections.abc import Callable
from uuid import uuid4

import httpx
import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from hostile.server import AttackedServer
from vivavoce.adapters.audiosocket.protocol import AudioSocketConnection, AudioSocketRole, CallId

SENTENCE = "The line is open, and nothing else is heard."
_ANSWER_S = 30.0
_MAX_DIFFERENCE = 8  # of samples rendered together with other streams, of 32,768


async def speak_on_a_call(server: AttackedServer, report: Callable[[str], None]) -> int:
    """Speak the sentence on a call until cancelled, and report what is not heard to its end."""
    spoken, call_id = 0, uuid4()
    reader, writer = await asyncio.open_connection(*server.audiosocket)
    listening = asyncio.create_task(_drain(reader))
    try:
        writer.write(AudioSocketConnection(AudioSocketRole.CALLER).send(CallId(call_id)))
        await asyncio.sleep(0.5)
        async with connect(f"ws://{server.url}/v1/calls/{call_id}/socket", proxy=None) as socket:
            while True:
                for message in ({"type": "text", "text": SENTENCE}, {"type": "end"}):
                    await socket.send(json.dumps(message))
                await _await_heard(socket, report)
                spoken += 1
    except asyncio.CancelledError:
        return spoken
    except (OSError, WebSocketException, TimeoutError) as error:
        report(f"the live call ended: {error!r}")
        return spoken
    finally:
        listening.cancel()
        writer.close()


async def _await_heard(socket: object, report: Callable[[str], None]) -> None:
    while True:
        answer = json.loads(await asyncio.wait_for(socket.recv(), _ANSWER_S))  # type: ignore[attr-defined]
        if answer["type"] == "error":
            report(f"the live call: {answer}")
        if answer["type"] in ("speech_finished", "error"):
            if answer.get("heard", SENTENCE).strip() != SENTENCE:
                report(f"the live call heard {answer['heard']!r}")
            return


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


async def speak_over_http(client: httpx.AsyncClient, report: Callable[[str], None]) -> int:
    """Request the sentence until cancelled, and report audio that differs from the first one."""
    body = {"model": "tts-1", "voice": "alloy", "input": SENTENCE, "response_format": "pcm"}
    reference: np.ndarray | None = None
    answered = 0
    try:
        while True:
            answer = await client.post("/v1/audio/speech", json=body)
            if answer.status_code == 503:  # the server is busy
                await asyncio.sleep(0.2)
                continue
            samples = np.frombuffer(answer.content, "<i2").astype(int)
            reference = samples if reference is None else reference
            if answer.status_code != 200 or len(samples) != len(reference):
                report(f"the live stream: {answer.status_code}, {len(samples)} samples, not {len(reference)}")
            elif np.abs(samples - reference).max() > _MAX_DIFFERENCE:
                report("the live stream: other audio than the first time")
            answered += 1
            await asyncio.sleep(0.5)
    except asyncio.CancelledError:
        return answered
    except httpx.HTTPError as error:
        report(f"the live stream: {error!r}")
        return answered
