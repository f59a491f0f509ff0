"""PAI's WebSocket, ``/api-ws/v1/audio/speech``: DashScope's tasks, and audio in JSON.

    frames -> frames.PaiFrameCodec -> dashscope.task_connection -> apis.speech

The key is checked at the handshake and again for each task. Source: see ``models``.
"""

import functools
import time
from typing import Final
from uuid import uuid4

from fastapi import WebSocket
from starlette.responses import Response

from .....adapters.audio.format_kind import AudioLayout
from .....adapters.dashscope.connection import DEFAULT_TIMEOUTS, DashScopeTimeouts
from .....adapters.dashscope.events import RunTask
from .....tts_engine.chunk import SAMPLE_RATE
from ....access.access_control import Grant
from ....web.openapi.operations import WebSocketOperation
from ...kits.dashscope.task_connection import SpeechTask, TaskConnection
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SpeechServer
from .frames import PaiClientFrame, PaiFrameCodec, PaiServerFrame, encode_audio
from .models import PaiMetrics, PaiParameters
from .request_mapping import PAI_ERRORS, make_pai_options

PATH: Final = "/api-ws/v1/audio/speech"
PAI_SOCKET_OPERATION: Final = WebSocketOperation(
    PATH, "PAI's tasks; audio comes in base64.", PaiClientFrame, PaiServerFrame
)
_API: Final = "pai-socket"  # in the log and the metrics


class PaiSocketApi(SpeechSocketApi):
    """All PAI sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS) -> None:
        super().__init__(server)
        self.timeouts = timeouts

    def handlers(self) -> SocketHandlers:
        return {PATH: functools.partial(self.serve, self._connection, _refusal)}

    def _connection(self, socket: WebSocket) -> "_PaiSocketConnection":
        self.server.authorize(socket.headers)
        return _PaiSocketConnection(self, socket)


def _refusal(error: Exception) -> Response:
    return PAI_ERRORS.response(error, uuid4().hex)


class _PaiTask(SpeechTask[PaiParameters]):
    def __init__(self, run_task: RunTask[PaiParameters], grant: Grant) -> None:
        super().__init__(run_task, grant)
        self.begun_at = self.piece_at = time.monotonic()

    async def push(self, text: str) -> None:
        """Speak more text; raises RateLimited or BadText."""
        self.grant.charge_characters(len(text))
        self.record.count_text(len(text))
        self.stream.push_text(text)
        self.characters += len(text)

    def measure(self, seconds: float) -> PaiMetrics:
        """Return the times of a piece of that length."""
        now = time.monotonic()
        metrics = PaiMetrics(
            speech_len=seconds,
            server_cost_time=round(now - self.begun_at, 4),
            generate_time=round(now - self.piece_at, 4),
        )
        self.piece_at = now
        return metrics


class _PaiSocketConnection(TaskConnection[PaiParameters, _PaiTask]):
    """One accepted socket."""

    def __init__(self, api: PaiSocketApi, socket: WebSocket) -> None:
        super().__init__(socket, PaiFrameCodec(), api.timeouts)
        self._speech = api.server

    def make_task(self, run_task: RunTask[PaiParameters]) -> _PaiTask:
        return _PaiTask(run_task, self._speech.authorize_request(self.socket.headers))

    async def render(self, task: _PaiTask) -> None:
        server, run, grant = self._speech, task.run_task, task.grant
        with server.log.track(_API, grant, run.task_id) as task.record, grant.stream():
            options = make_pai_options(run.parameters, run.model, self._speech, grant, AudioLayout.STREAM)
            task.record.voice = options.voice or "-"
            bytes_per_s = options.audio.bytes_per_second
            async with server.open_stream(options, grant) as task.stream:
                await self.announce_start(task)
                async for chunk in task.stream:
                    if chunk.audio:  # else the encoder withholds it
                        write = functools.partial(self._send_audio, task, chunk)
                        await self.sender.send(chunk.audio, bytes_per_s, write)
                    task.record.count_audio((chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)

    async def _send_audio(self, task: _PaiTask, chunk: EncodedChunk, audio: bytes) -> None:
        """Write a piece, or the part of one that a slow client may have now."""
        seconds = (chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE * len(audio) / len(chunk.audio)
        await self.send_text(encode_audio(task.run_task.task_id, audio, task.measure(seconds)))
