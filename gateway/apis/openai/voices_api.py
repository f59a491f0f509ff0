"""OpenAI's custom voices over the registry: ``GET``, ``POST`` and ``DELETE`` of ``/v1/audio/voices``.

OpenAI's clients and vLLM-Omni's share the path and not the answers, so an answer has the fields of both. The
consent is a statement of the speaker's, kept with the voice; OpenAI's own is the id of a recording, and kept
the same.

Source: openai-python 3.54 resources/audio/voices.py, types/audio/voice.py; vLLM-Omni at 0131cb55; Open WebUI
reads "id" and "name".
"""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from ....adapters.openai.json_fields import InvalidRequestError
from ....tts_engine.errors import UnknownVoice
from ....tts_engine.voices.store import StoredVoice
from ...access.access_control import Grant
from ...access.keys import Scope
from ...voice_registry import ListedVoice, NewVoice, VoiceRegistry
from .errors import OpenAIResourceNotFound
from .speech_api import OpenAISpeechApi, with_bounded_body

_MAX_FIELDS: Final = 20
_MAX_FIELD_BYTES: Final = 64 * 1024  # bytes


class OpenAIVoicesApi:
    """The voices that a key may use, and the making of its own. api: whose door is asked."""

    def __init__(self, api: OpenAISpeechApi, voices: VoiceRegistry) -> None:
        self._api = api
        self._voices = voices

    def routes(self) -> APIRouter:
        """The three of them."""
        router = APIRouter()
        path = "/v1/audio/voices"
        for method, place, scope, answer in (
            ("GET", path, Scope.SPEAK, self._list),
            ("POST", path, Scope.ENROLL, self._create),
            ("DELETE", f"{path}/{{voice_id}}", Scope.ENROLL, self._delete),
        ):
            router.add_api_route(place, self._api.json_route(scope, answer), methods=[method])
        return router

    async def _list(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        voices = self._voices.usable_voices(grant)
        uploaded = [_uploaded_voice_body(voice.stored, grant) for voice in voices if voice.stored is not None]
        return {
            "object": "list",
            "voices": [_listed_voice_body(voice) for voice in voices],
            "uploaded_voices": uploaded,
        }

    async def _create(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        grant.charge_request()
        try:
            form = with_bounded_body(request).form(
                max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES
            )
            async with form as fields:
                data, new = await _read_audio_sample(fields), _read_new_voice(fields)
        except HTTPException as error:
            raise InvalidRequestError(f"the form cannot be read: {error.detail}") from None
        stored = await self._voices.create(data, new, grant)
        return {**_voice_body(stored), "success": True, "voice": _uploaded_voice_body(stored, grant)}

    async def _delete(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        try:
            voice_id = self._voices.resolve(request.path_params["voice_id"], grant)
            await self._voices.remove(voice_id, grant)
        except UnknownVoice as error:
            raise OpenAIResourceNotFound(str(error)) from None
        return {"id": voice_id, "object": "audio.voice.deleted", "deleted": True, "success": True}


async def _read_audio_sample(fields: FormData) -> bytes:
    sample = fields.get("audio_sample")
    if not isinstance(sample, UploadFile):
        raise InvalidRequestError("'audio_sample' is required, a file", "audio_sample")
    return await sample.read()


def _read_new_voice(fields: FormData) -> NewVoice:
    if _text_field(fields, "type") not in ("", "audio_sample"):
        raise InvalidRequestError("voices are made of recordings only; 'type' is audio_sample", "type")
    return NewVoice(
        name=_required_text(fields, "name"),
        transcript=_text_field(fields, "ref_text"),
        language=_text_field(fields, "language"),
        consent=_required_text(fields, "consent"),
        provenance="uploaded to /v1/audio/voices",
    )


def _required_text(fields: FormData, name: str) -> str:
    value = _text_field(fields, name)
    if not value:
        raise InvalidRequestError(f"'{name}' is required", name, "missing_required_parameter")
    return value


def _text_field(fields: FormData, name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise InvalidRequestError(f"'{name}' is a file; text is needed", name)
    return value.strip()


def _listed_voice_body(voice: ListedVoice) -> Mapping[str, Any]:
    about = {"id": voice.id, "name": voice.name, "language": voice.language, "description": voice.description}
    return about if voice.stored is None else about | _voice_body(voice.stored)


def _voice_body(stored: StoredVoice) -> dict[str, Any]:
    return {
        "id": stored.id,
        "object": "audio.voice",
        "type": "audio_sample",
        "name": stored.name,
        "created_at": int(stored.created_at),
    }


def _uploaded_voice_body(stored: StoredVoice, grant: Grant) -> dict[str, Any]:
    """What was told with a recording, to whoever told it; to others only that there is the voice."""
    told = {"consent": stored.about.consent, "ref_text": stored.transcript}
    about = {"id": stored.id, "name": stored.name, "created_at": int(stored.created_at)}
    return about | told if grant.key_id == stored.about.owner or grant.allows(Scope.ADMIN) else about
