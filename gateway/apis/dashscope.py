"""DashScope's WebSocket, ``/api-ws/v1/inference``: speech for its SDKs, with the base URL changed.

    frames -> adapters.dashscope.Connection -> one task at a time -> speech.Utterance -> frames and audio

One coroutine reads a socket, so a client that vanishes is noticed at once; another speaks while a task is
open. An idle socket has the first alone. The slot of a task is given back before its end is told, as a pooled
client begins the next one within a millisecond. The key is looked at when the socket opens (HTTP 401), and
again with each task, as it may be revoked meanwhile.
"""

import asyncio
import functools
import logging
from typing import assert_never
from uuid import uuid4

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from ...adapters.dashscope import (
    USUAL_PATIENCE,
    AudioComing,
    CancelTask,
    Connection,
    Event,
    FinishTask,
    FlushTask,
    Idle,
    Patience,
    ProtocolError,
    RunTask,
    ServerEvent,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TextPushed,
)
from ...adapters.dashscope_parameters import charged_characters
from ...adapters.dashscope_sentences import Sentences
from ...adapters.ssml import read_ssml
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.engine import Engine
from ...tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ..access.access import Access, Grant
from ..access.keys import Scope
from ..backpressure import Reader
from .dashscope_words import Refusal, Voices, check_model, order_of, refusal_of, resolve_voice
from .peer_socket import CLOSE_GOING_AWAY, CLOSE_NORMALLY, CLOSE_TOO_SLOW, SEND_WITHIN_S, close, deny, is_up
from .request_log import RequestLog, RequestRecord
from .speech import Encoded, Utterance, open_utterance

logger = logging.getLogger(__name__)

PATH = "/api-ws/v1/inference"
_API = "dashscope"


class DashScopeSockets:
    """Every DashScope socket of a server; belongs to its event loop."""

    def __init__(
        self,
        engine: Engine,
        access: Access,
        voices: Voices,
        log: RequestLog,
        patience: Patience = USUAL_PATIENCE,
    ) -> None:
        self.engine = engine
        self.access = access
        self.voices = voices
        self.log = log
        self.patience = patience
        self._sessions: set[_Session] = set()
        self._draining = False

    def __len__(self) -> int:
        return len(self._sessions)

    def routes(self) -> APIRouter:
        """The socket's route, with and without a slash at its end."""
        router = APIRouter()

        @router.websocket(PATH)
        @router.websocket(PATH + "/")
        async def inference(socket: WebSocket) -> None:
            await self._serve(socket)

        return router

    async def finish(self, within_s: float) -> None:
        """Take no new tasks, let open ones end, at most ``within_s``; close every socket with 1001."""
        self._draining = True
        closing = [asyncio.create_task(session.go_away(within_s)) for session in tuple(self._sessions)]
        await asyncio.gather(*closing)

    async def aclose(self) -> None:
        """End every task and close every socket."""
        await self.finish(0.0)

    async def _serve(self, socket: WebSocket) -> None:
        refusal = self._refusal(socket)
        if refusal is not None:
            body = {"code": refusal.code, "message": refusal.message, "request_id": str(uuid4())}
            # The Java SDK ends its tries at "401 Unauthorized" only.
            await deny(socket, JSONResponse(body, refusal.status))
            return
        await socket.accept()
        session = _Session(self, socket)
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)

    def _refusal(self, socket: WebSocket) -> Refusal | None:
        if self._draining:
            return refusal_of(_shutting_down())
        try:
            self.access.grant(socket.headers).require(Scope.SPEAK)
        except BadRequest as error:
            return refusal_of(error)
        return None


class _Speech:
    # A task under way: what the reader of the socket and the speaker of the task share.

    def __init__(self, run: RunTask, grant: Grant) -> None:
        self.run = run
        self.grant = grant
        self.characters = 0
        self.bytes_per_s = 0
        self.sentences = Sentences(run.task_id, with_words=run.parameters.with_words)
        self.utterance: Utterance
        self.record: RequestRecord
        self.opened = asyncio.Event()
        self.speaking: asyncio.Task[None]

    def push(self, text: str, *, in_ssml: bool) -> None:
        """Speak more text; raises BadSsml, RateLimited, BadText."""
        if in_ssml:
            spoken = read_ssml(text)
            text = spoken.text
            self.utterance.say(spoken.manner)
        characters = charged_characters(text)
        self.grant.charge_characters(characters)
        self.utterance.push_text(text)
        self.characters += characters
        self.record.text(len(text))


class _Session:
    """One socket, from its acceptance to its end."""

    def __init__(self, house: DashScopeSockets, socket: WebSocket) -> None:
        self._house = house
        self._socket = socket
        self._reader = Reader.of(socket.scope)
        self._loop = asyncio.get_running_loop()
        self._core = Connection(self._loop.time(), house.patience)
        self._speech: _Speech | None = None
        self._waiting: asyncio.Timeout | None = None
        self._writing = asyncio.Lock()
        self._going_away = False

    async def run(self) -> None:
        """Serve until the peer is gone or the socket is closed."""
        try:
            while is_up(self._socket):
                await self._take(await self._next_frame())
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            await close(self._socket, CLOSE_TOO_SLOW)
        finally:
            await self._stop_speaking()

    async def go_away(self, within_s: float) -> None:
        """Let the open task end, at most ``within_s``, then close with 1001."""
        self._going_away = True
        if self._speech is not None:
            await asyncio.wait({self._speech.speaking}, timeout=within_s)
        await close(self._socket, CLOSE_GOING_AWAY)
        await self._stop_speaking()

    # Reading

    async def _next_frame(self) -> str | bytes | None:
        """The next frame, or None when the core's deadline has come; raises WebSocketDisconnect."""
        try:
            async with asyncio.timeout_at(self._core.deadline) as self._waiting:
                message = await self._socket.receive()
        except TimeoutError:
            return None
        finally:
            self._waiting = None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes") or b""

    async def _take(self, frame: str | bytes | None) -> None:
        if frame is None:
            self._core.receive_time(self._loop.time())
        else:
            self._core.receive_data(frame, self._loop.time())
        try:
            for event in self._core.events():
                await self._do(event)
        except ProtocolError as error:
            await self._fail(error.reply)

    async def _do(self, event: Event) -> None:
        if isinstance(event, Idle):
            await close(self._socket, CLOSE_NORMALLY)
        elif isinstance(event, RunTask):
            await self._begin(event)
        elif self._speech is not None:
            try:
                await self._go_on(self._speech, event)
            except VivavoceError as error:
                await self._fail(_failure(event.task_id, error))

    async def _go_on(self, speech: _Speech, event: TextPushed | FlushTask | FinishTask | CancelTask) -> None:
        match event:
            case TextPushed(text=text, in_ssml=in_ssml):
                speech.push(text, in_ssml=in_ssml)
            case FlushTask():
                speech.utterance.flush()
            case FinishTask():
                speech.utterance.end_input()
            case CancelTask():
                await self._stop_speaking()
                await self._say(TaskFinished(event.task_id, speech.characters))
            case _:
                assert_never(event)

    async def _begin(self, run: RunTask) -> None:
        try:
            if self._going_away:
                raise _shutting_down()
            grant = self._house.access.grant(self._socket.headers)
            grant.require(Scope.SPEAK)
            grant.charge_request()
            check_model(run.model)
        except (BadRequest, Overloaded) as error:
            await self._fail(_failure(run.task_id, error))
            return
        await self._spoken_out()
        self._speech = speech = _Speech(run, grant)
        speech.speaking = asyncio.create_task(self._speak(speech))
        opened = asyncio.create_task(speech.opened.wait())
        await asyncio.wait({speech.speaking, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    # Speaking

    async def _speak(self, speech: _Speech) -> None:
        """Speak a task to its end, and tell how it ended."""
        try:
            await self._say(await self._outcome(speech))
        except (WebSocketDisconnect, TimeoutError):
            await close(self._socket, CLOSE_TOO_SLOW)
        finally:
            if self._speech is speech:
                self._speech = None

    async def _outcome(self, speech: _Speech) -> TaskFinished | TaskFailed:
        """Boundary: whatever is raised ends this task and no more."""
        task_id = speech.run.task_id
        try:
            await self._render(speech)
        except (WebSocketDisconnect, TimeoutError):
            raise
        except VivavoceError as error:
            return _failure(task_id, error)
        except Exception as error:
            logger.exception("task %r failed", task_id)
            return _failure(task_id, error)
        return TaskFinished(task_id, speech.characters)

    async def _render(self, speech: _Speech) -> None:
        """Admit the task and send all of its audio; when this returns, its slot is free."""
        house, run, grant = self._house, speech.run, speech.grant
        with house.log.request(_API, grant, run.task_id) as speech.record, grant.stream():
            voice = resolve_voice(house.voices, run.parameters.voice, grant)
            speech.record.voice = voice
            order = order_of(run.parameters, voice)
            speech.bytes_per_s = order.audio.bytes_per_second
            async with open_utterance(house.engine, order) as speech.utterance:
                await self._say(TaskStarted(run.task_id))
                speech.opened.set()
                async for encoded in speech.utterance:
                    await self._send_audio(speech, encoded)
        for event in speech.sentences.at_end(speech.utterance.text):
            await self._say(event)

    async def _send_audio(self, speech: _Speech, encoded: Encoded) -> None:
        start, stop = encoded.samples
        events = speech.sentences.before_audio(
            speech.utterance.text, encoded.text, encoded.words, has_audio=bool(encoded.audio)
        )
        for event in events:
            if isinstance(event, AudioComing):
                write = functools.partial(self._say, event)
                await self._reader.send(encoded.audio, speech.bytes_per_s, write)
            else:
                await self._say(event)
        speech.record.audio((stop - start) / SAMPLE_RATE)

    async def _spoken_out(self) -> None:
        """Wait until the end of the last task has been written."""
        if self._speech is not None:
            await asyncio.wait({self._speech.speaking})

    async def _stop_speaking(self) -> None:
        """Drop what is not sent; the engine is free when this returns."""
        if self._speech is not None:
            self._speech.speaking.cancel()
            await self._spoken_out()

    # Writing

    async def _fail(self, reply: TaskFailed) -> None:
        if reply.task_id == self._core.task_id:
            await self._stop_speaking()
        await self._say(reply)

    async def _say(self, event: ServerEvent, audio: bytes | None = None) -> None:
        """Write an event, and the audio that it announces, with nothing between them."""
        frame = self._core.send(event, self._loop.time())
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(self._core.deadline)
        async with asyncio.timeout(SEND_WITHIN_S), self._writing:
            await self._socket.send_text(frame)
            if audio is not None:
                await self._socket.send_bytes(audio)


def _failure(task_id: str, error: Exception) -> TaskFailed:
    refusal = refusal_of(error)
    return TaskFailed(task_id, refusal.code, refusal.message)


def _shutting_down() -> Overloaded:
    return Overloaded("the server is shutting down; connect again", reason="shutting_down", retry_after_s=5.0)
