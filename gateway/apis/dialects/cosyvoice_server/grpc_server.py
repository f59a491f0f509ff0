"""Upstream CosyVoice's gRPC service on a port of its own, with gRPC's health check and reflection.

    Request -> the form of the same mode -> SpeechJob -> Response (s16le at 24 kHz) ...

A key comes in the metadata ``authorization`` or ``x-api-key``. Only the health check needs none. Needs the
extra ``grpc``. Source: see ``grpc_messages``.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from .....adapters.audio.pcm import wav_file
from .....tts_engine.errors import VivavoceError
from .....tts_engine.process_limits import descriptor_limit
from ....access.grant_ends import ending_with_grants
from ....listening_sockets import AddressUnavailable, format_address
from ...kits.error_table import STATUSES, InvalidField, describe
from ...kits.request_fields import UploadedRecording, parse_fields
from ...kits.streamed_body import SEND_TIMEOUT_S
from ...shell.speech import EncodedChunk
from ...shell.speech_server import SpeechServer
from .grpc_messages import METHOD, SERVICE, CosyVoiceMessages
from .models import CosyVoiceForm, CrossLingualForm, InstructForm, SftForm, ZeroShotForm, inference_job

logger = logging.getLogger(__name__)

_API: Final = "cosyvoice-grpc"  # in the log and the metrics
_PROMPT_RATE: Final = 16_000  # Hz, of prompt_audio, s16le without a header
_HEALTH_PATH: Final = f"/{health.SERVICE_NAME}/"
_FORMS: Final[Mapping[str, type[CosyVoiceForm]]] = {
    "sft_request": SftForm,
    "zero_shot_request": ZeroShotForm,
    "cross_lingual_request": CrossLingualForm,
    "instruct_request": InstructForm,
}
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_FIRST_FRAME_S: Final = 20  # from a connection to the client's first frame
_IDLE_S: Final = 600  # without a call


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # a second server on the port is an error, as for HTTP
        # gRPC accepts connections itself, refuses those beyond a number, and keeps silent ones for 120 s.
        ("grpc.max_allowed_incoming_connections", descriptor_limit() // 8),
        ("grpc.server_handshake_timeout_ms", 1000 * _FIRST_FRAME_S),
        ("grpc.max_connection_idle_ms", 1000 * _IDLE_S),
    ]


class CosyVoiceGrpcServer:
    """The service of one server; belongs to its event loop."""

    def __init__(self, speech: SpeechServer) -> None:
        self._speech = speech
        self._messages = CosyVoiceMessages()
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(interceptors=(_KeyInterceptor(speech),), options=_options())
        method = grpc.unary_stream_rpc_method_handler(
            self._infer,
            request_deserializer=self._messages.request.FromString,
            response_serializer=self._messages.response.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})
        self._server.add_generic_rpc_handlers((service,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        pool = self._messages.pool
        pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server, pool)

    async def start(self, address: tuple[str, int]) -> int:
        """Listen on (host, port) and return the port; raises AddressUnavailable."""
        try:
            port = self._server.add_insecure_port(format_address(address))
        except RuntimeError:
            port = 0
        if not port:
            await self._server.stop(None)
            raise AddressUnavailable(
                f"{format_address(address)} cannot be listened on for gRPC; choose another apis.ports.grpc."
            )
        await self._server.start()
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return int(port)

    async def finish(self, within_s: float) -> None:
        """Refuse new calls, wait at most within_s for those under way, and close the port."""
        self._speech.start_draining()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(within_s)

    async def _infer(self, request: Any, context: Any) -> None:
        """Serve one call. Boundary: any error ends this call and no more."""
        request_id = uuid4().hex
        try:
            with ending_with_grants():
                await self._speak(request, context, request_id)
        except VivavoceError as error:
            await context.abort(*_refusal_of(error))
        except grpc.aio.AbortError:
            raise
        except TimeoutError:
            message = f"the client has read nothing for {SEND_TIMEOUT_S:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, message)
        except Exception as error:
            logger.exception("request %s failed", request_id)
            await context.abort(*_refusal_of(error))

    async def _speak(self, request: Any, context: Any, request_id: str) -> None:
        server = self._speech
        grant = server.authorize_request(_metadata(context.invocation_metadata()))
        job = inference_job(self._speech, self._form_of(request), grant)

        async def write(chunk: EncodedChunk) -> None:
            if not chunk.audio:
                return
            async with asyncio.timeout(SEND_TIMEOUT_S):  # the write waits for the client's window
                await context.write(self._messages.response(tts_audio=chunk.audio))

        with server.log.track(_API, grant, request_id) as record, grant.stream():
            record.count_text(len(job.text))
            await self._speech.speak(job, grant, record, write=write)

    def _form_of(self, request: Any) -> CosyVoiceForm:
        name, fields = self._messages.payload_of(request)
        if not name:
            raise InvalidField("RequestPayload", f"is missing; there are {', '.join(_FORMS)}")
        if "prompt_audio" in fields:
            audio: bytes = fields["prompt_audio"]
            fields["prompt_wav"] = UploadedRecording("", wav_file(audio[: len(audio) // 2 * 2], _PROMPT_RATE))
        return parse_fields(_FORMS[name], fields)


class _KeyInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Refuses calls without a valid key, but for the health check."""

    def __init__(self, speech: SpeechServer) -> None:
        self._speech = speech

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the handler of a call, or one that refuses it."""
        if details.method.startswith(_HEALTH_PATH):
            return await continuation(details)
        try:
            self._speech.authorize(_metadata(details.invocation_metadata))
        except VivavoceError as error:
            return _refusal(error)
        return await continuation(details)


def _refusal(error: VivavoceError) -> Any:
    async def refuse(requests: Any, context: Any) -> None:
        await context.abort(*_refusal_of(error))

    return grpc.stream_stream_rpc_method_handler(refuse)


def _refusal_of(error: Exception) -> tuple[Any, str]:
    """Return gRPC's status of an error, and its sentence."""
    described = describe(error, STATUSES)
    return _CODES.get(described.status, grpc.StatusCode.INTERNAL), described.message


def _metadata(entries: Any) -> dict[str, str]:
    """Return the metadata as headers; binary entries are left out."""
    return {key.lower(): value for key, value in entries or () if isinstance(value, str)}
