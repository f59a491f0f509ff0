"""The servers of upstream CosyVoice: its HTTP endpoints, and its gRPC service on a port of its own.

HTTP takes a form and answers with s16le at 24 kHz while it is made. The published client sends the form as
the body of a GET request, so each path has both methods. Source: see ``models``.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from fastapi import Request

from .....tts_engine.errors import MissingExtra
from ....access.access_control import Grant
from ....web.openapi.operations import operation
from ...dialect import Dialect, DialectPort, DrainableApi, OpenDialect
from ...kits.error_table import STATUSES, DescribedError, ErrorTable, InvalidField
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import form_body, speech_errors
from ...kits.request_fields import parse_fields, read_fields
from ...kits.speech_response import audio_response
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .models import (
    CosyVoiceErrorBody,
    CosyVoiceForm,
    CrossLingualForm,
    InstructForm,
    RecordingInstructForm,
    SftForm,
    ZeroShotForm,
    inference_job,
)

_FORMS: Final[Mapping[str, type[CosyVoiceForm]]] = {
    "inference_sft": SftForm,
    "inference_zero_shot": ZeroShotForm,
    "inference_cross_lingual": CrossLingualForm,
    "inference_instruct": InstructForm,
    "inference_instruct2": RecordingInstructForm,
}
_ERRORS: Final = speech_errors(
    CosyVoiceErrorBody,
    {400: "The text or the recording is unusable, or the loaded model clones no voices."},
    {404: "No such voice.", 422: "A field is missing or invalid."},
)


class CosyVoiceHttpApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "cosyvoice"
    errors = ErrorTable(
        # FastAPI, on which upstream's server is built, answers 422 to a wrong field.
        {**STATUSES, InvalidField: DescribedError(422)},
        lambda described, error, request_id: CosyVoiceErrorBody(detail=described.message),
    )

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        audio = audio_response("s16le samples at 24 kHz, while they are made.", "application/octet-stream")
        for name, form in _FORMS.items():
            summary, body = f"Speak a text: upstream CosyVoice's {name}.", form_body(form)
            for method in ("GET", "POST"):
                described = operation(f"{name}_{method.lower()}", summary, audio, _ERRORS, body=body)
                yield f"{method} /{name}", self.speaking(partial(_CosyVoiceResponse, form)), described


class _CosyVoiceResponse(SpeechJobResponse):
    def __init__(self, form: type[CosyVoiceForm], api: CosyVoiceHttpApi, request: Request) -> None:
        super().__init__(api, request)
        self._form = form

    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = {**self.request.query_params, **await self._read_body()}
        return inference_job(self.server, parse_fields(self._form, fields), grant)

    async def _read_body(self) -> dict[str, object]:
        has_body = "content-type" in self.request.headers
        return await read_fields(self.request) if has_body else {}


async def _listen_grpc(speech: SpeechServer, address: tuple[str, int]) -> tuple[DrainableApi, int]:
    try:
        from .grpc_server import CosyVoiceGrpcServer
    except ImportError:
        raise MissingExtra("apis.ports.grpc", "grpc") from None
    server = CosyVoiceGrpcServer(speech)
    return server, await server.start(address)


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(CosyVoiceHttpApi(server))


COSYVOICE_SERVER: Final = Dialect(
    "cosyvoice_server", _open, ports=(DialectPort("grpc", _listen_grpc),), title="CosyVoice"
)
