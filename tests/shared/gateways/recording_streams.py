"""Native streams with recordings for tests: a client, and a server of recordings."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from shared.audio.recordings import as_data_url, recording
from shared.audio.tones import pitch_of
from shared.event_loop import until
from vivavoce.gateway.apis.dialects.native_stream.socket_api import PATH

BUNDLED_VOICES = 2  # of the backend
REFERENCE = {"ref_audio": as_data_url(recording()), "ref_text": "What is said."}


class StreamClient:
    """A client of one connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio = b""

    async def send(self, message_type: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": message_type, **fields}))

    async def configure(self, **fields: Any) -> None:
        await self.send("session.config", **{"response_format": "pcm", **fields})

    async def until(self, message_type: str) -> dict[str, Any]:
        """Receive up to the first message of that type; audio before it is stored."""
        while True:
            data = await self.socket.recv()
            if isinstance(data, bytes):
                self.audio += data
            elif (event := json.loads(data))["type"] == message_type:
                return dict(event)

    async def say(self, text: str = "One two three.") -> None:
        await self.send("input.text", text=text)
        await self.send("input.done")

    async def pitch(self) -> float:
        """Receive the next utterance; returns its pitch, Hz."""
        self.audio = b""
        assert (await self.until("session.done"))["total_sentences"] == 1
        return pitch_of(self.audio)


@asynccontextmanager
async def open_stream(served: Any, headers: dict[str, str] | None = None) -> AsyncIterator[StreamClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield StreamClient(socket)


async def wait_voices_removed(served: Any) -> None:
    await until(lambda: len(served.backend.voices) == BUNDLED_VOICES)


class RecordingHost:
    """An HTTP server that answers with a recording once ``released`` is set, or first with an error."""

    def __init__(self, *, fails_once: bool = False) -> None:
        self.url = ""
        self.requests = 0
        self.released = asyncio.Event()
        self.disconnected = asyncio.Event()  # set by a client that leaves before its answer
        self._fails_once = fails_once

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["RecordingHost"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.wav"
            try:
                yield self
            finally:
                self.released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        await reader.readuntil(b"\r\n\r\n")
        disconnect, released = asyncio.create_task(reader.read(1)), asyncio.create_task(self.released.wait())
        await asyncio.wait({disconnect, released}, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done():
            self.disconnected.set()
        sound, status = recording(), "500" if self._fails_once else "200"
        self._fails_once = False
        writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: {len(sound)}\r\n\r\n".encode() + sound)
        writer.close()
        for task in (disconnect, released):
            task.cancel()
        await asyncio.gather(disconnect, released, return_exceptions=True)


LOCAL = ("127.0.0.1",)
