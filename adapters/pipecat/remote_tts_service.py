"""Pipecat text-to-speech service that uses a vivavoce server: ``VivavoceWebsocketTTSService``.

    LLMTextFrame -> run_tts -> _RemoteSpeechSource.push_text -> ... socket ...    returns at once, each token
    TTSAudioRawFrame, word times <- AudioContextPlayback <- _RemoteSpeechSource.next_piece <- ... socket ...

``base_tts_service`` connects speech and pipeline, as with an engine in the same process. The connections come
from ``client``: it keeps them open, lends each to one utterance at a time, and closes those that break.

Source: pipecat-ai 1.14.0, services/tts_service.py and websocket_service.py, read. This service does not
derive from Pipecat's ``WebsocketTTSService``, which owns a single socket and reconnects while an utterance
waits.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections import deque
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, assert_never

from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.utils.errors import ErrorCategory

from ...tts_engine.errors import BadRequest, BadText, SynthesisFailed, VivavoceError
from ..client import PoolPolicy, RemoteUtterance, ServerUnavailable, SpeechClient, SpeechOptions, SpeechPiece
from .audio_context import SpeechSource
from .base_tts_service import LEAD_S, BaseVivavoceTTSService
from .tts_settings import VivavoceTTSSettings

# Two attempts to connect fit into the time after which Pipecat closes a context.
SINGLE_CALL_POOL: Final = PoolPolicy(connect_timeout_s=3.0)
KEEP_ALIVE_S: Final = 20.0  # the server closes a connection after 60 s without a message
MAX_UTTERANCE_CHARACTERS: Final = 200_000  # the engine's own limit
MAX_UNREAD_S: Final = 300.0  # of audio; up to this the socket is read at once, so that pings are answered


class _InputSignal(Enum):
    FLUSH = auto()
    END = auto()


class _RemoteSpeechSource:
    # An utterance on a connection of its own, in a task of its own. If the connection is lost before any
    # audio has arrived, the utterance is repeated once on another one: after a restart of the server the
    # pooled connections are dead.

    def __init__(self, client: SpeechClient, options: SpeechOptions) -> None:
        self.text = ""
        self._client = client
        self._options = options
        self._input_log: list[str | _InputSignal] = []  # complete, so that it can be sent again
        self._has_text = asyncio.Event()
        self._input_added = asyncio.Event()
        self._pieces: deque[SpeechPiece] = deque()
        self._unread_bytes = 0  # of audio in _pieces
        self._has_audio = False
        self._piece_arrived = asyncio.Event()
        self._piece_taken = asyncio.Event()
        self._completed = False
        self._failure: VivavoceError | None = None
        self.task = asyncio.create_task(self._run(), name="vivavoce speech")

    def push_text(self, text: str) -> None:
        if len(self.text) + len(text) > MAX_UTTERANCE_CHARACTERS:
            raise BadText(
                f"got {len(self.text) + len(text)} characters in one utterance; "
                f"allowed are {MAX_UTTERANCE_CHARACTERS}"
            )
        self.text += text
        self._append_input(text)
        self._has_text.set()

    def flush(self) -> None:
        self._append_input(_InputSignal.FLUSH)

    def end_input(self) -> None:
        if _InputSignal.END not in self._input_log[-1:]:
            self._append_input(_InputSignal.END)

    def cancel(self) -> None:
        self._pieces.clear()
        self.task.cancel()

    def set_deadline(self, runs_dry_at: float) -> None:
        pass  # the protocol has no message for it

    async def next_piece(self) -> SpeechPiece | None:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._completed:
                return None
            if self.task.done():
                raise SynthesisFailed("the utterance was cancelled while it was spoken")
            self._piece_arrived.clear()
            await self._piece_arrived.wait()
        piece = self._pieces.popleft()
        self._unread_bytes -= len(piece.audio)
        self._piece_taken.set()
        return piece

    def _append_input(self, item: str | _InputSignal) -> None:
        self._input_log.append(item)
        self._input_added.set()

    async def _run(self) -> None:
        try:
            await self._speak()
            self._completed = True
        except VivavoceError as error:
            self._failure = error
        finally:
            self._piece_arrived.set()

    async def _speak(self) -> None:
        try:
            return await self._speak_once()
        except VivavoceError as error:
            connection_lost = isinstance(error, ServerUnavailable) and not self._has_audio
            if self._has_text.is_set() and not connection_lost:
                raise
        await self._has_text.wait()  # a turn may end without text
        await self._speak_once()

    async def _speak_once(self) -> None:
        async with self._client.utterance(self._options) as utterance:
            write_task = asyncio.create_task(self._write(utterance))
            try:
                async for piece in utterance:
                    await self._enqueue_piece(piece)
            finally:
                write_task.cancel()
                await asyncio.wait({write_task})

    async def _write(self, utterance: RemoteUtterance) -> None:
        sent = 0
        with suppress(ServerUnavailable):  # the reading task raises it too
            while True:
                while sent < len(self._input_log):
                    await _send(utterance, self._input_log[sent])
                    sent += 1
                if self._input_log[-1:] == [_InputSignal.END]:
                    return
                await self._wait_for_more(utterance)

    async def _wait_for_more(self, utterance: RemoteUtterance) -> None:
        self._input_added.clear()
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self._input_added.wait()
        except TimeoutError:
            await utterance.keep_alive()

    async def _enqueue_piece(self, piece: SpeechPiece) -> None:
        self._has_audio = True
        self._pieces.append(piece)
        self._unread_bytes += len(piece.audio)
        self._piece_arrived.set()
        while self._unread_bytes > 2 * self._options.sample_rate * MAX_UNREAD_S:
            self._piece_taken.clear()
            await self._piece_taken.wait()


async def _send(utterance: RemoteUtterance, item: str | _InputSignal) -> None:
    match item:
        case str():
            await utterance.push_text(item)
        case _InputSignal.FLUSH:
            await utterance.flush()
        case _InputSignal.END:
            await utterance.end_input()
        case _:
            assert_never(item)


class VivavoceWebsocketTTSService(BaseVivavoceTTSService):
    """Speaks an LLM's tokens as they are written, with a vivavoce server.

    In a pipeline it behaves like ``VivavoceTTSService``: words enter the LLM's context when they are heard,
    no audio frame follows an ``InterruptionFrame``, and the server stops rendering an interrupted utterance.
    The server sends audio at the pipeline's rate, so set ``PipelineParams(audio_out_sample_rate=8000)`` for
    telephones.

    Connections are opened in advance, and again when the server has been away. While it is away, each reply
    becomes an error frame; the service continues with the next reply.

    Example::

        tts = VivavoceWebsocketTTSService(url="ws://127.0.0.1:8080", api_key=KEY)
        pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        client: SpeechClient | None = None,
        lead_s: float = LEAD_S,
        settings: VivavoceTTSSettings | None = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the service.

        Args:
            url: The server, ``ws://``, ``wss://``, ``http://`` or ``https://``.
            api_key: A key of scope ``speak``, if the server requires one.
            client: A pool of connections shared by all calls of a process, instead of ``url``; the service
                does not close it. With ``url`` the service opens two connections of its own.
            lead_s: Seconds of audio handed to the pipeline ahead of the listener; ``math.inf`` to hand on
                audio as soon as it arrives, for transports that take it faster than real time.
            settings: Voice, language and speed; None selects the server's default voice or language.
            **kwargs: Arguments of ``BaseVivavoceTTSService`` and ``TTSService``.

        Raises:
            BadRequest: Both or neither of ``url`` and ``client`` are given, or the URL is invalid.
        """
        if (url is None) == (client is None):
            raise BadRequest("give either url or client")
        super().__init__(lead_s=lead_s, settings=settings, **kwargs)
        self._vivavoce_owns_client = client is None
        self._vivavoce_client = client or SpeechClient(str(url), api_key=api_key, pool=SINGLE_CALL_POOL)
        self._vivavoce_tasks: set[asyncio.Task[None]] = set()

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]
        """Set up the service; starts to open its connections.

        Args:
            setup: Configuration of the pipeline.
        """
        await super().setup(setup)
        if self._vivavoce_owns_client:
            self._vivavoce_client.start()

    def _vivavoce_open_source(self) -> SpeechSource:
        voice, language, speed = self._settings.voice, self._settings.language, self._settings.speed
        options = SpeechOptions(
            voice=voice if isinstance(voice, str) else None,
            sample_rate=self.sample_rate,
            speed=float(speed) if isinstance(speed, int | float) else 1.0,
            language=str(language) if isinstance(language, str) else None,
        )
        source = _RemoteSpeechSource(self._vivavoce_client, options)
        self._vivavoce_tasks.add(source.task)
        source.task.add_done_callback(self._vivavoce_tasks.discard)
        return SpeechSource(source, source.next_piece)

    def _classify_error(self, exception: Exception) -> ErrorCategory | None:
        if isinstance(exception, ServerUnavailable):
            return ErrorCategory.CONNECTIVITY
        return super()._classify_error(exception)

    async def _vivavoce_teardown(self) -> None:
        await super()._vivavoce_teardown()
        if self._vivavoce_owns_client:
            await self._vivavoce_client.aclose()
        if self._vivavoce_tasks:
            await asyncio.wait(self._vivavoce_tasks)  # cancelled utterances return their connections
