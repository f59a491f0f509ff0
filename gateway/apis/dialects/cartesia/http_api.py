"""Cartesia's HTTP endpoints: ``POST /tts/bytes``, ``POST /tts/sse``, ``GET /voices`` and ``/voices/{id}``."""

import math
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from fastapi import Request

from .....tts_engine.errors import UnknownVoice
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import ListedVoice
from ....web.openapi.operations import ACCESS_ERRORS, error_responses, json_body, json_response, operation
from ...kits.error_table import InvalidField
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import EVENT_STREAM, event_stream, query, speech_errors
from ...kits.request_fields import read_object, validated
from ...kits.speech_response import UNREAD_HEADER_SCHEMA, audio_response
from ...shell.speech import EncodedChunk
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .errors import CARTESIA_ERRORS
from .models import (
    REQUEST,
    AudioChunkMessage,
    CartesiaAnswer,
    CartesiaErrorBody,
    CartesiaErrorMessage,
    CartesiaSpeechRequest,
    CartesiaVoice,
    CartesiaVoiceList,
    DoneMessage,
    TimestampsMessage,
    VoiceListQuery,
    WordTimestamps,
)
from .request_mapping import CARTESIA_NAMES, make_encoding, make_synthesis_options

_ERRORS: Final = speech_errors(CartesiaErrorBody, {400: "A field is invalid.", 404: "No such voice."})
_BYTES: Final = operation(
    "cartesiaSpeech",
    "Speak a transcript: Cartesia's request.",
    audio_response("Audio, while it is made.", "application/octet-stream", "audio/wav", "audio/mpeg"),
    _ERRORS,
    body=json_body(CartesiaSpeechRequest),
)
_EVENTS_EXAMPLE: Final = {
    "model_id": "sonic-3",
    "transcript": "Good morning.",
    "voice": {"mode": "id", "id": "heart"},
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
}
_EVENTS: Final = operation(
    "cartesiaSpeechEvents",
    "Speak a transcript as server-sent events: Cartesia's request.",
    {
        200: {
            "description": "Audio in base64, and the times of words.",
            "headers": UNREAD_HEADER_SCHEMA,
            "content": event_stream(AudioChunkMessage, TimestampsMessage, DoneMessage, CartesiaErrorMessage),
        }
    },
    _ERRORS,
    body=json_body(CartesiaSpeechRequest, example=_EVENTS_EXAMPLE),
)
_VOICES: Final = operation(
    "cartesiaVoices",
    "List the voices, as Cartesia does.",
    json_response(CartesiaVoiceList),
    error_responses(
        CartesiaErrorBody, ACCESS_ERRORS, {400: "A parameter is invalid.", 404: "No such voice."}
    ),
    other_parameters=[
        query("limit", "Voices of a page, 1 to 100; 10 by default.", "integer"),
        query("starting_after", "Id of the last voice of the page before."),
        query("ending_before", "Id of the first voice of the page after."),
        query("q", "Text in the name, the description or the id."),
    ],
)
_VOICE: Final = operation(
    "cartesiaVoice",
    "Describe a voice, as Cartesia does.",
    json_response(CartesiaVoice),
    error_responses(CartesiaErrorBody, ACCESS_ERRORS, {404: "No such voice."}),
    path_parameters=("voice_id",),
)


class CartesiaHttpApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "cartesia"
    errors = CARTESIA_ERRORS
    error_formats = CARTESIA_ERRORS.formats("/tts", "/voices")
    id_header = "cartesia-request-id"

    def __init__(self, server: SpeechServer) -> None:
        super().__init__(server)
        self._started_at = datetime.now(UTC)

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield "POST /tts/bytes", self.speaking(_CartesiaSpeechResponse), _BYTES
        yield "POST /tts/sse", self.speaking(_CartesiaSpeechEvents), _EVENTS
        yield "GET /voices", self.endpoint(self._list_voices), _VOICES
        yield "GET /voices/{voice_id}", self.listing(self._describe_voice), _VOICE

    async def _list_voices(self, request: Request) -> CartesiaVoiceList:
        grant = self.server.access.list_grant(request.headers)
        asked = validated(VoiceListQuery.model_validate, dict(request.query_params), REQUEST)
        if grant is not None:
            grant.require(Scope.SPEAK)
        return asked.page_of([self._describe(voice, grant) for voice in self.usable_voices(grant)])

    def _describe_voice(self, request: Request, grant: Grant | None) -> CartesiaVoice:
        voice_id = request.path_params["voice_id"]
        for voice in self.usable_voices(grant):
            if voice.id == voice_id:
                return self._describe(voice, grant)
        raise UnknownVoice(f"there is no voice {voice_id!r}")

    def _describe(self, voice: ListedVoice, grant: Grant | None) -> CartesiaVoice:
        stored = voice.stored
        created_at = self._started_at if stored is None else datetime.fromtimestamp(stored.created_at, UTC)
        return CartesiaVoice(
            id=voice.id,
            name=voice.name,
            description=voice.description,
            language=voice.language,
            is_owner=stored is not None and grant is not None and stored.about.owner == grant.key_id,
            is_public=stored is None,
            access="public" if stored is None else "private",
            created_at=created_at.isoformat(timespec="seconds"),
        )


class _CartesiaSpeechResponse(SpeechJobResponse):
    """Audio as it is made."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = await read_object(self.request)
        self._speech = speech = validated(CartesiaSpeechRequest.model_validate, fields, REQUEST)
        self._encoding = encoding = make_encoding(speech.output_format)
        voice = self.resolve(CARTESIA_NAMES, speech.voice_id, speech.model_id, grant)
        options = make_synthesis_options(speech, voice, encoding)
        return SpeechJob(
            speech.transcript, options, content_type=encoding.content_type, header=encoding.header
        )

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self.body_stream.bytes_per_s = self._encoding.bytes_per_s

    async def write(self, chunk: EncodedChunk) -> None:
        await super().write(replace(chunk, audio=self._encoding.convert(chunk.audio)))


class _CartesiaSpeechEvents(_CartesiaSpeechResponse):
    """Audio and the times of words in server-sent events."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        job = await super().read_job(grant)
        if self._speech.output_format.container != "raw":
            raise InvalidField("output_format.container", "events carry 'raw' audio only")
        return replace(job, content_type=EVENT_STREAM)

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * self._encoding.bytes_per_s)

    async def write(self, chunk: EncodedChunk) -> None:
        context_id = self._speech.context_id
        if chunk.written_words and self._speech.add_timestamps:
            words = WordTimestamps.of(chunk.written_words)
            await self._send(TimestampsMessage(context_id=context_id, word_timestamps=words))
        if chunk.audio:
            data = b64encode(self._encoding.convert(chunk.audio)).decode("ascii")
            await self._send(AudioChunkMessage(context_id=context_id, data=data, step_time=0.0))

    async def end(self) -> None:
        await self._send(DoneMessage(context_id=self._speech.context_id))
        await super().end()

    async def end_with_error(self, error: Exception) -> None:
        body = CARTESIA_ERRORS.body(error, self.request_id)
        await self._send(CartesiaErrorMessage(**body.model_dump()))
        await self.body_stream.end()

    async def _send(self, message: CartesiaAnswer) -> None:
        await self.body_stream.write(message.encode_event())
