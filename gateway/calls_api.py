"""The calls API: list calls, hold one over a WebSocket, speak, discard, hang up. For every kind of call.

    GET    /v1/calls                     the calls that are up
    GET    /v1/calls/{id}
    POST   /v1/calls/{id}/speech         the request's body, text/plain, spoken as it arrives
    POST   /v1/calls/{id}/discard        barge-in: how much was cut, what had been heard
    DELETE /v1/calls/{id}                hang up
    WS     /v1/calls/{id}/socket         hold the call; id "next" waits for one that nobody holds
                                         ?audio=in sends the caller's audio as binary messages

Its text messages are those of ``call_messages``: "text" begins an utterance or adds to it, "end" ends it; the
next "text" begins another, said after it. Text is charged to the key of who sends it, as it comes.
"""

import asyncio
import codecs
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Annotated, Literal, assert_never

from fastapi import APIRouter, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketState

from ..tts_engine.errors import VivavoceError
from .access.access import Grant
from .access.errors import KeyRefused, RateLimited
from .access.guard import grant_of
from .call import Call, Outcome, Speech
from .call_events import CallerAudio, Follower, Overrun
from .call_messages import (
    MOST_WAITING,
    NOT_SPOKEN,
    BadMessage,
    ClientMessage,
    CommandMessage,
    OnSpeechMessage,
    SpeechMessage,
    TextMessage,
    describe,
    describe_error,
    parse,
)
from .call_registry import CallHeld, CallRegistry, CallUnknown, Line
from .text_feed import Command, Delta, Draft, Meter, weight
from .voice_registry import VoiceRegistry

logger = logging.getLogger(__name__)

MOST_UTTERANCES = 1_000  # being spoken or waiting; nobody waits for so many sentences
SEND_WITHIN_S = 5.0  # a socket that takes nothing for so long is closed
NEXT = "next"

# Close codes of the application's range, after HTTP's numbers.
CLOSE_UNKNOWN, CLOSE_HELD, CLOSE_TOO_SLOW = 4404, 4409, 4408
CLOSE_NORMALLY, CLOSE_FAILED = 1000, 1011


class Speaker:
    """Turns text messages into utterances of one call, one after the other; tells of those that failed.

    charge: as ``Meter`` takes it.
    """

    def __init__(
        self,
        call: Call,
        speech: Speech,
        on_failed: Callable[[], Awaitable[None]],
        charge: Callable[[int], None],
    ) -> None:
        self.speech = speech
        self._call = call
        self._on_failed = on_failed
        self._meter = Meter(charge)
        self._written: Draft | None = None  # not yet ended
        self._drafts: set[Draft] = set()  # being spoken or waiting for it
        self._speaking: set[asyncio.Task[None]] = set()

    def push(self, delta: Delta) -> None:
        """Add to the utterance, or begin one; raises BadMessage if too much is waiting, or as ``Meter``."""
        self._check_room(delta)
        if not self._meter.takes(delta):
            return
        if self._written is None:
            self._written = self._begin()
        self._written.push(delta)

    def end(self) -> None:
        """The utterance is written."""
        self._meter.end()
        if self._written is not None:
            self._written.end()
            self._written = None

    def discard(self) -> None:
        """Barge-in; utterances that wait are not said either."""
        self.end()
        self._drafts.clear()
        self._call.discard()

    async def aclose(self) -> None:
        """End what is being written, and say no more."""
        self.end()
        for task in self._speaking:
            task.cancel()
        await asyncio.gather(*self._speaking, return_exceptions=True)

    def _check_room(self, delta: Delta) -> None:
        if sum(draft.waiting for draft in self._drafts) + weight(delta) > MOST_WAITING:
            raise BadMessage(f"more than {MOST_WAITING} characters are waiting to be spoken")
        if self._written is None and len(self._drafts) >= MOST_UTTERANCES:
            raise BadMessage(f"{MOST_UTTERANCES} utterances are waiting to be spoken")

    def _begin(self) -> Draft:
        draft = Draft()
        self._drafts.add(draft)
        task = asyncio.create_task(self._speak(draft, self.speech))
        self._speaking.add(task)
        task.add_done_callback(self._speaking.discard)
        return draft

    async def _speak(self, draft: Draft, speech: Speech) -> None:
        try:
            outcome = await self._call.speak(draft.deltas(), speech=speech)
        finally:
            self._drafts.discard(draft)
        if outcome is Outcome.FAILED:
            await self._on_failed()


def routes(registry: CallRegistry, speech: Speech, voices: VoiceRegistry) -> APIRouter:
    """The routes, mounted behind ``guard.requires``.

    speech: how calls are spoken on unless a client says otherwise. voices: that clients may name.
    """
    router = APIRouter(prefix="/v1/calls")

    @router.get("")
    async def list_calls() -> JSONResponse:
        return JSONResponse({"calls": [_line(line) for line in registry]})

    @router.get("/{call_id}")
    async def get_call(call_id: str) -> JSONResponse:
        return JSONResponse(_line(registry.get(call_id)))

    @router.delete("/{call_id}")
    async def hang_up(call_id: str) -> JSONResponse:
        registry.get(call_id).call.hang_up("hung up by the calls API")
        return JSONResponse({"call": call_id, "status": "hung up"})

    @router.post("/{call_id}/discard")
    async def discard(call_id: str) -> JSONResponse:
        cut = registry.get(call_id).call.discard()
        words = [word.text for word in cut.words]
        return JSONResponse({"cut_ms": round(cut.cut_ms, 1), "heard": cut.heard, "words": words})

    @router.post("/{call_id}/speech")
    async def speak(call_id: str, request: Request) -> JSONResponse:
        line, body = registry.get(call_id), _Body(request, grant_of(request))
        with registry.hold(line):
            outcome = await line.call.speak(body.text(), speech=speech)
            await line.call.wait_played()
        if body.refusal is not None:
            raise body.refusal
        return JSONResponse({"call": call_id, "outcome": outcome.value})

    @router.websocket("/{call_id}/socket")
    async def hold(
        socket: WebSocket, call_id: str, audio: Annotated[Literal["in", "none"], Query()] = "none"
    ) -> None:
        await socket.accept()
        session = _Session(socket, registry, speech, voices)
        code = await session.run(call_id, wants_audio=audio == "in")
        await _close(socket, code)  # the call is let go of: who does not read does not close either

    return router


class _Session:
    """One program on a socket, which may wait for a call, hold it, and leave at any time."""

    def __init__(
        self, socket: WebSocket, registry: CallRegistry, speech: Speech, voices: VoiceRegistry
    ) -> None:
        self._socket = socket
        self._registry = registry
        self._speech = speech
        self._grant = grant_of(socket)
        self._voices = voices.seen_by(self._grant)
        self._held: tuple[Call, Speaker] | None = None
        self._early: deque[ClientMessage] = deque()  # that came before the call
        self._early_characters = 0
        self._sending = asyncio.Lock()

    async def run(self, call_id: str, *, wants_audio: bool) -> int:
        """Serve until the call is over or the socket is gone; answers the code to close it with.

        The call itself goes on without its holder.
        """
        holding = asyncio.create_task(self._hold(call_id, wants_audio=wants_audio))
        taking = asyncio.create_task(self._take())
        try:
            await asyncio.wait({holding, taking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (holding, taking):
                task.cancel()
            ends = await asyncio.gather(holding, taking, return_exceptions=True)
        if any(isinstance(end, WebSocketDisconnect) for end in ends):
            return CLOSE_NORMALLY  # whatever else failed did so for it
        return await self._tell_end(next((end for end in ends if isinstance(end, Exception)), None))

    async def _tell_end(self, error: Exception | None) -> int:
        match error:
            case None:
                return CLOSE_NORMALLY
            case Overrun() | TimeoutError():
                return CLOSE_TOO_SLOW
            case CallUnknown() | CallHeld():
                with suppress(WebSocketDisconnect, TimeoutError):
                    await self._send(describe_error(error))
                return CLOSE_UNKNOWN if isinstance(error, CallUnknown) else CLOSE_HELD
            case _:
                logger.error("Holding a call failed", exc_info=error)
                return CLOSE_FAILED

    async def _hold(self, call_id: str, *, wants_audio: bool) -> None:
        registry = self._registry
        line = await registry.next_free() if call_id == NEXT else registry.get(call_id)
        with registry.hold(line), line.call.events.follow(wants_audio=wants_audio) as follower:
            speaker = Speaker(line.call, self._speech, self._tell_failure, self._grant.charge_characters)
            try:
                await self._send({"type": "started", **_line(line)})
                while self._early:
                    await self._obey(line.call, speaker, self._early.popleft())
                self._held = line.call, speaker
                await self._tell(follower)
            finally:
                await speaker.aclose()

    async def _tell_failure(self) -> None:
        with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):  # others notice these, too
            await self._send({"type": "error", "message": NOT_SPOKEN})

    async def _tell(self, follower: Follower) -> None:
        async for event in follower:
            if isinstance(event, CallerAudio):
                async with asyncio.timeout(SEND_WITHIN_S):
                    await self._socket.send_bytes(event.pcm)
            else:
                await self._send(describe(event))

    async def _take(self) -> None:
        while (received := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                message = self._read(received.get("text"))
            except BadMessage as error:
                await self._send(describe_error(error))
                continue
            if self._held is None:
                self._early.append(message)
            else:
                await self._obey(*self._held, message)

    def _read(self, text: str | None) -> ClientMessage:
        if text is None:
            raise BadMessage("binary messages are not taken; send JSON text")
        message = parse(text)
        if self._held is None:
            if self._early_characters + len(text) > MOST_WAITING:
                raise BadMessage(f"more than {MOST_WAITING} characters are waiting for the call")
            self._early_characters += len(text)
        return message

    async def _obey(self, call: Call, speaker: Speaker, message: ClientMessage) -> None:
        try:
            self._do(call, speaker, message)
        except VivavoceError as error:
            await self._send(describe_error(error))

    def _do(self, call: Call, speaker: Speaker, message: ClientMessage) -> None:
        match message:
            case TextMessage(text=text):
                speaker.push(text)
            case CommandMessage(type="flush"):
                speaker.push(Command.FLUSH)
            case CommandMessage(type="end"):
                speaker.end()
            case CommandMessage(type="discard"):
                speaker.discard()
            case CommandMessage():
                call.hang_up("hung up by the calls API")
            case SpeechMessage(voice=voice, speed=speed):
                voice = self._voices.resolve(voice)
                speaker.speech = replace(speaker.speech, voice=voice, speed=speed)
            case OnSpeechMessage(action=action):
                call.on_speech = action
            case _:
                assert_never(message)

    async def _send(self, message: dict[str, object]) -> None:
        async with self._sending, asyncio.timeout(SEND_WITHIN_S):
            await self._socket.send_text(json.dumps(message))


def _line(line: Line) -> dict[str, object]:
    return {
        "call": line.call.call_id,
        "kind": line.kind,
        "peer": line.peer,
        "opened_at": round(line.opened_at, 3),
        "held": line.held,
        "sample_rate": line.call.sample_rate,
    }


class _Body:
    """A request's body as text, charged as it arrives. refusal: why it ended before its end, if it did."""

    def __init__(self, request: Request, grant: Grant) -> None:
        self.refusal: RateLimited | KeyRefused | None = None
        self._request = request
        self._grant = grant
        self._taken = 0  # characters

    async def text(self) -> AsyncGenerator[str, None]:
        """What is paid for; what comes after a piece that is too much is not read."""
        async with aclosing(_decoded(self._request)) as pieces:
            async for piece in pieces:
                try:
                    self._grant.charge_characters(len(piece))
                except KeyRefused as error:
                    self.refusal = error
                    return
                except RateLimited as error:
                    sentence = f"{error}; {self._taken} characters of this text were taken"
                    self.refusal = RateLimited(sentence, error.retry_after_s)
                    return
                self._taken += len(piece)
                yield piece


async def _decoded(request: Request) -> AsyncGenerator[str, None]:
    """The body as it arrives; a broken character is replaced, not fatal."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with suppress(ClientDisconnect):  # what was sent before that is said
        async for piece in request.stream():
            if text := decoder.decode(piece):
                yield text
    if text := decoder.decode(b"", final=True):
        yield text


async def _close(socket: WebSocket, code: int) -> None:
    if WebSocketState.DISCONNECTED in (socket.client_state, socket.application_state):
        return
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(SEND_WITHIN_S):
            await socket.close(code)
