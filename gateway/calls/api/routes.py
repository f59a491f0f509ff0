"""The calls API: list calls, attach to one over a WebSocket, speak, discard, hang up. For every kind of call.

    GET    /v1/calls                     the calls that are up
    GET    /v1/calls/{id}
    POST   /v1/calls/{id}/speech         speak the request's body, plain text or SSML, as it arrives
    POST   /v1/calls/{id}/discard        barge-in: how much was cut, what had been heard
    DELETE /v1/calls/{id}                hang up; ?result= is kept for the telephone system
    POST   /v1/calls/{id}/recording      record from now on; DELETE ends the recording
    POST   /v1/calls/{id}/transfer       hang up, and transfer the caller
    GET    /v1/calls/{id}/result         what a program decided on a call that is over
    POST   /v1/calls/expected            announce a call, with its caller, before it comes in
    WS     /v1/calls/{id}/socket         attach to the call; id "next" waits for one without a program
                                         ?audio=in also sends the caller's audio, as binary messages
                                         of s16le mono, at the rate in the `audio` message before them
                                         ?events=all also sends text as it is written, and counters

The messages on the socket are those of ``messages``. A program attaches exclusively: one at a time, over the
socket or with POST speech. Text that begins with ``<speak`` is an SSML document. Text is charged to the key
of the program that sends it. After a barge-in that the program did not send, text of the interrupted
utterance is refused up to the next ``end`` or ``discard``.
"""

import codecs
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, WebSocket
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from ....adapters.ssml import BadSsml, SsmlDocument
from ....adapters.ssml_input import SsmlInput
from ....tts_engine.errors import BadRequest, LanguageNotSpoken, UnreadableText
from ...access.access_control import Grant
from ...access.dependencies import grant_of
from ...access.errors import KeyRefused, RateLimited, RequestTooLarge
from ...voice_registry import VoiceRegistry
from ...web.responses import ErrorBody
from ...web.unmatched import ErrorFormat
from ...web.websocket import close_socket
from ..call_options import CallSpeechOptions
from ..expected_calls import ExpectedCalls
from ..registry import CallRegistry
from ..utterance_tracker import UtteranceOutcome
from . import operations
from .descriptions import describe_call
from .dial_plan_routes import add_dial_plan_routes
from .messages import MAX_RESULT_CHARACTERS, BadCallMessage
from .program_socket import HANG_UP_REASON, ProgramOptions, ProgramSocket
from .recording_routes import add_recording_routes

# Other paths below /v1 are OpenAI's.
ERROR_FORMAT = ErrorFormat("/v1/calls", lambda status, message: ErrorBody(error=message))


def routes(
    registry: CallRegistry, expected: ExpectedCalls, speech: CallSpeechOptions, voices: VoiceRegistry
) -> APIRouter:
    """Return the routes, to be mounted behind access control.

    Args:
        expected: takes the announcements of calls.
        speech: how calls are spoken on until a client sends ``speech``.
        voices: that clients may name.
    """
    router = APIRouter(prefix="/v1/calls")
    add_dial_plan_routes(router, registry, expected)
    add_recording_routes(router, registry)

    @router.get("", **operations.LIST_CALLS)
    async def list_calls() -> JSONResponse:
        return JSONResponse({"calls": [describe_call(active_call).fields() for active_call in registry]})

    @router.get("/{call_id}", **operations.GET_CALL)
    async def get_call(call_id: str) -> JSONResponse:
        return JSONResponse(describe_call(registry.get(call_id)).fields())

    @router.delete("/{call_id}", **operations.HANG_UP)
    async def hang_up(call_id: str, result: str = "") -> JSONResponse:
        call = registry.get(call_id).call
        if len(result) > MAX_RESULT_CHARACTERS:
            raise BadCallMessage(f"result: at most {MAX_RESULT_CHARACTERS} characters are kept")
        call.result = replace(call.result, value=result)
        call.hang_up(HANG_UP_REASON)
        return JSONResponse({"call": call_id, "status": "hung up"})

    @router.post("/{call_id}/discard", **operations.DISCARD)
    async def discard(call_id: str) -> JSONResponse:
        cut = await registry.get(call_id).call.discard()
        words = [word.text for word in cut.words]
        return JSONResponse(
            {"cut_ms": round(cut.cut_ms, 1), "heard": cut.heard, "words": words, "marks": [*cut.marks]}
        )

    @router.post("/{call_id}/speech", **operations.SPEAK)
    async def speak(call_id: str, request: Request) -> JSONResponse:
        active_call, body = registry.get(call_id), _ChargedBody(request, grant_of(request))
        call = active_call.call
        text = body.documents(lambda document: call.require_languages(document, speech.voice))
        with registry.attach(active_call):
            outcome = await call.speak(text, speech=speech)
            await call.wait_played()
        if body.refusal is not None:
            raise body.refusal
        if outcome is UtteranceOutcome.UNREADABLE:
            raise UnreadableText()
        return JSONResponse({"call": call_id, "outcome": outcome.value})

    @router.websocket("/{call_id}/socket")
    async def attach(
        socket: WebSocket,
        call_id: str,
        audio: Annotated[Literal["in", "none"], Query()] = "none",
        events: Annotated[Literal["basic", "all"], Query()] = "basic",
    ) -> None:
        await socket.accept()
        options = ProgramOptions(caller_audio=audio == "in", all_events=events == "all")
        code = await ProgramSocket(socket, registry, speech, voices, options).run(call_id)
        # Last, because a program that does not read does not complete the closing handshake either.
        await close_socket(socket, code)

    return router


class _ChargedBody:
    """A request's body as text, which may be SSML, charged as it arrives."""

    def __init__(self, request: Request, grant: Grant) -> None:
        # Why the text ended before the body did.
        self.refusal: BadRequest | None = None
        self._request = request
        self._grant = grant
        self._charged_characters = 0

    async def documents(self, check: Callable[[SsmlDocument], None]) -> AsyncGenerator[SsmlDocument, None]:
        """Yield the text up to the first piece that is refused; the rest of the body is not read.

        check: raises LanguageNotSpoken.
        """
        ssml_input = SsmlInput()
        try:
            async with aclosing(_decode_body(self._request)) as pieces:
                async for piece in pieces:
                    self._charge(len(piece))
                    for document in ssml_input.push(piece):
                        check(document)
                        yield document
            for document in ssml_input.flush():
                check(document)
                yield document
        except (KeyRefused, RequestTooLarge, RateLimited, BadSsml, LanguageNotSpoken) as error:
            self.refusal = error

    def _charge(self, characters: int) -> None:
        try:
            self._grant.charge_characters(characters)
        except RateLimited as error:
            sentence = f"{error}; {self._charged_characters} characters of this text were taken"
            raise RateLimited(sentence, error.retry_after_s) from None
        self._charged_characters += characters


async def _decode_body(request: Request) -> AsyncGenerator[str, None]:
    """Yield the body as it arrives; invalid UTF-8 becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with suppress(ClientDisconnect):  # the text before it is spoken
        async for piece in request.stream():
            if text := decoder.decode(piece):
                yield text
    if text := decoder.decode(b"", final=True):
        yield text
