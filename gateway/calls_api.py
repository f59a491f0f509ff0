"""The calls API: list calls, hold one over a WebSocket, speak, discard, hang up. For every kind of call.

    GET    /v1/calls                     the calls that are up
    GET    /v1/calls/{id}
    POST   /v1/calls/{id}/speech         the request's body, text/plain, spoken as it arrives
    POST   /v1/calls/{id}/discard        barge-in: how much was cut, what had been heard
    DELETE /v1/calls/{id}                hang up
    WS     /v1/calls/{id}/socket         hold the call; id "next" waits for one that nobody holds
                                         ?audio=in sends the caller's audio as binary messages

Text messages of the socket are JSON objects with a "type":

    to us    text {text} | flush | end | discard | hang_up | speech {voice, speed} | on_speech {action}
    from us  started | speech_started | word | speech_finished | discarded | caller_speaking |
             caller_silent | dtmf | error | hung_up

"text" begins an utterance or adds to it, "end" ends it; the next "text" begins another, said after it.
"""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal, assert_never

from fastapi import APIRouter, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocketState

from ..tts_engine.errors import VivavoceError
from .access.guard import grant_of
from .call import Call, OnSpeech, Outcome, Speech
from .call_events import (
    CallerAudio,
    CallerSilent,
    CallerSpeaking,
    CallEvent,
    Follower,
    HungUp,
    KeyPressed,
    Overrun,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    WordHeard,
)
from .call_registry import CallHeld, CallRegistry, CallUnknown, Line
from .text_feed import Command, Delta, weight
from .voice_registry import VoiceRegistry

MOST_TEXT = 64 * 1024  # characters in one message
MOST_WAITING = 256 * 1024  # characters not yet pushed into a stream, all utterances together
MOST_UTTERANCES = 1_000  # being spoken or waiting; nobody waits for so many sentences
SEND_WITHIN_S = 5.0  # a socket that takes nothing for so long is closed
NEXT = "next"

# Close codes of the application's range, after HTTP's numbers.
CLOSE_UNKNOWN, CLOSE_HELD, CLOSE_TOO_SLOW = 4404, 4409, 4408
CLOSE_NORMALLY = 1000


class Message(BaseModel):
    """What a client says; a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextMessage(Message):
    """A piece of text, split anywhere."""

    type: Literal["text"]
    text: Annotated[str, Field(max_length=MOST_TEXT)]


class CommandMessage(Message):
    """A message without anything else."""

    type: Literal["flush", "end", "discard", "hang_up"]


class SpeechMessage(Message):
    """How the next utterances are said."""

    type: Literal["speech"]
    voice: str | None = None
    speed: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0


class OnSpeechMessage(Message):
    """What happens when the caller begins to speak."""

    type: Literal["on_speech"]
    action: OnSpeech


ClientMessage = TextMessage | CommandMessage | SpeechMessage | OnSpeechMessage
_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


class BadMessage(VivavoceError):
    """A message that the protocol does not have; the sentence says what is wrong with it."""


def parse(message: str) -> ClientMessage:
    """One text message of a client; raises BadMessage."""
    try:
        return _CLIENT_MESSAGE.validate_json(message)
    except ValidationError as error:
        raise BadMessage(complaint(error, "message")) from None


def complaint(error: ValidationError, whole: str) -> str:
    """The first thing that is wrong, and where; ``whole``: what it is called where all of it is wrong."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place or whole}: {first['msg']}"


def describe(event: CallEvent) -> dict[str, object]:
    """An event as the JSON object that is sent for it; the caller's audio goes as bytes instead."""
    match event:
        case SpeechStarted(utterance):
            return {"type": "speech_started", "utterance": utterance}
        case WordHeard(utterance, word):
            return {
                "type": "word",
                "utterance": utterance,
                "text": word.text,
                "text_start": word.text_start,
                "text_stop": word.text_stop,
                "start_s": round(word.start_s, 4),
                "stop_s": round(word.stop_s, 4),
            }
        case SpeechFinished(utterance, outcome):
            return {"type": "speech_finished", "utterance": utterance, "outcome": outcome}
        case SpeechDiscarded(utterance, cut_ms, heard):
            return {
                "type": "discarded",
                "utterance": utterance,
                "cut_ms": round(cut_ms, 1),
                "heard": heard,
            }
        case CallerSpeaking():
            return {"type": "caller_speaking"}
        case CallerSilent():
            return {"type": "caller_silent"}
        case KeyPressed(digit):
            return {"type": "dtmf", "digit": digit}
        case HungUp():
            return {"type": "hung_up"}
        case CallerAudio(_, sample_rate):
            return {"type": "audio", "sample_rate": sample_rate}
        case _:
            assert_never(event)


class Speaker:
    """Turns text messages into utterances of one call, one after the other."""

    def __init__(self, call: Call, speech: Speech) -> None:
        self.speech = speech
        self._call = call
        self._open: asyncio.Queue[Delta | None] | None = None  # of the utterance being written
        self._waiting = 0
        self._speaking: set[asyncio.Task[Outcome]] = set()

    def push(self, delta: Delta) -> None:
        """Add to the utterance, or begin one; raises BadMessage if too much is waiting."""
        if self._waiting + weight(delta) > MOST_WAITING:
            raise BadMessage(f"more than {MOST_WAITING} characters are waiting to be spoken")
        if self._open is None and len(self._speaking) >= MOST_UTTERANCES:
            raise BadMessage(f"{MOST_UTTERANCES} utterances are waiting to be spoken")
        self._waiting += weight(delta)
        if self._open is None:
            self._open = asyncio.Queue()
            task = asyncio.create_task(self._call.speak(self._deltas(self._open), speech=self.speech))
            self._speaking.add(task)
            task.add_done_callback(self._speaking.discard)
        self._open.put_nowait(delta)

    def end(self) -> None:
        """The utterance is written."""
        if self._open is not None:
            self._open.put_nowait(None)
            self._open = None

    def discard(self) -> None:
        """Barge-in; utterances that wait are not said either."""
        self.end()
        self._waiting = 0
        self._call.discard()

    async def aclose(self) -> None:
        """End what is being written, and say no more."""
        self.end()
        for task in self._speaking:
            task.cancel()
        await asyncio.gather(*self._speaking, return_exceptions=True)

    async def _deltas(self, queue: asyncio.Queue[Delta | None]) -> AsyncIterator[Delta]:
        while (delta := await queue.get()) is not None:
            self._waiting = max(0, self._waiting - weight(delta))
            yield delta


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
        line = registry.get(call_id)
        with registry.hold(line):
            outcome = await line.call.speak(_body(request), speech=speech)
            await line.call.wait_played()
        return JSONResponse({"call": call_id, "outcome": outcome.value})

    @router.websocket("/{call_id}/socket")
    async def hold(
        socket: WebSocket, call_id: str, audio: Annotated[Literal["in", "none"], Query()] = "none"
    ) -> None:
        await socket.accept()
        try:
            line = await registry.next_free() if call_id == NEXT else registry.get(call_id)
            with registry.hold(line), line.call.events.follow(wants_audio=audio == "in") as follower:
                session = _Session(socket, line, follower, speech, voices)
                code = await session.run()
            await _close(socket, code)  # let go of the call first: who does not read does not close either
        except CallUnknown as error:
            await _refuse(socket, CLOSE_UNKNOWN, str(error))
        except CallHeld as error:
            await _refuse(socket, CLOSE_HELD, str(error))

    return router


class _Session:
    """One program holding one call over a socket."""

    def __init__(
        self, socket: WebSocket, line: Line, follower: Follower, speech: Speech, voices: VoiceRegistry
    ) -> None:
        self._socket = socket
        self._voices, self._grant = voices, grant_of(socket)
        self._line = line
        self._follower = follower
        self._speaker = Speaker(line.call, speech)
        self._sending = asyncio.Lock()

    async def run(self) -> int:
        """Serve until the call is over or the socket is gone; answers the code to close it with.

        The call itself goes on without its holder.
        """
        await self._send({"type": "started", **_line(self._line)})
        telling, taking = asyncio.create_task(self._tell()), asyncio.create_task(self._take())
        try:
            await asyncio.wait({telling, taking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, taking):
                task.cancel()
            told, took = await asyncio.gather(telling, taking, return_exceptions=True)
            await self._speaker.aclose()
        is_too_slow = isinstance(told, Overrun | TimeoutError) or isinstance(took, TimeoutError)
        return CLOSE_TOO_SLOW if is_too_slow else CLOSE_NORMALLY

    async def _tell(self) -> None:
        async for event in self._follower:
            if isinstance(event, CallerAudio):
                await asyncio.wait_for(self._socket.send_bytes(event.pcm), SEND_WITHIN_S)
            else:
                await self._send(describe(event))

    async def _take(self) -> None:
        with suppress(WebSocketDisconnect):
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._answer(message.get("text"))

    async def _answer(self, text: str | None) -> None:
        try:
            if text is None:
                raise BadMessage("binary messages are not taken; send JSON text")
            self._do(parse(text))
        except VivavoceError as error:
            await self._send({"type": "error", "message": str(error)})

    def _do(self, message: ClientMessage) -> None:
        match message:
            case TextMessage(text=text):
                self._speaker.push(text)
            case CommandMessage(type="flush"):
                self._speaker.push(Command.FLUSH)
            case CommandMessage(type="end"):
                self._speaker.end()
            case CommandMessage(type="discard"):
                self._speaker.discard()
            case CommandMessage():
                self._line.call.hang_up("hung up by the calls API")
            case SpeechMessage(voice=voice, speed=speed):
                voice = self._voices.resolve(voice, self._grant)
                self._speaker.speech = replace(self._speaker.speech, voice=voice, speed=speed)
            case OnSpeechMessage(action=action):
                self._line.call.on_speech = action
            case _:
                assert_never(message)

    async def _send(self, message: dict[str, object]) -> None:
        async with self._sending:
            await asyncio.wait_for(self._socket.send_text(json.dumps(message)), SEND_WITHIN_S)


def _line(line: Line) -> dict[str, object]:
    return {
        "call": line.call.call_id,
        "kind": line.kind,
        "peer": line.peer,
        "opened_at": round(line.opened_at, 3),
        "held": line.held,
        "sample_rate": line.call.sample_rate,
    }


async def _body(request: Request) -> AsyncIterator[str]:
    """The body as text, decoded as it arrives; a broken character is replaced, not fatal."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for piece in request.stream():
        if text := decoder.decode(piece):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


async def _refuse(socket: WebSocket, code: int, sentence: str) -> None:
    await socket.send_text(json.dumps({"type": "error", "message": sentence}))
    await _close(socket, code)


async def _close(socket: WebSocket, code: int) -> None:
    if WebSocketState.DISCONNECTED in (socket.client_state, socket.application_state):
        return
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(SEND_WITHIN_S):
            await socket.close(code)
