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

from ...adapters.openai_speech import ProtocolError
from ...tts_engine.errors import UnknownVoice
from ...tts_engine.voice_store import StoredVoice
from ..access.access import Grant
from ..access.keys import Scope
from ..voice_registry import ListedVoice, NewVoice, VoiceRegistry
from .openai import NotFound, OpenAISpeech, bounded

_MOST_FIELDS: Final = 20
_LONGEST_FIELD: Final = 64 * 1024  # bytes


class OpenAIVoices:
    """The voices that a key may use, and the making of its own. api: whose door is asked."""

    def __init__(self, api: OpenAISpeech, voices: VoiceRegistry) -> None:
        self._api = api
        self._voices = voices

    def routes(self) -> APIRouter:
        """The three of them."""
        router = APIRouter()
        path = "/v1/audio/voices"
        for method, place, scope, answer in (
            ("GET", path, Scope.SPEAK, self._list),
            ("POST", path, Scope.ENROL, self._create),
            ("DELETE", f"{path}/{{voice_id}}", Scope.ENROL, self._delete),
        ):
            router.add_api_route(place, self._api.answering(scope, answer), methods=[method])
        return router

    async def _list(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        voices = self._voices.visible(grant)
        uploaded = [_uploaded(voice.stored, grant) for voice in voices if voice.stored is not None]
        return {"object": "list", "voices": [_listed(voice) for voice in voices], "uploaded_voices": uploaded}

    async def _create(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        grant.charge_request()
        try:
            form = bounded(request).form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=_LONGEST_FIELD)
            async with form as fields:
                data, new = await _sample(fields), _new_voice(fields)
        except HTTPException as error:
            raise ProtocolError(f"the form cannot be read: {error.detail}") from None
        stored = await self._voices.create(data, new, grant)
        return {**_voice(stored), "success": True, "voice": _uploaded(stored, grant)}

    async def _delete(self, request: Request, grant: Grant) -> Mapping[str, Any]:
        try:
            voice_id = self._voices.resolve(request.path_params["voice_id"], grant)
            await self._voices.remove(voice_id, grant)
        except UnknownVoice as error:
            raise NotFound(str(error)) from None
        return {"id": voice_id, "object": "audio.voice.deleted", "deleted": True, "success": True}


async def _sample(fields: FormData) -> bytes:
    sample = fields.get("audio_sample")
    if not isinstance(sample, UploadFile):
        raise ProtocolError("'audio_sample' is required, a file", "audio_sample")
    return await sample.read()


def _new_voice(fields: FormData) -> NewVoice:
    if _text(fields, "type") not in ("", "audio_sample"):
        raise ProtocolError("voices are made of recordings only; 'type' is audio_sample", "type")
    return NewVoice(
        name=_required(fields, "name"),
        transcript=_text(fields, "ref_text"),
        language=_text(fields, "language"),
        consent=_required(fields, "consent"),
        provenance="uploaded to /v1/audio/voices",
    )


def _required(fields: FormData, name: str) -> str:
    value = _text(fields, name)
    if not value:
        raise ProtocolError(f"'{name}' is required", name, "missing_required_parameter")
    return value


def _text(fields: FormData, name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise ProtocolError(f"'{name}' is a file; text is needed", name)
    return value.strip()


def _listed(voice: ListedVoice) -> Mapping[str, Any]:
    about = {"id": voice.id, "name": voice.name, "language": voice.language, "description": voice.description}
    return about if voice.stored is None else about | _voice(voice.stored)


def _voice(stored: StoredVoice) -> dict[str, Any]:
    return {
        "id": stored.id,
        "object": "audio.voice",
        "type": "audio_sample",
        "name": stored.name,
        "created_at": int(stored.created_at),
    }


def _uploaded(stored: StoredVoice, grant: Grant) -> dict[str, Any]:
    """What was told with a recording, to whoever told it; to others only that there is the voice."""
    told = {"consent": stored.about.consent, "ref_text": stored.transcript}
    about = {"id": stored.id, "name": stored.name, "created_at": int(stored.created_at)}
    return about | told if grant.key_id == stored.about.owner or grant.allows(Scope.ADMIN) else about
