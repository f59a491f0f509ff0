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

from ...tts_engine.errors import VivavoceError
from ..access.access_control import Grant
from ..access.dependencies import grant_of
from ..access.errors import KeyRefused, RateLimited
from ..voice_registry import VoiceRegistry
from .call import Call, CallSpeechOptions, UtteranceOutcome
from .events import CallerAudio, EventQueueOverrun, EventSubscription
from .messages import (
    MAX_WAITING_CHARACTERS,
    SPEECH_FAILED_MESSAGE,
    BadCallMessage,
    CallerSpeechActionMessage,
    ClientMessage,
    CommandMessage,
    SpeechMessage,
    TextMessage,
    describe_error,
    describe_event,
    parse_client_message,
)
from .registry import ActiveCall, CallAlreadyAttached, CallRegistry, CallUnknown
from .text_feed import CharacterQuota, TextBuffer, TextCommand, TextDelta, waiting_characters_of

logger = logging.getLogger(__name__)

MAX_WAITING_UTTERANCES = 1_000  # being spoken or waiting; nobody waits for so many sentences
SEND_TIMEOUT_S = 5.0  # a socket that takes nothing for so long is closed
NEXT_CALL_ID = "next"

# Close codes of the application's range, after HTTP's numbers.
CLOSE_UNKNOWN, CLOSE_ALREADY_ATTACHED, CLOSE_TOO_SLOW = 4404, 4409, 4408
CLOSE_NORMAL, CLOSE_FAILED = 1000, 1011


class UtteranceQueue:
    """Turns text messages into utterances of one call, one after the other; tells of those that failed.

    charge: as ``Meter`` takes it.
    """

    def __init__(
        self,
        call: Call,
        speech: CallSpeechOptions,
        on_failed: Callable[[], Awaitable[None]],
        charge: Callable[[int], None],
    ) -> None:
        self.speech = speech
        self._call = call
        self._on_failed = on_failed
        self._quota = CharacterQuota(charge)
        self._open_buffer: TextBuffer | None = None  # not yet ended
        self._buffers: set[TextBuffer] = set()  # being spoken or waiting for it
        self._speak_tasks: set[asyncio.Task[None]] = set()

    def push(self, delta: TextDelta) -> None:
        """Add to the utterance, or begin one; raises BadCallMessage if too much is waiting, or as ``Meter``."""
        self._check_room(delta)
        if not self._quota.accept(delta):
            return
        if self._open_buffer is None:
            self._open_buffer = self._begin_utterance()
        self._open_buffer.push(delta)

    def end(self) -> None:
        """The utterance is written."""
        self._quota.end()
        if self._open_buffer is not None:
            self._open_buffer.end()
            self._open_buffer = None

    def discard(self) -> None:
        """Barge-in; utterances that wait are not said either."""
        self.end()
        self._buffers.clear()
        self._call.discard()

    async def aclose(self) -> None:
        """End what is being written, and say no more."""
        self.end()
        for task in self._speak_tasks:
            task.cancel()
        await asyncio.gather(*self._speak_tasks, return_exceptions=True)

    def _check_room(self, delta: TextDelta) -> None:
        if (
            sum(buffer.queued_characters for buffer in self._buffers) + waiting_characters_of(delta)
            > MAX_WAITING_CHARACTERS
        ):
            raise BadCallMessage(f"more than {MAX_WAITING_CHARACTERS} characters are waiting to be spoken")
        if self._open_buffer is None and len(self._buffers) >= MAX_WAITING_UTTERANCES:
            raise BadCallMessage(f"{MAX_WAITING_UTTERANCES} utterances are waiting to be spoken")

    def _begin_utterance(self) -> TextBuffer:
        buffer = TextBuffer()
        self._buffers.add(buffer)
        task = asyncio.create_task(self._speak(buffer, self.speech))
        self._speak_tasks.add(task)
        task.add_done_callback(self._speak_tasks.discard)
        return buffer

    async def _speak(self, buffer: TextBuffer, speech: CallSpeechOptions) -> None:
        try:
            outcome = await self._call.speak(buffer.deltas(), speech=speech)
        finally:
            self._buffers.discard(buffer)
        if outcome is UtteranceOutcome.FAILED:
            await self._on_failed()


def routes(registry: CallRegistry, speech: CallSpeechOptions, voices: VoiceRegistry) -> APIRouter:
    """The routes, mounted behind ``guard.requires``.

    speech: how calls are spoken on unless a client says otherwise. voices: that clients may name.
    """
    router = APIRouter(prefix="/v1/calls")

    @router.get("")
    async def list_calls() -> JSONResponse:
        return JSONResponse({"calls": [_describe_call(active_call) for active_call in registry]})

    @router.get("/{call_id}")
    async def get_call(call_id: str) -> JSONResponse:
        return JSONResponse(_describe_call(registry.get(call_id)))

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
        active_call, body = registry.get(call_id), _ChargedBody(request, grant_of(request))
        with registry.attach(active_call):
            outcome = await active_call.call.speak(body.text(), speech=speech)
            await active_call.call.wait_played()
        if body.refusal is not None:
            raise body.refusal
        return JSONResponse({"call": call_id, "outcome": outcome.value})

    @router.websocket("/{call_id}/socket")
    async def hold(
        socket: WebSocket, call_id: str, audio: Annotated[Literal["in", "none"], Query()] = "none"
    ) -> None:
        await socket.accept()
        call_socket = _CallSocket(socket, registry, speech, voices)
        code = await call_socket.run(call_id, wants_audio=audio == "in")
        await _close_socket(socket, code)  # the call is let go of: who does not read does not close either

    return router


class _CallSocket:
    """One program on a socket, which may wait for a call, hold it, and leave at any time."""

    def __init__(
        self, socket: WebSocket, registry: CallRegistry, speech: CallSpeechOptions, voices: VoiceRegistry
    ) -> None:
        self._socket = socket
        self._registry = registry
        self._speech = speech
        self._grant = grant_of(socket)
        self._voices = voices.for_grant(self._grant)
        self._attached: tuple[Call, UtteranceQueue] | None = None
        self._early_messages: deque[ClientMessage] = deque()  # that came before the call
        self._early_characters = 0
        self._send_lock = asyncio.Lock()

    async def run(self, call_id: str, *, wants_audio: bool) -> int:
        """Serve until the call is over or the socket is gone; answers the code to close it with.

        The call itself goes on without its holder.
        """
        attaching = asyncio.create_task(self._attach(call_id, wants_audio=wants_audio))
        receiving = asyncio.create_task(self._receive_messages())
        try:
            await asyncio.wait({attaching, receiving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (attaching, receiving):
                task.cancel()
            ends = await asyncio.gather(attaching, receiving, return_exceptions=True)
        if any(isinstance(end, WebSocketDisconnect) for end in ends):
            return CLOSE_NORMAL  # whatever else failed did so for it
        return await self._report_end(next((end for end in ends if isinstance(end, Exception)), None))

    async def _report_end(self, error: Exception | None) -> int:
        match error:
            case None:
                return CLOSE_NORMAL
            case EventQueueOverrun() | TimeoutError():
                return CLOSE_TOO_SLOW
            case CallUnknown() | CallAlreadyAttached():
                with suppress(WebSocketDisconnect, TimeoutError):
                    await self._send(describe_error(error))
                return CLOSE_UNKNOWN if isinstance(error, CallUnknown) else CLOSE_ALREADY_ATTACHED
            case _:
                logger.error("Holding a call failed", exc_info=error)
                return CLOSE_FAILED

    async def _attach(self, call_id: str, *, wants_audio: bool) -> None:
        registry = self._registry
        active_call = await registry.next_unattached() if call_id == NEXT_CALL_ID else registry.get(call_id)
        with (
            registry.attach(active_call),
            active_call.call.events.subscribe(wants_audio=wants_audio) as subscription,
        ):
            utterances = UtteranceQueue(
                active_call.call, self._speech, self._report_failure, self._grant.charge_characters
            )
            try:
                await self._send({"type": "started", **_describe_call(active_call)})
                while self._early_messages:
                    await self._execute_or_report(
                        active_call.call, utterances, self._early_messages.popleft()
                    )
                self._attached = active_call.call, utterances
                await self._send_events(subscription)
            finally:
                await utterances.aclose()

    async def _report_failure(self) -> None:
        with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):  # others notice these, too
            await self._send({"type": "error", "message": SPEECH_FAILED_MESSAGE})

    async def _send_events(self, subscription: EventSubscription) -> None:
        async for event in subscription:
            if isinstance(event, CallerAudio):
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._socket.send_bytes(event.pcm)
            else:
                await self._send(describe_event(event))

    async def _receive_messages(self) -> None:
        while (received := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                message = self._parse(received.get("text"))
            except BadCallMessage as error:
                await self._send(describe_error(error))
                continue
            if self._attached is None:
                self._early_messages.append(message)
            else:
                await self._execute_or_report(*self._attached, message)

    def _parse(self, text: str | None) -> ClientMessage:
        if text is None:
            raise BadCallMessage("binary messages are not taken; send JSON text")
        message = parse_client_message(text)
        if self._attached is None:
            if self._early_characters + len(text) > MAX_WAITING_CHARACTERS:
                raise BadCallMessage(
                    f"more than {MAX_WAITING_CHARACTERS} characters are waiting for the call"
                )
            self._early_characters += len(text)
        return message

    async def _execute_or_report(
        self, call: Call, utterances: UtteranceQueue, message: ClientMessage
    ) -> None:
        try:
            self._execute(call, utterances, message)
        except VivavoceError as error:
            await self._send(describe_error(error))

    def _execute(self, call: Call, utterances: UtteranceQueue, message: ClientMessage) -> None:
        match message:
            case TextMessage(text=text):
                utterances.push(text)
            case CommandMessage(type="flush"):
                utterances.push(TextCommand.FLUSH)
            case CommandMessage(type="end"):
                utterances.end()
            case CommandMessage(type="discard"):
                utterances.discard()
            case CommandMessage():
                call.hang_up("hung up by the calls API")
            case SpeechMessage(voice=voice, speed=speed):
                voice = self._voices.resolve(voice)
                utterances.speech = replace(utterances.speech, voice=voice, speed=speed)
            case CallerSpeechActionMessage(action=action):
                call.caller_speech_action = action
            case _:
                assert_never(message)

    async def _send(self, message: dict[str, object]) -> None:
        async with self._send_lock, asyncio.timeout(SEND_TIMEOUT_S):
            await self._socket.send_text(json.dumps(message))


def _describe_call(active_call: ActiveCall) -> dict[str, object]:
    return {
        "call": active_call.call.call_id,
        "kind": active_call.kind,
        "peer": active_call.peer,
        "opened_at": round(active_call.opened_at, 3),
        "held": active_call.attached,
        "sample_rate": active_call.call.sample_rate,
    }


class _ChargedBody:
    """A request's body as text, charged as it arrives. refusal: why it ended before its end, if it did."""

    def __init__(self, request: Request, grant: Grant) -> None:
        self.refusal: RateLimited | KeyRefused | None = None
        self._request = request
        self._grant = grant
        self._charged_characters = 0  # characters

    async def text(self) -> AsyncGenerator[str, None]:
        """What is paid for; what comes after a piece that is too much is not read."""
        async with aclosing(_decode_body(self._request)) as pieces:
            async for piece in pieces:
                try:
                    self._grant.charge_characters(len(piece))
                except KeyRefused as error:
                    self.refusal = error
                    return
                except RateLimited as error:
                    sentence = f"{error}; {self._charged_characters} characters of this text were taken"
                    self.refusal = RateLimited(sentence, error.retry_after_s)
                    return
                self._charged_characters += len(piece)
                yield piece


async def _decode_body(request: Request) -> AsyncGenerator[str, None]:
    """The body as it arrives; a broken character is replaced, not fatal."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with suppress(ClientDisconnect):  # what was sent before that is said
        async for piece in request.stream():
            if text := decoder.decode(piece):
                yield text
    if text := decoder.decode(b"", final=True):
        yield text


async def _close_socket(socket: WebSocket, code: int) -> None:
    if WebSocketState.DISCONNECTED in (socket.client_state, socket.application_state):
        return
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await socket.close(code)
