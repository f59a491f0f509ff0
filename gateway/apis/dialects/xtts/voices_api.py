"""Lists, settings and cloning of XTTS's servers. Source: see ``models``."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from pydantic import RootModel

from .....tts_engine.errors import BadRequest, UnknownVoice
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import ListedVoice, NewVoice
from ....web.openapi.operations import ACCESS_ERRORS, error_responses, json_body, json_response, operation
from ...kits.error_table import InvalidField
from ...kits.http_api import Endpoint, SpeechHttpApi
from ...kits.operations import BODY_TOO_LONG, ENROLLMENT_NOTE, RATE_LIMITED, form_body
from ...kits.request_fields import UploadedRecording, parse_fields, read_fields
from ...shell.speech_server import SpeechServer
from .http_api import XTTS_ERRORS
from .latents import encode_voice
from .models import (
    LANGUAGES,
    CloneSpeakerForm,
    XttsErrorBody,
    XttsFolders,
    XttsLanguages,
    XttsLatents,
    XttsMessage,
    XttsNamedLatents,
    XttsSettings,
    XttsSpeaker,
    XttsSpeakers,
)
from .request_mapping import XttsSettingsStore

_NUMBERS: Final = "List the voices with their numbers."
_PREVIEW_TEXT: Final = "Hello, this is a preview of my voice."
_LIST_ERRORS: Final = error_responses(XttsErrorBody, ACCESS_ERRORS)
_CHANGE_ERRORS: Final = error_responses(XttsErrorBody, ACCESS_ERRORS, {400: "Not allowed."}, BODY_TOO_LONG)
_NAMES: Final = json_response(RootModel[list[str]])
_CLONE: Final = operation(
    "xttsCloneSpeaker",
    "Make a voice of a recording; the answer stands for it in /tts and /tts_stream.",
    json_response(XttsLatents),
    _CHANGE_ERRORS,
    error_responses(XttsErrorBody, RATE_LIMITED, {503: "Too many recordings are waiting."}),
    description=ENROLLMENT_NOTE,
    body=form_body(CloneSpeakerForm),
)


class XttsVoicesApi(SpeechHttpApi):
    """The endpoints of one server that answer JSON; belongs to its event loop."""

    name = "xtts"
    errors = XTTS_ERRORS

    def __init__(self, server: SpeechServer, settings: XttsSettingsStore) -> None:
        super().__init__(server)
        self._settings = settings

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        named, languages = json_response(XttsNamedLatents), json_response(XttsLanguages)
        spoken = json_response(XttsSpeakers)
        for path, name, summary, handler, answer in (
            ("/studio_speakers", "StudioSpeakers", _NUMBERS, self._latents, named),
            ("/speakers_list", "SpeakerNames", "List the names of the voices.", self._names, _NAMES),
            ("/speakers", "Speakers", "List the voices, as SillyTavern reads them.", self._speakers, spoken),
            ("/languages", "Languages", "List the languages by name, as xtts-api-server does.",
             self._languages, languages),
            ("/get_models_list", "Models", "List the models.", self._models, _NAMES),
        ):  # fmt: skip
            yield (
                f"GET {path}",
                self.listing(handler),
                operation(f"xtts{name}", summary, answer, _LIST_ERRORS),
            )
        for route, name, change, changed in (
            ("GET /get_tts_settings", "Settings", self._get_settings, XttsSettings),
            ("GET /get_folders", "Folders", self._get_folders, XttsFolders),
            ("POST /set_tts_settings", "SetSettings", self._set_settings, XttsMessage),
            ("POST /set_output", "SetOutput", self._refuse_change, XttsMessage),
            ("POST /set_speaker_folder", "SetSpeakerFolder", self._refuse_change, XttsMessage),
            ("POST /switch_model", "SwitchModel", self._refuse_change, XttsMessage),
        ):
            described = operation(
                f"xtts{name}",
                f"xtts-api-server's {route.partition('/')[2]}; folders and the model are the operator's, and "
                "not changed.",
                json_response(changed),
                _CHANGE_ERRORS,
                body=json_body(XttsSettings) if name == "SetSettings" else None,
            )
            yield route, self.answering(Scope.SPEAK, change), described
        yield "POST /clone_speaker", self.answering(Scope.ENROLL, self._clone), _CLONE

    def _latents(self, request: Request, grant: Grant | None) -> dict[str, Any]:
        return {voice.name: _latents(voice.id).model_dump() for voice in self.usable_voices(grant)}

    def _names(self, request: Request, grant: Grant | None) -> list[str]:
        return [voice.id for voice in self.usable_voices(grant)]

    def _speakers(self, request: Request, grant: Grant | None) -> list[dict[str, Any]]:
        return [_speaker(voice, str(request.base_url)) for voice in self.usable_voices(grant)]

    def _languages(self, request: Request, grant: Grant | None) -> dict[str, Any]:
        return {"languages": LANGUAGES}

    def _models(self, request: Request, grant: Grant | None) -> list[str]:
        return list(self.server.models)

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
        voices = self.server.voices
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
        voices = self.server.voices
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


def _speaker(voice: ListedVoice, base_url: str) -> dict[str, Any]:
    query = urlencode({"text": _PREVIEW_TEXT, "speaker_wav": voice.id, "language": "en"})
    preview_url = f"{base_url}tts_stream?{query}"
    return XttsSpeaker(name=voice.name, voice_id=voice.id, preview_url=preview_url).model_dump()
