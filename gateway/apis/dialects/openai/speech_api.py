"""OpenAI's speech and model endpoints: ``/v1/audio/speech`` and ``GET /v1/models``.

    body -> request_parsing.read_speech_request -> SpeechJob -> audio, or server-sent events

Headers are sent with the first audio, so an error before it has a status of its own. A client that
disconnects frees the engine at once; a client that stops reading pauses its own request only.

Source: see ``models``.
"""

import time
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from fastapi import Request
from pydantic import BaseModel

from .....tts_engine.chunk import SAMPLE_RATE
from ....access.access_control import Grant
from ....web.openapi.operations import json_body, json_response, operation
from ...kits.http_api import Endpoint, SpeechJobResponse
from ...kits.openai.errors import OPENAI_ERRORS
from ...kits.openai.voice_resolver import OpenAIVoiceResolver, make_synthesis_options
from ...kits.operations import (
    AUDIO_CONTENT_TYPES,
    BINARY_CONTENT,
    BODY_TOO_LONG,
    EVENT_STREAM,
    SPEECH_ERRORS,
    event_stream,
    query,
)
from ...kits.speech_response import UNREAD_HEADER_SCHEMA, audio_response
from ...shell.speech import EncodedChunk
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .extension_models import AudioModel, AudioModelList
from .http_api import REQUEST_ID_HEADER, OpenAIHttpApi, openai_errors
from .models import (
    OPENAI_MODELS,
    CreateSpeechRequest,
    OpenAIModel,
    OpenAIModelList,
    SpeechAudioDelta,
    SpeechAudioDone,
    SpeechAudioError,
    SpeechUsage,
)
from .request_reading import read_speech_query, read_speech_request

_SPEECH_IDS_PER_S: Final = 25  # unit of `output_tokens`
_NO_MODEL: Final = {404: "The model does not exist."}

_SPEAK: Final = operation(
    "speak",
    "Speak a text.",
    {
        200: {
            "description": "Audio of the requested format, or events.",
            "headers": {**REQUEST_ID_HEADER, **UNREAD_HEADER_SCHEMA},
            "content": {
                **dict.fromkeys(AUDIO_CONTENT_TYPES, BINARY_CONTENT),
                **event_stream(SpeechAudioDelta, SpeechAudioDone, SpeechAudioError),
            },
        }
    },
    openai_errors({400: "A field is invalid; 'param' names it."}, _NO_MODEL, BODY_TOO_LONG, SPEECH_ERRORS),
    description="The audio is sent while it is made. With 'stream_format': 'sse' it is in base64 in events "
    "speech.audio.delta; speech.audio.done with the usage, or speech.audio.error, ends them.",
    body=json_body(CreateSpeechRequest),
)
_SPEAK_BY_URL: Final = operation(
    "speakByUrl",
    "Speak a text, for players that can only GET.",
    audio_response("Audio of the requested format.", *AUDIO_CONTENT_TYPES),
    openai_errors({400: "A parameter is invalid; 'param' names it."}, _NO_MODEL, SPEECH_ERRORS),
    description="An extension. All fields of a POST but 'voice' as an object may be parameters.",
    other_parameters=(
        query("input", "Text to speak.", example="Good morning."),
        query("voice", "Name of the voice.", default="alloy"),
        query("response_format", "Encoding of the audio.", default="mp3"),
        query("speed", "Factor, 0.25 to 4.", "number", default=1.0),
    ),
)
_LIST_MODELS: Final = operation(
    "listModels", "List the names that 'model' may have.", json_response(OpenAIModelList), openai_errors()
)
_LIST_AUDIO_MODELS: Final = operation(
    "listAudioModels",
    "List the names that 'model' may have, for clients of Open WebUI's kind.",
    json_response(AudioModelList),
    openai_errors(),
)
_GET_MODEL: Final = operation(
    "getModel",
    "Look a model up; any name is one.",
    json_response(OpenAIModel),
    openai_errors(_NO_MODEL),
    path_parameters=("model",),
)


class OpenAISpeechApi(OpenAIHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: OpenAIVoiceResolver) -> None:
        super().__init__(server)
        self.voices = voices
        self._models_created_at = int(time.time())

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield "POST /v1/audio/speech", self.speaking(OpenAISpeechResponse), _SPEAK
        yield "GET /v1/audio/speech", self.speaking(_SpeechByUrlResponse), _SPEAK_BY_URL
        yield "GET /v1/models", self.listing(self._list_models), _LIST_MODELS
        yield "GET /v1/models/{model:path}", self.listing(self._get_model), _GET_MODEL
        yield "GET /v1/audio/models", self.listing(self._list_audio_models), _LIST_AUDIO_MODELS

    def _list_models(self, request: Request, grant: Grant | None) -> OpenAIModelList:
        return OpenAIModelList(data=[self._model(name) for name in self._model_names()])

    def _list_audio_models(self, request: Request, grant: Grant | None) -> AudioModelList:
        return AudioModelList(models=[AudioModel(id=name, name=name) for name in self._model_names()])

    def _get_model(self, request: Request, grant: Grant | None) -> OpenAIModel | OpenAIModelList:
        name = request.path_params["model"].rstrip("/")  # a name may have slashes inside
        if not name:
            return self._list_models(request, grant)
        return self._model(name)

    def _model_names(self) -> list[str]:
        return list(dict.fromkeys((*self.voices.models, *OPENAI_MODELS)))

    def _model(self, name: str) -> OpenAIModel:
        return OpenAIModel(id=name, created=self._models_created_at)


class OpenAISpeechResponse(SpeechJobResponse):
    """The answer to one speech request: audio, or events with it."""

    api: OpenAISpeechApi
    speech: CreateSpeechRequest  # set by ``read_job``

    async def read_request(self) -> CreateSpeechRequest:
        """Read and parse the body; raises InvalidRequestError."""
        return await read_speech_request(self.request, self.server.policy.max_text_characters)

    async def read_job(self, grant: Grant) -> SpeechJob:
        request = await self.read_request()
        self.speech = speech = request.with_complete_wav() if grant.completes_wav else request
        options = make_synthesis_options(speech, self.api.voices.resolve(speech, grant))
        return SpeechJob(
            speech.input,
            options,
            self.api.voices.recording_of(speech),
            content_type=EVENT_STREAM if speech.stream_format == "sse" else None,
            is_whole=speech.is_whole_file,
        )

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self._samples = 0  # sent

    async def write(self, chunk: EncodedChunk) -> None:
        if chunk.audio:
            await self.body_stream.write(_delta_event(chunk.audio) if self._sends_events else chunk.audio)
            self._samples = chunk.samples[1]

    async def end(self) -> None:
        if self._sends_events:
            await self.body_stream.write(_done_event(len(self.speech.input), self._samples))
        await self.body_stream.end()

    async def end_with_error(self, error: Exception) -> None:
        # Audio formats have no errors: a body without its end is one.
        if self._sends_events:
            event = SpeechAudioError(error=OPENAI_ERRORS.describe(error).detail)
            await self.body_stream.write(encode_server_sent_event(event))
            await self.body_stream.end()

    @property
    def _sends_events(self) -> bool:
        return self.stream_headers["content-type"] == EVENT_STREAM


class _SpeechByUrlResponse(OpenAISpeechResponse):
    async def read_request(self) -> CreateSpeechRequest:
        return read_speech_query(self.request, self.server.policy.max_text_characters)


def encode_server_sent_event(event: BaseModel) -> bytes:
    """Return an event as OpenAI sends it: its type is in the data, and not in an ``event:`` line."""
    return b"data: " + event.model_dump_json().encode() + b"\n\n"


def _delta_event(audio: bytes) -> bytes:
    return encode_server_sent_event(SpeechAudioDelta(audio=b64encode(audio).decode("ascii")))


def _done_event(characters: int, samples: int) -> bytes:
    speech_ids = round(samples / SAMPLE_RATE * _SPEECH_IDS_PER_S)
    usage = SpeechUsage(
        input_tokens=characters, output_tokens=speech_ids, total_tokens=characters + speech_ids
    )
    return encode_server_sent_event(SpeechAudioDone(usage=usage))
