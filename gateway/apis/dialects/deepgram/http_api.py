"""Deepgram's HTTP speech: ``POST /v1/speak`` and, with the same fields, ``POST /v2/speak``."""

from collections.abc import Iterable
from typing import Any, Final

from fastapi.responses import JSONResponse

from ....access.access_control import Grant
from ....web.openapi.operations import json_body, operation
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import AUDIO_CONTENT_TYPES, query, speech_errors
from ...kits.request_fields import read_json, validated
from ...kits.speech_response import audio_response
from ...shell.speech_job import SpeechJob
from .errors import DEEPGRAM_ERRORS
from .models import (
    MESSAGE,
    DeepgramErrorBody,
    DeepgramQuery,
    DeepgramSpeechRequest,
    make_deepgram_options,
    resolve_deepgram_voice,
)
from .output_format import make_response_encoding

PATHS: Final = ("/v1/speak", "/v2/speak")
_PARAMETERS: Final = [
    query("model", "The voice; one of Deepgram's is the default voice."),
    query("encoding", "'mp3' (default), 'linear16', 'mulaw', 'alaw', 'opus', 'flac' or 'aac'."),
    query("container", "'wav' (default), 'none' or, of 'opus', 'ogg'."),
    query("sample_rate", "Hz.", "integer"),
    query("bit_rate", "Bits a second.", "integer"),
    query("speed", "Factor of the usual rate.", "number"),
]


class DeepgramHttpApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "deepgram"
    errors = DEEPGRAM_ERRORS
    error_formats = DEEPGRAM_ERRORS.formats(*PATHS)
    id_header = "dg-request-id"

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        for version, path in enumerate(PATHS, 1):
            described = operation(
                f"deepgramSpeech{version}",
                "Speak a text: Deepgram's request.",
                audio_response("Audio, while it is made.", *AUDIO_CONTENT_TYPES),
                speech_errors(DeepgramErrorBody, {400: "A parameter or the text is invalid."}),
                other_parameters=_PARAMETERS,
                body=json_body(DeepgramSpeechRequest),
            )
            yield f"POST {path}", self.speaking(_DeepgramSpeechResponse), described

    def error_response(self, error: Exception, request_id: str) -> JSONResponse:
        return deepgram_error_response(error, request_id)


class _DeepgramSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        body = await read_json(self.request)
        text = validated(DeepgramSpeechRequest.model_validate, body, MESSAGE).text
        asked = DeepgramQuery.of(self.request.query_params)
        encoding = make_response_encoding(asked)
        voice = resolve_deepgram_voice(self.server.voices, self.server.models, asked.model, grant)
        self.stream_headers["dg-char-count"] = str(len(text))
        self.stream_headers["dg-model-name"] = voice.encode("ascii", "replace").decode()
        options = make_deepgram_options(asked, voice, encoding.audio)
        return SpeechJob(text, options, content_type=encoding.content_type, header=encoding.header)


def deepgram_error_response(error: Exception, request_id: str) -> JSONResponse:
    """Return the answer to an error; clients of a socket read the header ``dg-error``."""
    sentence = DEEPGRAM_ERRORS.describe(error).message.encode("ascii", "replace").decode()
    headers = {"dg-request-id": request_id, "dg-error": " ".join(sentence.split())}
    return DEEPGRAM_ERRORS.response(error, request_id, headers)
