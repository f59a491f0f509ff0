"""Our own WebSocket, ``/v1/audio/speech/stream``: text in as it is written, audio out as it is spoken.

    messages -> adapters.speech_socket.Connection -> turns, one spoken after the other -> speech.Utterance
    session.config with ref_audio -> lent_voice.LentVoice, for as long as a turn or the configuration needs it

One coroutine reads a socket, so a client that vanishes is noticed at once; another speaks while there is
something to say. Text of a turn goes to the engine as it comes; text of turns after it waits, so much and no
more. An idle socket is closed after a minute.
"""

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import assert_never
from uuid import uuid4

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from ...adapters.openai_speech import ProtocolError, SpeechSettings
from ...adapters.speech_socket import (
    AudioDone,
    AudioStarts,
    Cancelled,
    Closed,
    Configuration,
    Configured,
    Connection,
    Event,
    Failed,
    Flushed,
    InputDone,
    ServerEvent,
    TextPushed,
    UtteranceDone,
    WordsBegin,
    encode,
)
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ..access.access import Grant
from ..backpressure import Reader
from .lent_voice import LentVoice
from .openai import OpenAISpeech, refusal_of
from .peer_socket import CLOSE_GOING_AWAY, CLOSE_NORMALLY, CLOSE_TOO_SLOW, SEND_WITHIN_S, close, deny, is_up
from .request_log import RequestRecord
from .speech import Encoded, Utterance, open_utterance

logger = logging.getLogger(__name__)

PATH = "/v1/audio/speech/stream"
IDLE_S = 60.0
MOST_WAITING = 256 * 1024  # characters of turns that are not spoken yet
MOST_TURNS = 64
_LONG_MESSAGE = 256 * 1024  # characters; more, a recording's, are parsed on a thread
_API = "socket"
_Recording = tuple[str, str]  # where it is, what is said in it


class SpeechSockets:
    """Every such socket of a server; belongs to its event loop. api: whose keys, voices and limits hold."""

    def __init__(self, api: OpenAISpeech, idle_s: float = IDLE_S) -> None:
        self.api = api
        self.idle_s = idle_s
        self._sessions: set[_Session] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def routes(self) -> APIRouter:
        """The socket's route."""
        router = APIRouter()

        @router.websocket(PATH)
        async def stream(socket: WebSocket) -> None:
            await self._serve(socket)

        return router

    async def finish(self, within_s: float) -> None:
        """Let what is being said end, at most ``within_s``; close every socket with 1001."""
        await asyncio.gather(*(session.go_away(within_s) for session in tuple(self._sessions)))

    async def _serve(self, socket: WebSocket) -> None:
        try:
            self.api.enter(socket.headers)
        except (BadRequest, Overloaded) as error:
            refusal = refusal_of(error)
            await deny(socket, JSONResponse(refusal.body, refusal.status, refusal.headers))
            return
        await socket.accept()
        session = _Session(self, socket)
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)


class _Turn:
    # An utterance on its way: text that came before its stream was open, and the stream once it is.
    # Without text it has no configuration, and is only told to be over when its time comes.

    def __init__(self, index: int, configuration: Configuration | None) -> None:
        self.index = index
        self.configuration = configuration
        self.waiting: list[str | Flushed] = []
        self.done = False
        self.cancelled = False
        self.failure: Exception | None = None
        self.has_begun = False
        self.total_bytes = 0
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.grant: Grant
        self.record: RequestRecord
        self.utterance: Utterance | None = None

    @property
    def waiting_characters(self) -> int:
        return sum(len(piece) for piece in self.waiting if isinstance(piece, str))

    @property
    def is_over(self) -> bool:
        return self.cancelled or self.failure is not None

    def push(self, piece: str | Flushed) -> None:
        """Say it now, or when the stream is open; a failure is told by who speaks the turn."""
        if self.is_over:
            return
        if self.utterance is None:
            self.waiting.append(piece)
            return
        try:
            self._say(self.utterance, piece)
        except VivavoceError as error:
            self.failure = error
            self.utterance.cancel()

    def open(self, utterance: Utterance) -> None:
        """Say what has waited; raises RateLimited, BadText."""
        self.utterance = utterance
        waiting, self.waiting = self.waiting, []
        for piece in waiting:
            self._say(utterance, piece)
        if self.done:
            utterance.end_input()

    def end(self) -> None:
        """No more text."""
        self.done = True
        if self.utterance is not None and not self.is_over:
            self.utterance.end_input()

    def cancel(self) -> None:
        """Say no more of it."""
        self.cancelled = self.done = True
        self.waiting.clear()
        if not self.given_up.done():
            self.given_up.set_result(None)
        if self.utterance is not None:
            self.utterance.cancel()

    def _say(self, utterance: Utterance, piece: str | Flushed) -> None:
        if isinstance(piece, Flushed):
            utterance.flush()
            return
        self.grant.charge_characters(len(piece))
        self.record.text(len(piece))
        utterance.push_text(piece)


class _Session:
    """One socket, from its acceptance to its end."""

    def __init__(self, house: SpeechSockets, socket: WebSocket) -> None:
        self._house = house
        self._socket = socket
        self._reader = Reader.of(socket.scope)
        self._core = Connection()
        self._id = f"ws_{uuid4().hex}"
        self._turns: deque[_Turn] = deque()
        self._over = -1  # the last utterance that is
        self._configured: _Recording | None = None  # what the next utterance is to sound like
        self._lent: tuple[_Recording, LentVoice] | None = None
        self._speaking: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Serve until the peer is gone or the socket is closed."""
        try:
            while is_up(self._socket):
                await self._take_next()
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            await close(self._socket, CLOSE_TOO_SLOW)
        finally:
            await self._stop_speaking()
            await self._return_voice()

    async def go_away(self, within_s: float) -> None:
        """Let what is being said end, at most ``within_s``, then close with 1001."""
        if self._speaking is not None:
            await asyncio.wait({self._speaking}, timeout=within_s)
        await close(self._socket, CLOSE_GOING_AWAY)
        await self._stop_speaking()

    # Reading

    async def _take_next(self) -> None:
        """Take one message, or close the socket where none came for long and nothing is being said."""
        try:
            async with asyncio.timeout(self._house.idle_s):
                message = await self._socket.receive()
        except TimeoutError:
            if not self._is_talking():
                await self._say(Failed(f"no message for {self._house.idle_s:g} s", "idle_timeout"))
                await close(self._socket, CLOSE_NORMALLY)
            return
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text: str | None = message.get("text")
        try:
            await self._do(await self._read(text if text is not None else message.get("bytes") or b""))
        except (ProtocolError, BadRequest, Overloaded) as error:
            await self._say(_failed(error))

    async def _read(self, message: str | bytes) -> Event:
        if len(message) > _LONG_MESSAGE:
            return await asyncio.to_thread(self._core.receive_data, message)
        return self._core.receive_data(message)

    def _is_talking(self) -> bool:
        """Whether a turn whose text is complete is still being sent."""
        return any(turn.done for turn in self._turns)

    async def _do(self, event: Event) -> None:
        match event:
            case Configured(configuration=configuration):
                await self._configure(configuration.settings)
            case TextPushed():
                self._push(event)
            case Flushed(utterance=index):
                self._push_to(index, event)
            case InputDone(utterance=index):
                self._end(index)
            case Cancelled(utterance=index):
                self._cancel(index)
            case Closed():
                await close(self._socket, CLOSE_NORMALLY)
            case _:
                assert_never(event)

    async def _configure(self, settings: SpeechSettings) -> None:
        """Say at once what is wrong, and begin with a voice that has to be made; raises BadRequest."""
        api = self._house.api
        self._configured = _recording(settings)
        if not self._turns:
            await self._return_voice(but=self._configured)
        grant = api.enter(self._socket.headers)
        api.order(settings, api.named_voice(settings, grant))
        if self._configured is not None and self._lent is None and not self._turns:
            grant.charge_request()  # as a recording costs over HTTP; one for later is made under its turn's
            await self._lend(settings, self._configured, grant)

    def _push(self, event: TextPushed) -> None:
        """Add text to its turn, which begins with it; raises ProtocolError where too much waits."""
        if not event.text or event.utterance <= self._over:
            return
        waiting = sum(turn.waiting_characters for turn in self._turns) + len(event.text)
        if waiting > MOST_WAITING or len(self._turns) >= MOST_TURNS:
            raise ProtocolError(
                f"{waiting} characters in {len(self._turns)} utterances wait to be spoken, more than "
                f"{MOST_WAITING} in {MOST_TURNS}; this text is not taken",
                code="too_much_text",
            )
        if self._turn(event.utterance) is None:
            self._begin(_Turn(event.utterance, event.configuration))
        self._push_to(event.utterance, event.text)

    def _begin(self, turn: _Turn) -> None:
        self._turns.append(turn)
        if self._speaking is None:
            self._speaking = asyncio.create_task(self._speak_turns())

    def _turn(self, index: int) -> _Turn | None:
        """The last turn, if it is that one: text comes for no other."""
        return self._turns[-1] if self._turns and self._turns[-1].index == index else None

    def _push_to(self, index: int, piece: str | Flushed) -> None:
        turn = self._turn(index)
        if turn is not None:
            turn.push(piece)

    def _end(self, index: int) -> None:
        turn = self._turn(index)
        if turn is None and index > self._over:
            turn = _Turn(index, None)
            self._begin(turn)
        if turn is not None:
            turn.end()

    def _cancel(self, index: int) -> None:
        self._end(index)
        for turn in self._turns:
            turn.cancel()

    # Speaking

    async def _speak_turns(self) -> None:
        """Speak one turn after the other until there is none; a peer that takes nothing ends the socket."""
        try:
            while self._turns:
                await self._speak(self._turns[0])
                self._over = self._turns.popleft().index
                if not self._turns:
                    await self._return_voice(but=self._configured)
        except (WebSocketDisconnect, TimeoutError):
            await close(self._socket, CLOSE_TOO_SLOW)
        finally:
            self._speaking = None

    async def _speak(self, turn: _Turn) -> None:
        """Speak a turn and tell how it ended. Boundary: whatever is raised ends this turn and no more."""
        try:
            if turn.configuration is not None and not turn.cancelled:
                await self._render(turn, turn.configuration)
        except (WebSocketDisconnect, TimeoutError):
            raise
        except VivavoceError as error:
            turn.failure = error
        except Exception as error:
            logger.exception("utterance %d of %s failed", turn.index, self._id)
            turn.failure = error
        if turn.failure is not None:
            await self._say(replace(_failed(turn.failure), utterance=turn.index))
        if turn.has_begun:
            await self._say(AudioDone(turn.index, turn.total_bytes, turn.failure is not None))
        await self._say(UtteranceDone(turn.index, int(turn.has_begun), turn.cancelled))

    async def _render(self, turn: _Turn, configuration: Configuration) -> None:
        """Send all of a turn's audio; when this returns, its slot is free."""
        api = self._house.api
        turn.grant = grant = api.admit(self._socket.headers)
        with api.log.request(_API, grant, f"{self._id}/{turn.index}") as turn.record, grant.stream():
            turn.record.text(0)  # what has waited for its voice came before that
            voice = await self._voice(turn, configuration.settings)
            if voice is None:
                return
            turn.record.voice = voice
            async with open_utterance(api.engine, api.order(configuration.settings, voice)) as utterance:
                turn.open(utterance)
                async for encoded in utterance:
                    await self._send_audio(turn, configuration, encoded)
            if turn.failure is not None:
                raise turn.failure

    async def _voice(self, turn: _Turn, settings: SpeechSettings) -> str | None:
        """The engine's voice for a turn, None if it is cancelled first; raises as ``OpenAISpeech.voice``."""
        recording = _recording(settings)
        if recording is None:
            return self._house.api.named_voice(settings, turn.grant)
        lent = await self._lend(settings, recording, turn.grant)
        return await lent.id(turn.given_up)

    async def _lend(self, settings: SpeechSettings, recording: _Recording, grant: Grant) -> LentVoice:
        """The voice of a recording, made now unless it is there; one at a time."""
        await self._return_voice(but=recording)
        if self._lent is None:
            self._lent = recording, LentVoice(self._house.api.voice(settings, grant))
        return self._lent[1]

    async def _return_voice(self, but: _Recording | None = None) -> None:
        """Let go of a voice of any recording but that one, and of one that could not be made."""
        if self._lent is None or (self._lent[0] == but and not self._lent[1].has_failed):
            return
        (_, lent), self._lent = self._lent, None
        await lent.aclose()

    async def _send_audio(self, turn: _Turn, configuration: Configuration, encoded: Encoded) -> None:
        assert turn.utterance is not None
        if encoded.words and configuration.word_times:
            await self._say(WordsBegin(turn.index, encoded.words))
        if not encoded.audio:
            return
        if not turn.has_begun:
            audio = configuration.settings.audio
            text = turn.utterance.text
            await self._say(AudioStarts(turn.index, text, audio.codec, audio.sample_rate))
            turn.has_begun = True
        rate = configuration.settings.audio.bytes_per_second
        await self._reader.send(encoded.audio, rate, self._write)
        turn.total_bytes += len(encoded.audio)
        turn.record.audio((encoded.samples[1] - encoded.samples[0]) / SAMPLE_RATE)

    async def _stop_speaking(self) -> None:
        """Drop what is not sent; the engine is free when this returns."""
        if self._speaking is not None:
            self._speaking.cancel()
            await asyncio.wait({self._speaking})

    # Writing

    async def _write(self, audio: bytes) -> None:
        async with asyncio.timeout(SEND_WITHIN_S), self._writing:
            await self._socket.send_bytes(audio)

    async def _say(self, event: ServerEvent) -> None:
        async with asyncio.timeout(SEND_WITHIN_S), self._writing:
            await self._socket.send_text(encode(event))


def _recording(settings: SpeechSettings) -> _Recording | None:
    return None if settings.ref_audio is None else (settings.ref_audio, settings.ref_text)


def _failed(error: Exception) -> Failed:
    refusal = refusal_of(error)
    code = refusal.code or (refusal.kind if refusal.status >= 500 else None)
    return Failed(refusal.message, code, refusal.param, retry_after_s=refusal.retry_after_s)
