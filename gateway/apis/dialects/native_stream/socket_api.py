"""The native stream, ``/v1/audio/speech/stream``: text in as it is written, audio out as it is spoken.

    text frame -> models.parse_message -> connection.NativeStreamConnection -> queue of utterances
    queue      -> one utterance after the other -> speech.EncodedStream -> audio frames

The first utterance of the queue is spoken: its text goes to the engine as it arrives. The text of those
behind it is buffered, up to a limit. A configuration with ``ref_audio`` makes a ``TemporaryVoice``, which
lasts for as long as an utterance or the configuration needs it.
"""

import asyncio
import logging
from collections import deque
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Final, assert_never
from uuid import uuid4

from fastapi import WebSocket

from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import BadRequest, Overloaded
from ....access.access_control import Grant
from ....access.errors import GrantEnded
from ....web.openapi.operations import WebSocketOperation
from ....web.websocket import CLOSE_NORMAL
from ...kits.openai.errors import OPENAI_ERRORS, InvalidRequestError
from ...kits.openai.voice_resolver import OpenAIVoiceResolver, make_synthesis_options
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.websocket_connection import WebSocketConnection
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SpeechServer
from .connection import (
    CloseRequested,
    ConfigAccepted,
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    NativeStreamConnection,
    NativeStreamEvent,
)
from .models import (
    AudioDone,
    AudioMarks,
    AudioPhonemes,
    AudioStart,
    AudioWords,
    MarkTime,
    NativeStreamAnswer,
    NativeStreamMessage,
    NativeStreamServerMessage,
    PhonemeTime,
    SessionConfig,
    StreamErrorReport,
    UtteranceDone,
    WordTime,
    parse_message,
)
from .queued_utterance import QueuedUtterance


class TemporaryVoice:
    """A voice whose creation starts with the object and which is removed by ``aclose``."""

    def __init__(self, voice_context: AbstractAsyncContextManager[str]) -> None:
        """Start to enter voice_context: its value is the engine's voice id, its exit removes the voice."""
        self._exit_stack = AsyncExitStack()
        self._creation_task = asyncio.create_task(self._exit_stack.enter_async_context(voice_context))

    @property
    def has_failed(self) -> bool:
        """Whether the voice could not be made."""
        creation_task = self._creation_task
        return creation_task.done() and (creation_task.cancelled() or creation_task.exception() is not None)

    async def id(self, abandoned: "asyncio.Future[None]") -> str | None:
        """Wait for the engine's voice id; None if ``abandoned`` is done first.

        Raises the error of the voice's creation.
        """
        awaited: set[asyncio.Future[Any]] = {self._creation_task, abandoned}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        return None if abandoned.done() else self._creation_task.result()

    async def aclose(self) -> None:
        """Remove the voice, or stop making it."""
        self._creation_task.cancel()
        await asyncio.gather(self._creation_task, return_exceptions=True)
        await self._exit_stack.aclose()


logger = logging.getLogger(__name__)

PATH: Final = "/v1/audio/speech/stream"
IDLE_S: Final = 60.0  # ``adapters.client`` replaces idle connections after half of it
MAX_QUEUED_CHARACTERS: Final = 256 * 1024  # of one connection; hours of speech
MAX_QUEUED_UTTERANCES: Final = 64
NATIVE_STREAM_OPERATION: Final = WebSocketOperation(
    PATH,
    "Speak text while it is written; audio comes in binary messages.",
    NativeStreamMessage,
    NativeStreamServerMessage,
    example=(
        {"type": "session.config", "response_format": "pcm"},
        {"type": "input.text", "text": "Hello, this is vivavoce."},
        {"type": "input.done"},
    ),
)
_THREAD_PARSING_CHARACTERS: Final = 256 * 1024  # longer messages hold a recording and are parsed on a thread
_API: Final = "socket"  # in the log and the metrics
_Recording = tuple[str, str]  # ref_audio, ref_text


class NativeStreamApi(SpeechSocketApi):
    """The native-stream connections of a server; belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: OpenAIVoiceResolver, idle_s: float = IDLE_S) -> None:
        super().__init__(server)
        self.voices = voices
        self.idle_s = idle_s  # without a message, while no audio is due

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self.connections)

    def handlers(self) -> SocketHandlers:
        return {PATH: partial(self.serve, self._connection, OPENAI_ERRORS.response)}

    def _connection(self, socket: WebSocket) -> "_NativeStreamSocketConnection":
        self.server.authorize(socket.headers)
        return _NativeStreamSocketConnection(self, socket)


class _NativeStreamSocketConnection(WebSocketConnection):
    def __init__(self, api: NativeStreamApi, socket: WebSocket) -> None:
        super().__init__(socket)
        self._api = api
        self._protocol = NativeStreamConnection()
        self._id = f"ws_{uuid4().hex}"
        self._queue: deque[QueuedUtterance] = deque()  # the first one is being spoken
        self._last_finished = -1  # index of an utterance
        self._next_recording: _Recording | None = None  # of the configuration
        self._temporary_voice: tuple[_Recording, TemporaryVoice] | None = None

    # Receiving

    def idle_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._api.idle_s

    async def on_idle(self) -> None:
        if not self._has_pending_audio():
            message = f"no message for {self._api.idle_s:g} s"
            await self._send(StreamErrorReport(message=message, code="idle_timeout"))
            await self.close(CLOSE_NORMAL)

    async def on_message(self, data: str | bytes) -> None:
        try:
            await self._handle(self._protocol.receive(await self._parse(data)))
        except (InvalidRequestError, BadRequest, Overloaded) as error:
            await self._send(_error_report(error))

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self._send(_error_report(error))

    async def on_closed(self) -> None:
        await self._release_temporary_voice()

    async def _parse(self, data: str | bytes) -> NativeStreamMessage:
        if len(data) > _THREAD_PARSING_CHARACTERS:
            return await asyncio.to_thread(parse_message, data)
        return parse_message(data)

    def _has_pending_audio(self) -> bool:
        """Return whether an utterance whose text is complete is still being sent."""
        return any(queued.is_complete for queued in self._queue)

    async def _handle(self, event: NativeStreamEvent) -> None:
        match event:
            case ConfigAccepted(configuration=configuration):
                await self._configure(configuration)
            case InputText():
                self._push(event)
            case InputFlush(utterance=index):
                self._push_to(index, event)
            case InputDone(utterance=index):
                self._end(index)
            case InputCancel(utterance=index):
                self._cancel(index)
            case CloseRequested():
                await self.close(CLOSE_NORMAL)
            case _:
                assert_never(event)

    async def _configure(self, configuration: SessionConfig) -> None:
        """Check a configuration and start to make its voice; raises BadRequest, Overloaded."""
        self._next_recording = _recording_of(configuration)
        if not self._queue:
            await self._release_temporary_voice(keep_recording=self._next_recording)
        # The key may have been revoked since the handshake.
        grant = self._api.server.authorize(self.socket.headers)
        make_synthesis_options(configuration, self._api.voices.resolve(configuration, grant))
        if self._next_recording is not None and self._temporary_voice is None and not self._queue:
            # A recording costs a request, as over HTTP; one for a later utterance is covered by that
            # utterance's.
            grant.charge_request()
            await self._make_temporary_voice(configuration, self._next_recording, grant)

    def _push(self, event: InputText) -> None:
        """Add text to its utterance, or begin one; raises InvalidRequestError if too much waits."""
        if not event.text or event.utterance <= self._last_finished:
            return  # an empty text only keeps the connection alive; a failed utterance takes no more
        queued_characters = sum(queued.waiting_characters for queued in self._queue) + len(event.text)
        if queued_characters > MAX_QUEUED_CHARACTERS:
            raise InvalidRequestError(
                f"{queued_characters} characters wait to be spoken, more than {MAX_QUEUED_CHARACTERS}; this "
                "text is not taken",
                code="too_much_text",
            )
        if self._last_queued(event.utterance) is None:
            self._enqueue(QueuedUtterance(event.utterance, event.configuration))
        self._push_to(event.utterance, event.text)

    def _enqueue(self, queued: QueuedUtterance) -> None:
        """Add an utterance; raises InvalidRequestError if too many wait."""
        if len(self._queue) >= MAX_QUEUED_UTTERANCES:
            raise InvalidRequestError(
                f"{MAX_QUEUED_UTTERANCES} utterances wait to be spoken, which is the limit; utterance "
                f"{queued.index} is not taken",
                code="too_much_text",
            )
        self._queue.append(queued)
        if not self.is_speaking:
            self.start_speaking(self._speak_queue)

    def _last_queued(self, index: int) -> QueuedUtterance | None:
        """Return the last utterance if it has that index: text is never for an earlier one."""
        return self._queue[-1] if self._queue and self._queue[-1].index == index else None

    def _push_to(self, index: int, piece: str | InputFlush) -> None:
        queued = self._last_queued(index)
        if queued is not None:
            queued.receive(piece)

    def _end(self, index: int) -> None:
        queued = self._last_queued(index)
        if queued is None and index > self._last_finished:  # it has no text, but its end is reported
            queued = QueuedUtterance(index, None)
            self._enqueue(queued)
        if queued is not None:
            queued.complete()

    def _cancel(self, index: int) -> None:
        try:
            self._end(index)
        finally:  # also if too many utterances wait
            for queued in self._queue:
                queued.cancel()

    # Speaking

    async def _speak_queue(self) -> None:
        """Speak one utterance after the other until the queue is empty."""
        while self._queue:
            await self._speak(self._queue[0])  # stays queued meanwhile, as text may still come for it
            self._last_finished = self._queue.popleft().index
            if not self._queue:
                await self._release_temporary_voice(keep_recording=self._next_recording)

    async def _speak(self, queued: QueuedUtterance) -> None:
        """Speak an utterance and report its end."""
        index = queued.index
        if queued.options is not None and not queued.cancelled:
            rendering = self._render(queued, queued.options)
            error = await self.error_of(rendering, f"utterance {index} of {self._id}")
            if error is not None:
                queued.fail(error)
        failed = queued.failure is not None
        if queued.failure is not None:
            await self._send(_error_report(queued.failure, index))
        if queued.has_audio:
            await self._send(AudioDone(utterance_index=index, total_bytes=queued.total_bytes, error=failed))
        await self._send(
            UtteranceDone(
                utterance_index=index,
                total_sentences=int(queued.has_audio),
                cancelled=queued.cancelled,
                unread_characters=queued.unread_characters or None,
            )
        )

    async def _render(self, queued: QueuedUtterance, configuration: SessionConfig) -> None:
        """Send all audio of an utterance; the engine's slot is free when this returns."""
        server = self._api.server
        queued.grant = grant = server.authorize_request(self.socket.headers)
        with server.log.track(_API, grant, f"{self._id}/{queued.index}") as queued.record, grant.stream():
            queued.record.count_text(
                0
            )  # starts the time to first byte: the text came before the voice was ready
            voice = await self._engine_voice(queued, configuration)
            if voice is None:
                return
            queued.record.voice = voice
            options = make_synthesis_options(configuration, voice)
            async with server.open_stream(options, grant) as stream:
                queued.speak_on(stream)
                async for chunk in stream:
                    await self._send_chunk(queued, configuration, chunk)
            if queued.failure is not None:
                raise queued.failure

    async def _engine_voice(self, queued: QueuedUtterance, configuration: SessionConfig) -> str | None:
        """Return the engine's voice id, None if the utterance is cancelled before its voice is made."""
        recording = _recording_of(configuration)
        if recording is None:
            return self._api.voices.resolve(configuration, queued.grant)
        temporary_voice = await self._make_temporary_voice(configuration, recording, queued.grant)
        return await temporary_voice.id(queued.abandoned)

    async def _make_temporary_voice(
        self, configuration: SessionConfig, recording: _Recording, grant: Grant
    ) -> TemporaryVoice:
        """Return the recording's voice, and start to make it unless it exists; there is one at a time."""
        await self._release_temporary_voice(keep_recording=recording)
        if self._temporary_voice is None:
            voice = TemporaryVoice(self._api.voices.open_voice(configuration, grant))
            self._temporary_voice = recording, voice
        return self._temporary_voice[1]

    async def _release_temporary_voice(self, keep_recording: _Recording | None = None) -> None:
        """Remove the voice unless it is of that recording and usable."""
        if self._temporary_voice is None or (
            self._temporary_voice[0] == keep_recording and not self._temporary_voice[1].has_failed
        ):
            return
        (_, temporary_voice), self._temporary_voice = self._temporary_voice, None
        await temporary_voice.aclose()

    # Sending

    async def _send_chunk(
        self, queued: QueuedUtterance, configuration: SessionConfig, chunk: EncodedChunk
    ) -> None:
        if chunk.written_words and configuration.word_times:
            words = [WordTime.from_word(word) for word in chunk.written_words]
            await self._send(AudioWords(utterance_index=queued.index, words=words))
        if movements := queued.mouth_movements(chunk):
            phonemes = list(map(PhonemeTime.from_movement, movements))
            await self._send(AudioPhonemes(utterance_index=queued.index, phonemes=phonemes))
        if chunk.marks:
            marks = [MarkTime(name=mark.name, at_s=mark.at_s) for mark in chunk.marks]
            await self._send(AudioMarks(utterance_index=queued.index, marks=marks))
        if not chunk.audio:
            return  # the encoder withholds it
        if not queued.has_audio:
            await self._send_audio_start(queued, configuration)

        async def write(audio: bytes) -> None:
            if not queued.cancelled:
                await self.send_bytes(audio)
                queued.total_bytes += len(audio)

        await self.sender.send(chunk.audio, configuration.audio.bytes_per_second, write)
        queued.record.count_audio((chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE)

    async def _send_audio_start(self, queued: QueuedUtterance, configuration: SessionConfig) -> None:
        start = AudioStart(
            utterance_index=queued.index,
            sentence_text=queued.text,
            format=configuration.response_format,
            sample_rate=configuration.sample_rate,
        )
        await self._send(start)
        queued.has_audio = True

    async def _send(self, message: NativeStreamAnswer) -> None:
        await self.send_text(message.encode())


def _recording_of(configuration: SessionConfig) -> _Recording | None:
    return None if configuration.ref_audio is None else (configuration.ref_audio, configuration.ref_text)


def _error_report(error: Exception, utterance: int | None = None) -> StreamErrorReport:
    response = OPENAI_ERRORS.describe(error)
    return StreamErrorReport(
        message=response.message,
        code=response.code or (response.type if response.status >= 500 else None),
        param=response.param,
        utterance_index=utterance,
        retry_after_s=response.retry_after_s,
    )
