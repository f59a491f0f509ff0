"""The part of the calls API that speaks the body of a request, plays a file, or presses keys."""

import codecs
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from ....adapters.ssml.document import BadSsml, SsmlDocument
from ....adapters.ssml.input import SsmlInput
from ....tts_engine.errors import BadRequest, LanguageNotSpoken, UnreadableText
from ...access.access_control import Grant
from ...access.errors import KeyRefused, RateLimited, RequestTooLarge
from ...sliced_inputs import run_in_slices
from ...voice_registry import VoiceRegistry
from ..call_options import CallSpeechOptions
from ..registry import CallRegistry
from ..utterance_tracker import UtteranceOutcome
from . import operations
from .key_calls import KeyCalls
from .messages import KeysOrder, SoundToPlay
from .request_bodies import read_order


def add_speech_routes(
    router: APIRouter, registry: CallRegistry, speech: CallSpeechOptions, voices: VoiceRegistry
) -> None:
    """Add the routes to the router of the calls API. speech: how calls are spoken on."""

    @router.post("/{call_id}/speech", **operations.SPEAK)
    async def speak(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        active_call, body = calls.get(call_id), _ChargedBody(request, calls.grant)
        call = active_call.call
        calls.grant.charge_request()
        text = body.documents(lambda document: call.speech.require_languages(document, speech.voice))
        with calls.grant.stream(), calls.attach(active_call):
            options = speech.for_grant(calls.grant, voices.for_grant(calls.grant))
            outcome = await call.speech.speak(text, speech=options)
            await call.speech.wait_played()
        if body.refusal is not None:
            raise body.refusal
        if outcome is UtteranceOutcome.UNREADABLE:
            raise UnreadableText()
        return JSONResponse({"call": call_id, "outcome": outcome.value})

    @router.post("/{call_id}/play", **operations.PLAY)
    async def play(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        active_call = calls.get(call_id)
        call = active_call.call
        calls.grant.charge_request()
        sound = await read_order(request, SoundToPlay)
        file = call.sounds.find(sound.file, sound.marks)
        with calls.grant.stream(), calls.attach(active_call):
            outcome = await call.speech.play_file(file, call.speech.begin_turn())
            await call.speech.wait_played()
        return JSONResponse({"call": call_id, "file": sound.file, "outcome": outcome.value})

    @router.post("/{call_id}/keys", **operations.SEND_KEYS)
    async def send_keys(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        calls.grant.charge_request()
        keys = await read_order(request, KeysOrder)
        await calls.get(call_id).call.send_keys(keys.digits)
        return JSONResponse({"call": call_id, "digits": keys.digits})


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
                    for document in await run_in_slices(ssml_input.push_in_slices(piece)):
                        check(document)
                        yield document
            for document in await run_in_slices(ssml_input.flush_in_slices()):
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
