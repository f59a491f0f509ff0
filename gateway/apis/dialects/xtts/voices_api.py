"""Lists, settings and cloning of XTTS's servers. Source: see ``models``."""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, RootModel

from .....tts_engine.errors import BadRequest, UnknownVoice, VivavoceError
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import ListedVoice, NewVoice
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    BODY_TOO_LONG,
    ENROLLMENT_NOTE,
    RATE_LIMITED,
    error_responses,
    form_body,
    json_body,
    json_response,
    operation,
)
from ...shell.http_errors import InvalidField
from ...shell.request_fields import UploadedRecording, parse_fields, read_fields
from ...shell.speech_job import JobServer
from .http_api import xtts_error_response
from .latents import encode_voice
from .models import (
    LANGUAGES,
    CloneSpeakerForm,
    XttsErrorBody,
    XttsFolders,
    XttsLatents,
    XttsMessage,
    XttsSettings,
    XttsSpeaker,
)
from .settings_store import XttsSettingsStore

_PREVIEW_TEXT: Final = "Hello, this is a preview of my voice."
_LIST_ERRORS: Final = error_responses(XttsErrorBody, ACCESS_ERRORS)
_CHANGE_ERRORS: Final = error_responses(XttsErrorBody, ACCESS_ERRORS, {400: "Not allowed."}, BODY_TOO_LONG)
_NAMES: Final = json_response(RootModel[list[str]])

_Handler = Callable[[Request, Grant], Awaitable[Any]]
_ListHandler = Callable[[tuple[ListedVoice, ...]], Any]


class XttsVoicesApi:
    """The endpoints of one server that answer JSON; belongs to its event loop."""

    def __init__(self, host: JobServer, settings: XttsSettingsStore) -> None:
        self._host = host
        self._settings = settings

    def routes(self) -> APIRouter:
        """Return the routes, which check keys themselves."""
        router = APIRouter()
        self._add_lists(router)
        self._add_settings(router)
        router.add_api_route(
            "/clone_speaker",
            self._endpoint(Scope.ENROLL, self._clone),
            methods=["POST"],
            **operation(
                "xttsCloneSpeaker",
                "Make a voice of a recording; the answer stands for it in /tts and /tts_stream.",
                json_response(XttsLatents),
                _CHANGE_ERRORS,
                error_responses(XttsErrorBody, RATE_LIMITED, {503: "Too many recordings are waiting."}),
                description=ENROLLMENT_NOTE,
                body=form_body(CloneSpeakerForm),
            ),
        )
        return router

    def _add_lists(self, router: APIRouter) -> None:
        lists: list[tuple[str, str, str, _ListHandler, dict[int, Any]]] = [
            ("/studio_speakers", "xttsStudioSpeakers", "List the voices with their numbers.",
             _studio_speakers, json_response(RootModel[dict[str, XttsLatents]])),
            ("/speakers_list", "xttsSpeakerNames", "List the names of the voices.",
             lambda voices: [voice.id for voice in voices], _NAMES),
        ]  # fmt: skip
        for path, operation_id, summary, describe, response in lists:
            described = operation(operation_id, summary, response, _LIST_ERRORS)
            router.add_api_route(path, self._list_endpoint(describe), methods=["GET"], **described)
        described = operation(
            "xttsSpeakers",
            "List the voices, as SillyTavern reads them.",
            json_response(RootModel[list[XttsSpeaker]]),
            _LIST_ERRORS,
        )
        router.add_api_route("/speakers", self._speakers, methods=["GET"], **described)
        described = operation(
            "xttsLanguages",
            "List the languages by name, as xtts-api-server does.",
            json_response(RootModel[dict[str, dict[str, str]]]),
            _LIST_ERRORS,
        )
        languages = self._list_endpoint(lambda voices: {"languages": LANGUAGES})
        router.add_api_route("/languages", languages, methods=["GET"], **described)
        described = operation("xttsModels", "List the models.", _NAMES, _LIST_ERRORS)
        models = self._list_endpoint(lambda voices: list(self._host.server.models))
        router.add_api_route("/get_models_list", models, methods=["GET"], **described)

    def _add_settings(self, router: APIRouter) -> None:
        for method, path, operation_id, handler, answer in (
            ("GET", "/get_tts_settings", "xttsSettings", self._get_settings, XttsSettings),
            ("GET", "/get_folders", "xttsFolders", self._get_folders, XttsFolders),
            ("POST", "/set_tts_settings", "xttsSetSettings", self._set_settings, XttsMessage),
            ("POST", "/set_output", "xttsSetOutput", self._refuse_change, XttsMessage),
            ("POST", "/set_speaker_folder", "xttsSetSpeakerFolder", self._refuse_change, XttsMessage),
            ("POST", "/switch_model", "xttsSwitchModel", self._refuse_change, XttsMessage),
        ):
            described = operation(
                operation_id,
                f"xtts-api-server's {path[1:]}; folders and the model are the operator's, and not changed.",
                json_response(answer),
                _CHANGE_ERRORS,
                body=json_body(XttsSettings) if operation_id == "xttsSetSettings" else None,
            )
            endpoint = self._endpoint(Scope.SPEAK, handler)
            router.add_api_route(path, endpoint, methods=[method], **described)

    def _endpoint(self, scope: Scope, handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                grant = self._host.server.authorize(request.headers, scope)
                return _json(await handler(request, grant))
            except VivavoceError as error:
                return xtts_error_response(error)

        return answer

    def _list_endpoint(self, describe: _ListHandler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return _json(describe(self._usable_voices(request)))
            except VivavoceError as error:
                return xtts_error_response(error)

        return answer

    def _usable_voices(self, request: Request) -> tuple[ListedVoice, ...]:
        grant = self._host.server.access.list_grant(request.headers)
        if grant is None:
            return self._host.voices.bundle_voices()
        grant.require(Scope.SPEAK)
        return self._host.voices.usable_voices(grant)

    async def _speakers(self, request: Request) -> Response:
        try:
            voices = self._usable_voices(request)
        except VivavoceError as error:
            return xtts_error_response(error)
        return _json([_speaker(voice, str(request.base_url)) for voice in voices])

    async def _get_settings(self, request: Request, grant: Grant) -> XttsSettings:
        return self._settings.of(grant)

    async def _set_settings(self, request: Request, grant: Grant) -> XttsMessage:
        self._settings.set(parse_fields(XttsSettings, await read_fields(request)), grant)
        return XttsMessage(message="Settings successfully applied")

    async def _get_folders(self, request: Request, grant: Grant) -> XttsFolders:
        return XttsFolders(speaker_folder="", output_folder="", model_folder="")

    async def _refuse_change(self, request: Request, grant: Grant) -> XttsMessage:
        raise BadRequest(
            "the model and the folders are settings of the server; a client does not change them"
        )

    async def _clone(self, request: Request, grant: Grant) -> XttsLatents:
        grant.charge_request()
        fields = await read_fields(request)
        recording = fields.get("wav_file")
        if not isinstance(recording, UploadedRecording):
            raise InvalidField("wav_file", "is required, a sound file")
        voices = self._host.voices
        # The same recording of the same key is one voice: clients of this API clone before every session.
        digest = hashlib.sha256(grant.key_id.encode() + b"\0" + recording.data).hexdigest()
        voice_id = f"xtts-{digest[:32]}"
        name = recording.name[:80] or voice_id
        new = NewVoice(name, provenance="uploaded to /clone_speaker", voice_id=voice_id)
        try:
            stored = voices.find(voice_id, grant)
        except UnknownVoice:
            await self._create(voice_id, recording.data, new, grant)
        else:
            if not voices.fits_model(stored):  # the server had another bundle when it was cloned
                await voices.replace(voice_id, recording.data, new, grant)
        return _latents(voice_id)

    async def _create(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> None:
        """Create a voice, unless another session does so meanwhile; raises as ``VoiceRegistry.create``."""
        voices = self._host.voices
        try:
            await voices.create(data, new, grant)
        except BadRequest:
            with suppress(UnknownVoice):
                voices.find(voice_id, grant)
                return
            raise


def _latents(voice_id: str) -> XttsLatents:
    latent, embedding = encode_voice(voice_id)
    return XttsLatents(gpt_cond_latent=latent, speaker_embedding=embedding)


def _studio_speakers(voices: tuple[ListedVoice, ...]) -> dict[str, Any]:
    return {voice.name: _latents(voice.id).model_dump() for voice in voices}


def _speaker(voice: ListedVoice, base_url: str) -> dict[str, Any]:
    query = urlencode({"text": _PREVIEW_TEXT, "speaker_wav": voice.id, "language": "en"})
    preview_url = f"{base_url}tts_stream?{query}"
    return XttsSpeaker(name=voice.name, voice_id=voice.id, preview_url=preview_url).model_dump()


def _json(answer: Any) -> JSONResponse:
    return JSONResponse(answer.model_dump() if isinstance(answer, BaseModel) else answer)
