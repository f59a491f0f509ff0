"""OpenAI's custom voices: ``GET``, ``POST`` and ``DELETE`` of ``/v1/audio/voices``, and ``PATCH`` of ours.

OpenAI's clients and vLLM-Omni's use the same path and expect different answers, so an answer has the fields
of both. The consent is kept with the voice: the speaker's statement, or, with OpenAI's clients, the id of its
recording.

Source: openai-python 3.54 resources/audio/voices.py, types/audio/voice.py; vLLM-Omni at 0131cb55.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import Request

from .....tts_engine.errors import UnknownVoice
from .....tts_engine.voices.store import StoredVoice
from ....access.access_control import Grant
from ....access.keys import Scope
from ....voice_registry import ListedVoice, NewVoice
from ....web.openapi.operations import json_body, json_response, links, operation
from ...kits.http_api import Endpoint
from ...kits.openai.errors import OpenAIResourceNotFound
from ...kits.operations import BODY_TOO_LONG, ENROLLMENT_NOTE, RATE_LIMITED, form_body, query
from .http_api import OpenAIHttpApi, openai_errors
from .models import (
    CreateVoiceForm,
    OpenAICreatedVoice,
    OpenAIDeletedVoice,
    OpenAIVoice,
    OpenAIVoiceList,
    RenameVoiceRequest,
    UploadedVoice,
)
from .request_reading import read_voice_form, read_voice_name

_PATH: Final = "/v1/audio/voices"
_LIST: Final = operation(
    "listVoices",
    "List the voices that the key may use.",
    json_response(OpenAIVoiceList, links=links("voice_id", "/uploaded_voices/0/id", "deleteVoice")),
    openai_errors(),
    other_parameters=[
        query(
            "legacy",
            "'true': voices are names, as older versions of Kokoro-FastAPI have them; 'false': objects.",
            examples=["true"],
        )
    ],
)
_CREATE: Final = operation(
    "createVoice",
    "Make a voice of a recording.",
    json_response(OpenAICreatedVoice),
    openai_errors(
        {400: "The form or the recording is unusable, or the loaded model clones no voices."},
        BODY_TOO_LONG,
        RATE_LIMITED,
        {503: "Too many recordings are waiting, or the disk is full."},
    ),
    description=ENROLLMENT_NOTE,
    body=form_body(CreateVoiceForm),
)
_CHANGE_ERRORS: Final = {
    400: "The voice is the operator's.",
    404: "No such voice is enrolled.",
    503: "The disk is full.",
}
_RENAME: Final = operation(
    "renameVoice",
    "Give a voice of the key's another name.",
    json_response(OpenAIVoice),
    openai_errors(_CHANGE_ERRORS, BODY_TOO_LONG),
    description="Needs the scope 'enrol'. The voice keeps its id.",
    path_parameters=("voice_id",),
    body=json_body(RenameVoiceRequest),
)
_DELETE: Final = operation(
    "deleteVoice",
    "Delete a voice of the key's.",
    json_response(OpenAIDeletedVoice),
    openai_errors(_CHANGE_ERRORS),
    description="Needs the scope 'enrol'.",
    path_parameters=("voice_id",),
)


class OpenAIVoicesApi(OpenAIHttpApi):
    """Lists the voices that a key may use, and makes and deletes its own."""

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield f"GET {_PATH}", self.listing(self._list), _LIST
        yield f"POST {_PATH}", self.answering(Scope.ENROLL, self._create), _CREATE
        yield f"PATCH {_PATH}/{{voice_id}}", self.answering(Scope.ENROLL, self._rename), _RENAME
        yield f"DELETE {_PATH}/{{voice_id}}", self.answering(Scope.ENROLL, self._delete), _DELETE

    def _list(self, request: Request, grant: Grant | None) -> OpenAIVoiceList:
        voices = self.usable_voices(grant)
        uploaded = [_uploaded_voice(voice.stored, grant) for voice in voices if voice.stored and grant]
        return OpenAIVoiceList(voices=self._entries(request, voices), uploaded_voices=uploaded)

    def _entries(self, request: Request, voices: Iterable[ListedVoice]) -> list[OpenAIVoice] | list[str]:
        if request.query_params.get("legacy", "").lower() in ("true", "1"):
            return [voice.id for voice in voices]
        return [_listed_voice(voice) for voice in voices]

    async def _create(self, request: Request, grant: Grant) -> OpenAICreatedVoice:
        grant.charge_request()
        form, recordings = await read_voice_form(request)
        new = NewVoice(
            name=form.name,
            transcript=form.ref_text,
            language=form.language,
            consent=form.consent,
            provenance="uploaded to /v1/audio/voices",
            further_recordings=tuple(recordings[1:]),
        )
        stored = await self.server.voices.create(recordings[0], new, grant)
        return OpenAICreatedVoice(
            id=stored.id,
            name=stored.name,
            object="audio.voice",
            type="audio_sample",
            created_at=int(stored.created_at),
            voice=_uploaded_voice(stored, grant),
        )

    async def _rename(self, request: Request, grant: Grant) -> OpenAIVoice:
        name = await read_voice_name(request)
        with _missing_as_not_found():
            stored = await self.server.voices.rename(self._named_in_path(request, grant), name, grant)
        return OpenAIVoice(id=stored.id, name=stored.name, language=stored.about.language or None)

    async def _delete(self, request: Request, grant: Grant) -> OpenAIDeletedVoice:
        with _missing_as_not_found():
            voice_id = self._named_in_path(request, grant)
            await self.server.voices.remove(voice_id, grant)
        return OpenAIDeletedVoice(id=voice_id)

    def _named_in_path(self, request: Request, grant: Grant) -> str:
        return self.server.voices.resolve_as_written(request.path_params["voice_id"], grant)


@contextmanager
def _missing_as_not_found() -> Iterator[None]:
    try:
        yield
    except UnknownVoice as error:
        raise OpenAIResourceNotFound(str(error)) from None


def _listed_voice(voice: ListedVoice) -> OpenAIVoice:
    listed = OpenAIVoice(
        id=voice.id,
        name=voice.name,
        language=voice.language,
        description=voice.description,
        further_languages=list(voice.further_languages) or None,
        follows_instructions=voice.follows_instructions or None,
    )
    if voice.stored is None:
        return listed
    enrolled = {"object": "audio.voice", "type": "audio_sample", "created_at": int(voice.stored.created_at)}
    return listed.model_copy(update=enrolled)


def _uploaded_voice(stored: StoredVoice, grant: Grant) -> UploadedVoice:
    uploaded = UploadedVoice(id=stored.id, name=stored.name, created_at=int(stored.created_at))
    if grant.key_id != stored.about.owner and not grant.allows(Scope.ADMIN):
        return uploaded
    return uploaded.model_copy(update={"consent": stored.about.consent, "ref_text": stored.transcript})
