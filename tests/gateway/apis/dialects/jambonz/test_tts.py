"""jambonz' API of custom vendors: speech over HTTP, streamed text, barge-in, keys and errors.

The socket's client is simulated: jambonz connects to a vendor only from a call.
"""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.jambonz.dialect import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

BODY = {"language": "en-US", "voice": "tone-330", "type": "text", "text": "One two three."}


class JambonzPeer:
    """What jambonz does: sends text, keeps the audio."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio = b""

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> dict[str, Any]:
        """Return the next message; audio is {"type": "audio"}."""
        message = await self.socket.recv()
        if isinstance(message, bytes):
            self.audio += message
            return {"type": "audio"}
        event: dict[str, Any] = json.loads(message)
        return event

    async def hear_words(self, count: int, sample_rate: int = 8_000) -> None:
        while len(self.audio) / (2 * sample_rate) < count * WORD_S:
            assert (await self.next())["type"] == "audio"


@asynccontextmanager
async def open_socket(
    served: Any,
    query: str = "voice=tone-330&language=en-US&sampleRate=8000",
    headers: dict[str, str] | None = None,
) -> AsyncIterator[JambonzPeer]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}?{query}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield JambonzPeer(socket)


@pytest.mark.parametrize(
    "fields", [{}, {"type": "ssml", "text": "<speak>One <break time='100ms'/> two three.</speak>"}]
)
def test_a_text_is_spoken_as_mp3(run: Any, fields: dict[str, str]) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(PATH, json=BODY | fields)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")
        with av.open(io.BytesIO(answer.content)) as container:
            pcm = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
        assert len(pcm) / 24_000 == pytest.approx(3 * WORD_S + 0.15, abs=0.25)

    run(test)


def test_letters_that_the_voice_cannot_read_are_counted_in_a_header(run: Any) -> None:
    async def test(served: Any) -> None:
        assert "x-unread-characters" not in (await served.client.post(PATH, json=BODY)).headers
        answer = await served.client.post(PATH, json={**BODY, "text": "One 你好世界 two."})
        assert (answer.status_code, answer.headers.get("x-unread-characters")) == (200, "4")

    run(test)


def test_without_a_rate_the_call_has_8_khz(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, "voice=tone-330") as peer:
            assert (await peer.next())["data"]["sample_rate"] == 8_000

    run(test)


def test_text_is_spoken_in_one_turn_after_another_at_the_rate_of_the_call(run: Any) -> None:
    async def test(served: Any) -> None:
        for rate in (8_000, 16_000):
            async with open_socket(served, f"voice=tone-330&sampleRate={rate}") as peer:
                connected = await peer.next()
                assert connected == {
                    "type": "connect", "data": {"sample_rate": rate, "base64_encoding": False},
                }  # fmt: skip
                await peer.send("stream", text="One two,")
                await peer.send("stream", text="three four.")
                await peer.send("flush")
                await peer.hear_words(4, rate)
                await peer.send("keepalive")
                await until(lambda: served.backend.open_slots == 0)
                peer.audio = b""
                await peer.send("stream", text="Five six.")
                await peer.send("flush")
                await peer.hear_words(2, rate)
                pcm = np.frombuffer(peer.audio, "<i2")
                assert pitch_of(pcm, rate) == pytest.approx(330, rel=0.02)

    run(test)


FAULTS: list[tuple[dict[str, str], int]] = [
    ({"voice": "nobody"}, 404),
    ({"text": ""}, 400),
    ({"type": "html"}, 400),
    ({"type": "ssml", "text": "<speak>"}, 400),
    ({"text": "\u4f60\u597d"}, 400),
    ({"text": "x" * MAX_MESSAGE_BYTES}, 413),
]


def test_errors_have_a_status_and_a_text(run: Any) -> None:
    async def test(served: Any) -> None:
        for fields, status in FAULTS:
            answer = await served.client.post(PATH, json=BODY | fields)
            assert answer.status_code == status and answer.json()["error"]

    run(test)


@pytest.mark.parametrize(("query", "status"), [("voice=nobody", 404), ("sampleRate=12345", 400)])
def test_a_wrong_address_is_refused_before_the_socket_opens(run: Any, query: str, status: int) -> None:
    async def test(served: Any) -> None:
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(served, query):
                pass
        assert refused.value.response.status_code == status

    run(test)


def test_a_key_is_needed_where_there_are_keys(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    headers = {"Authorization": f"Bearer {keys.add('client', (Scope.SPEAK,), KeyLimits())}"}

    async def test(served: Any) -> None:
        assert (await served.client.post(PATH, json=BODY)).status_code == 401
        assert (await served.client.post(PATH, json=BODY, headers=headers)).is_success
        with pytest.raises(InvalidStatus):
            async with open_socket(served):
                pass
        async with open_socket(served, headers=headers) as peer:
            assert (await peer.next())["type"] == "connect"

    run(test, access=AccessControl(keys))
