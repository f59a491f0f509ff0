"""A vivavoce server as a text-to-speech service of a Pipecat pipeline: ``VivavoceWebsocketTTSService``.

    LLMTextFrame -> run_tts -> _RemoteSpeech.push_text ->  ... socket ...     returns at once, token by token
    TTSAudioRawFrame, word times <- pipecat_service <- _RemoteSpeech.next_piece <- ... socket ...

What a pipeline hears and remembers is ``pipecat_service``'s, as with an engine of this process; the sockets
are ``client``'s: kept ready, lent to one utterance each, and given up when they break.

Source: pipecat-ai 1.14.0, services/tts_service.py and websocket_service.py, read. It is no
``WebsocketTTSService``: that one owns a single socket, and reconnects while somebody waits for it.
"""

# Pipecat is typed, but for what its functions return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections import deque
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, assert_never

from ..tts_engine.errors import BadRequest, BadText, MissingExtra, SynthesisFailed, VivavoceError
from .client import Piece, PoolPolicy, RemoteUtterance, ServerGone, SpeechClient, Wish
from .pipecat_service import LEAD_S, SpeechService, VivavoceTTSSettings
from .pipecat_utterance import Speech

try:
    from pipecat.processors.frame_processor import FrameProcessorSetup
    from pipecat.utils.errors import ErrorCategory
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat service", "pipecat") from error

__all__ = ["VivavoceTTSSettings", "VivavoceWebsocketTTSService"]

OF_ONE_CALL: Final = PoolPolicy(connect_within_s=3.0)  # twice, and still before an utterance is given up
KEEP_ALIVE_S: Final = 20.0  # a writer may be silent for longer than a server waits, which is a minute
MOST_TEXT: Final = 200_000  # characters of one utterance; an engine takes no more either
MOST_UNREAD_S: Final = 300.0  # of audio; below it a socket is read at once, so that its pings are answered


class _Mark(Enum):
    FLUSH = auto()
    END = auto()


class _RemoteSpeech:
    # An utterance on a connection of its own, in a task of its own. A connection that is lost before
    # anything was heard is made good by another one, once: a server that was restarted is not noticed.

    def __init__(self, client: SpeechClient, wish: Wish) -> None:
        self.text = ""
        self._client = client
        self._wish = wish
        self._said: list[str | _Mark] = []  # all of it, for a second connection
        self._asked = asyncio.Event()  # there is something to say
        self._more = asyncio.Event()
        self._pieces: deque[Piece] = deque()
        self._unread = 0  # bytes
        self._has_spoken = False
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._completed = False
        self._failure: VivavoceError | None = None
        self.task = asyncio.create_task(self._run(), name="vivavoce speech")

    def push_text(self, text: str) -> None:
        if len(self.text) + len(text) > MOST_TEXT:
            raise BadText(f"{len(self.text) + len(text)} characters in one utterance, at most {MOST_TEXT}")
        self.text += text
        self._say(text)
        self._asked.set()

    def flush(self) -> None:
        self._say(_Mark.FLUSH)

    def end_input(self) -> None:
        if _Mark.END not in self._said[-1:]:
            self._say(_Mark.END)

    def cancel(self) -> None:
        self._pieces.clear()
        self.task.cancel()

    def set_deadline(self, runs_dry_at: float) -> None:
        pass  # a server is told of no listener's hurry

    async def next_piece(self) -> Piece | None:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._completed:
                return None
            if self.task.done():
                raise SynthesisFailed("the utterance was ended while it was spoken")
            self._arrived.clear()
            await self._arrived.wait()
        piece = self._pieces.popleft()
        self._unread -= len(piece.audio)
        self._taken.set()
        return piece

    def _say(self, what: str | _Mark) -> None:
        self._said.append(what)
        self._more.set()

    async def _run(self) -> None:
        try:
            await self._speak()
            self._completed = True
        except VivavoceError as error:
            self._failure = error
        finally:
            self._arrived.set()

    async def _speak(self) -> None:
        try:
            return await self._speak_once()
        except VivavoceError as error:
            lost = isinstance(error, ServerGone) and not self._has_spoken
            if self._asked.is_set() and not lost:
                raise
        await self._asked.wait()  # a turn may come to its end without a word
        await self._speak_once()

    async def _speak_once(self) -> None:
        async with self._client.utterance(self._wish) as utterance:
            writing = asyncio.create_task(self._write(utterance))
            try:
                async for piece in utterance:
                    await self._keep(piece)
            finally:
                writing.cancel()
                await asyncio.wait({writing})

    async def _write(self, utterance: RemoteUtterance) -> None:
        sent = 0
        with suppress(ServerGone):  # who reads is told as well
            while True:
                while sent < len(self._said):
                    await _send(utterance, self._said[sent])
                    sent += 1
                if self._said[-1:] == [_Mark.END]:
                    return
                await self._wait_for_more(utterance)

    async def _wait_for_more(self, utterance: RemoteUtterance) -> None:
        self._more.clear()
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self._more.wait()
        except TimeoutError:
            await utterance.keep_alive()

    async def _keep(self, piece: Piece) -> None:
        self._has_spoken = True
        self._pieces.append(piece)
        self._unread += len(piece.audio)
        self._arrived.set()
        while self._unread > 2 * self._wish.sample_rate * MOST_UNREAD_S:
            self._taken.clear()
            await self._taken.wait()


async def _send(utterance: RemoteUtterance, said: str | _Mark) -> None:
    match said:
        case str():
            await utterance.push_text(said)
        case _Mark.FLUSH:
            await utterance.flush()
        case _Mark.END:
            await utterance.end_input()
        case _:
            assert_never(said)


class VivavoceWebsocketTTSService(SpeechService):
    """Speaks an LLM's tokens as they are written, by a vivavoce server.

    In a pipeline it is as ``VivavoceTTSService``: words enter the LLM's context when they are heard, no audio
    frame follows an ``InterruptionFrame``, and the server renders nothing more of what was interrupted. The
    server gives audio at the pipeline's rate, so set ``PipelineParams(audio_out_sample_rate=8000)`` on
    telephones.

    Connections are kept ready, and opened anew when the server was away. What cannot be said meanwhile is an
    error frame, and the service goes on with the next reply.

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
            api_key: A key of scope ``speak``, where the server asks for one.
            client: A pool of connections shared by all calls of a process, in place of ``url``; it is not
                closed. With ``url`` the service opens two connections of its own.
            lead_s: Seconds of audio handed to the pipeline ahead of the listener; ``math.inf`` to hand on
                all that is there, for transports that want it faster than real time.
            settings: Voice, language and speed; a voice or a language that is None is the server's choice.
            **kwargs: Arguments of ``SpeechService`` and ``TTSService``.

        Raises:
            BadRequest: Neither a URL nor a client was given, or both, or a URL of another kind.
        """
        if (url is None) == (client is None):
            raise BadRequest("give either the URL of a server or a client")
        super().__init__(lead_s=lead_s, settings=settings, **kwargs)
        self._vivavoce_owns_client = client is None
        self._vivavoce_client = client or SpeechClient(str(url), api_key=api_key, pool=OF_ONE_CALL)
        self._vivavoce_tasks: set[asyncio.Task[None]] = set()

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]
        """Set up the service, and begin to open its connections.

        Args:
            setup: Configuration of the pipeline.
        """
        await super().setup(setup)
        if self._vivavoce_owns_client:
            self._vivavoce_client.start()

    def _vivavoce_open_speech(self) -> Speech:
        voice, language, speed = self._settings.voice, self._settings.language, self._settings.speed
        wish = Wish(
            voice=voice if isinstance(voice, str) else None,
            sample_rate=self.sample_rate,
            speed=float(speed) if isinstance(speed, int | float) else 1.0,
            language=str(language) if isinstance(language, str) else None,
        )
        speech = _RemoteSpeech(self._vivavoce_client, wish)
        self._vivavoce_tasks.add(speech.task)
        speech.task.add_done_callback(self._vivavoce_tasks.discard)
        return Speech(speech, speech.next_piece)

    def _classify_error(self, exception: Exception) -> ErrorCategory | None:
        if isinstance(exception, ServerGone):
            return ErrorCategory.CONNECTIVITY
        return super()._classify_error(exception)

    async def _vivavoce_teardown(self) -> None:
        await super()._vivavoce_teardown()
        if self._vivavoce_owns_client:
            await self._vivavoce_client.aclose()
        if self._vivavoce_tasks:
            await asyncio.wait(self._vivavoce_tasks)  # what was cancelled gives its connection back
