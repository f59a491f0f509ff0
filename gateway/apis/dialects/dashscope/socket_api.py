"""DashScope's WebSocket API, ``/api-ws/v1/inference``, for DashScope's SDKs with a changed base URL.

    frames -> adapters.dashscope.connection -> task_connection -> apis.speech -> frames and audio

The key is checked at the handshake (HTTP 401) and again for each task.
"""

import functools
from uuid import uuid4

from fastapi import WebSocket
from fastapi.responses import JSONResponse

from .....adapters.dashscope.connection import DEFAULT_TIMEOUTS, DashScopeTimeouts
from .....adapters.dashscope.events import RunTask, SentenceSynthesis
from .....adapters.dashscope.sentence_events import SentenceEventBuilder, billed_characters
from .....adapters.ssml.document import plain_document
from .....adapters.ssml.input import parse_ssml_in_slices
from .....tts_engine.chunk import SAMPLE_RATE
from ....access.access_control import Grant
from ....sliced_inputs import run_in_slices
from ....web.openapi.operations import WebSocketOperation
from ...kits.dashscope.errors import DASHSCOPE_ERRORS
from ...kits.dashscope.frames import ServerFrame
from ...kits.dashscope.task_connection import SpeechTask, TaskConnection
from ...kits.service_names import VoiceResolver
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SpeechServer
from .client_frames import ClientFrame, DashScopeFrameCodec
from .parameters import SpeechParameters
from .request_mapping import (
    DASHSCOPE_NAMES,
    make_synthesis_options,
    voice_of_dashscope_model,
)

PATH = "/api-ws/v1/inference"
DASHSCOPE_SOCKET_OPERATION = WebSocketOperation(
    PATH, "DashScope's tasks; audio comes in binary messages.", ClientFrame, ServerFrame
)
_API = "dashscope"  # in the log and the metrics


class DashScopeSocketApi(SpeechSocketApi):
    """All DashScope sockets of a server. Belongs to its event loop."""

    def __init__(
        self,
        server: SpeechServer,
        voices: VoiceResolver,
        timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        super().__init__(server)
        self.voices = voices
        self.timeouts = timeouts

    def handlers(self) -> SocketHandlers:
        serve = functools.partial(self.serve, self._connection, _refusal)
        return {PATH: serve, f"{PATH}/": serve}

    def _connection(self, socket: WebSocket) -> "_DashScopeSocketConnection":
        self.server.authorize(socket.headers)
        return _DashScopeSocketConnection(self, socket)


def _refusal(error: Exception) -> JSONResponse:
    body = DASHSCOPE_ERRORS.body(error, str(uuid4()))
    # The Java SDK stops reconnecting at "401 Unauthorized" only.
    return JSONResponse(body.model_dump(), DASHSCOPE_ERRORS.describe(error).status)


class _DashScopeTask(SpeechTask[SpeechParameters]):
    def __init__(self, run_task: RunTask[SpeechParameters], grant: Grant) -> None:
        super().__init__(run_task, grant)
        self.bytes_per_s = 0
        self.sentences = SentenceEventBuilder(
            run_task.task_id, include_words=run_task.parameters.word_timestamp_enabled
        )

    async def push(self, text: str) -> None:
        """Speak more text; raise InvalidDashScopeField, BadSsml, RateLimited or BadText."""
        spoken = plain_document(text)
        if self.run_task.parameters.is_ssml(text):
            spoken = await run_in_slices(parse_ssml_in_slices(text))
        characters = billed_characters(spoken.text)
        self.grant.charge_characters(characters)
        self.stream.push_document(spoken)
        self.characters += characters
        self.record.count_text(len(spoken.text))


class _DashScopeSocketConnection(TaskConnection[SpeechParameters, _DashScopeTask]):
    """One accepted socket."""

    def __init__(self, api: DashScopeSocketApi, socket: WebSocket) -> None:
        super().__init__(socket, DashScopeFrameCodec(), api.timeouts)
        self._server = api.server
        self._voices = api.voices

    def make_task(self, run_task: RunTask[SpeechParameters]) -> _DashScopeTask:
        grant = self._server.authorize_request(self.socket.headers)
        voice_of_dashscope_model(self._server.models, run_task.model)
        return _DashScopeTask(run_task, grant)

    async def render(self, task: _DashScopeTask) -> None:
        server, run, grant = self._server, task.run_task, task.grant
        with server.log.track(_API, grant, run.task_id) as task.record, grant.stream():
            default = voice_of_dashscope_model(server.models, run.model)
            voice = DASHSCOPE_NAMES.resolve_voice(self._voices, run.parameters.voice, grant, default)
            task.record.voice = voice
            options = make_synthesis_options(run.parameters, voice)
            task.bytes_per_s = options.audio.bytes_per_second
            async with server.open_stream(options, grant) as task.stream:
                await self.announce_start(task)
                async for chunk in task.stream:
                    await self._send_audio(task, chunk)
        for event in task.sentences.events_at_end(task.stream.text):
            await self.send_event(event)

    async def _send_audio(self, task: _DashScopeTask, chunk: EncodedChunk) -> None:
        start, stop = chunk.samples
        events = task.sentences.events_before_audio(
            task.stream.text, chunk.text, chunk.written_words, has_audio=bool(chunk.audio)
        )
        for event in events:
            if isinstance(event, SentenceSynthesis):
                write = functools.partial(self.send_event, event)
                await self.sender.send(chunk.audio, task.bytes_per_s, write)
            else:
                await self.send_event(event)
        task.record.count_audio((stop - start) / SAMPLE_RATE)
