"""The calls API: list calls, attach to one over a WebSocket, speak, discard, hang up. For every kind of call.

    GET    /v1/calls                     the calls that are up
    GET    /v1/calls/{id}
    POST   /v1/calls/{id}/speech         speak the request's body, plain text or SSML, as it arrives
    POST   /v1/calls/{id}/play           play a sound file of the operator's folder
    POST   /v1/calls/{id}/discard        barge-in: how much was cut, what had been heard
    POST   /v1/calls/{id}/keys           press keys of the far end
    DELETE /v1/calls/{id}                hang up, or cancel what rings; ?result= is kept for the dial plan
    POST   /v1/calls/{id}/recording      record from now on; DELETE ends the recording
    POST   /v1/calls/{id}/transfer       hang up, and transfer the caller
    GET    /v1/calls/{id}/result         what a program decided on a call that is over
    POST   /v1/calls/expected            announce a call, with its caller, before it comes in
    WS     /v1/calls/{id}/socket         attach to the call; id "next" waits for one without a program
                                         ?audio=in also sends the caller's audio, as binary messages
                                         of s16le mono, at the rate in the `audio` message before them
                                         ?events=all also sends text as it is written, and counters
                                         ?keep_s=30 goes on for 30 s after the socket is lost; the next
                                         one has ?received=N, the messages that the program got so far

The messages on the socket are those of ``messages``. A program attaches exclusively: one at a time, over the
socket or with POST speech. Text that begins with ``<speak`` is an SSML document. Text is charged to the key
of the program that sends it. After a barge-in that the program did not send, text of the interrupted
utterance is refused up to the next ``end`` or ``discard``.
"""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query, Request, WebSocket
from fastapi.responses import JSONResponse

from ...access.dependencies import grant_of
from ...voice_registry import VoiceRegistry
from ...web.errors import ErrorBody
from ...web.unmatched import ErrorFormat
from ..call import Call
from ..call_options import CallSpeechOptions
from ..expected_calls import ExpectedCalls
from ..recordings import RecordingFailed
from ..registry import CallRegistry, CallUnknown
from . import operations
from .descriptions import describe_call, describe_discarded, describe_outgoing
from .dial_plan_routes import add_dial_plan_routes
from .key_calls import KeyCalls
from .messages import MAX_RESULT_CHARACTERS, BadCallMessage
from .program_session import ProgramSessions
from .program_socket import HANG_UP_REASON, MAX_KEEP_S, ProgramOptions, ProgramSocket
from .speech_routes import add_speech_routes


def add_recording_routes(router: APIRouter, registry: CallRegistry) -> None:
    """Add the routes to the router of the calls API."""

    @router.post("/{call_id}/recording", **operations.BEGIN_RECORDING)
    async def begin_recording(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        file = await _name_of_file(calls.record(calls.get(call_id)))
        return JSONResponse({"call": call_id, "file": file})

    @router.delete("/{call_id}/recording", **operations.END_RECORDING)
    async def end_recording(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        file = await _name_of_file(calls.stop_recording(calls.get(call_id)))
        if not file:
            raise BadCallMessage("the call is not recorded")
        return JSONResponse({"call": call_id, "file": file})


async def _name_of_file(opened: "asyncio.Future[str]") -> str:
    try:
        return await asyncio.shield(opened)  # others may wait for it too
    except RecordingFailed as error:
        raise HTTPException(503, str(error)) from error


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
    router, sessions = APIRouter(prefix="/v1/calls"), ProgramSessions()
    add_dial_plan_routes(router, registry, expected)
    add_recording_routes(router, registry)
    add_speech_routes(router, registry, speech, voices)

    @router.get("", **operations.LIST_CALLS)
    async def list_calls(request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        return JSONResponse({"calls": [describe_call(active_call).fields() for active_call in calls]})

    @router.get("/{call_id}", **operations.GET_CALL)
    async def get_call(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        try:
            return JSONResponse(describe_call(calls.get(call_id)).fields())
        except CallUnknown:
            if (outgoing := calls.outgoing(call_id)) is None:
                raise
            return JSONResponse(describe_outgoing(outgoing).fields())

    @router.delete("/{call_id}", **operations.HANG_UP)
    async def hang_up(
        call_id: str, request: Request, result: str = "", after_speech: str = ""
    ) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        outgoing = calls.outgoing(call_id)
        if outgoing is not None and not outgoing.is_answered:
            outgoing.cancel()
            return JSONResponse({"call": call_id, "status": "hung up"})
        await _hang_up(calls.get(call_id).call, result, after_speech=after_speech == "true")
        return JSONResponse({"call": call_id, "status": "hung up"})

    @router.post("/{call_id}/discard", **operations.DISCARD)
    async def discard(call_id: str, request: Request) -> JSONResponse:
        cut = await KeyCalls.of(registry, request).get(call_id).call.speech.discard()
        return JSONResponse(describe_discarded(cut))

    @router.websocket("/{call_id}/socket")
    async def attach(
        socket: WebSocket,
        call_id: str,
        audio: Annotated[Literal["in", "none"], Query()] = "none",
        events: Annotated[Literal["basic", "all"], Query()] = "basic",
        keep_s: Annotated[float, Query(ge=0, le=MAX_KEEP_S)] = 0.0,
        received: Annotated[int | None, Query(ge=0)] = None,
    ) -> None:
        options = ProgramOptions(audio == "in", events == "all", keep_s, received)
        grant = grant_of(socket)
        grant.charge_request()
        with grant.rate_limiter.program():
            await socket.accept()
            await ProgramSocket(socket, registry, sessions, speech, voices, options).run(call_id)

    return router


async def _hang_up(call: Call, result: str, *, after_speech: bool) -> None:
    if len(result) > MAX_RESULT_CHARACTERS:
        raise BadCallMessage(f"result: at most {MAX_RESULT_CHARACTERS} characters are kept")
    call.end.set_result(result)
    if after_speech:
        await call.end.hang_up_when_heard(HANG_UP_REASON)
    else:
        call.end.hang_up(HANG_UP_REASON)
