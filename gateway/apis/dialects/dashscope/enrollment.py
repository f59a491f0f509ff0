"""DashScope's voice enrolment: create, list, look up, replace and delete voices of the registry.

Voice ids are DashScope's, {target_model}-{prefix}-{32 hexadecimal digits}. The prefix of a voice is read from
its id, and only voices with such an id are listed. The server keeps what the voice model read from a
recording, not the recording, so ``resource_link`` is always empty.
"""

import re
from datetime import UTC, datetime
from typing import Final, assert_never
from uuid import uuid4

from .....tts_engine.voices.recording import RecordingLimits
from .....tts_engine.voices.store import StoredVoice
from ....access.access_control import Grant
from ....access.url_guard import UrlGuard
from ....voice_registry import NewVoice, VoiceRegistry
from .models import (
    CreatedVoice,
    CreateVoiceInput,
    DeleteVoiceInput,
    EnrolledVoice,
    ListVoiceInput,
    NoVoiceOutput,
    QueryVoiceInput,
    UpdateVoiceInput,
    VoiceAction,
    VoiceDetails,
    VoiceList,
    VoiceOutput,
)

# DashScope's own limit of a recording; the voice model reads max_prompt_audio_length seconds of it.
_RECORDING_LIMITS = RecordingLimits(max_duration_s=60.0)
_MAX_PROVENANCE_URL_CHARACTERS: Final = 200
_VOICE_ID_PATTERN: Final = re.compile(r"(?P<target>.+)-(?P<prefix>[a-z0-9]{1,10})-[0-9a-f]{32}", re.ASCII)


class DashScopeEnrollment:
    """Performs the actions of a VoiceCustomizationRequest; ``guard`` fetches the recordings."""

    def __init__(self, voices: VoiceRegistry, guard: UrlGuard) -> None:
        self._voices = voices
        self._guard = guard

    async def perform(self, action: VoiceAction, grant: Grant) -> VoiceOutput:
        """Perform an action and return its ``output``; raise BadRequest, UnknownVoice or Overloaded."""
        match action:
            case CreateVoiceInput():
                return await self._create(action, grant)
            case ListVoiceInput():
                return self._list(action, grant)
            case QueryVoiceInput():
                return self._query(action, grant)
            case UpdateVoiceInput():
                return await self._update(action, grant)
            case DeleteVoiceInput():
                await self._voices.remove(action.voice_id, grant)
                return NoVoiceOutput()
            case _:
                assert_never(action)

    async def _create(self, action: CreateVoiceInput, grant: Grant) -> CreatedVoice:
        voice_id = f"{action.target_model}-{action.prefix}-{uuid4().hex}"
        new = _new_voice(action, action.prefix, voice_id)
        voice = await self._voices.create(await self._guard.fetch(action.url), new, grant)
        return CreatedVoice(voice_id=voice.id)

    def _list(self, action: ListVoiceInput, grant: Grant) -> VoiceList:
        matched = [
            (_VOICE_ID_PATTERN.fullmatch(voice.id), voice) for voice in self._voices.enrolled_voices(grant)
        ]
        found = [voice for parts, voice in matched if parts and action.prefix in (None, parts["prefix"])]
        start = action.page_index * action.page_size
        page = found[start : start + action.page_size]
        return VoiceList(voice_list=[_enrolled_voice(voice) for voice in page])

    def _query(self, action: QueryVoiceInput, grant: Grant) -> VoiceDetails:
        voice = self._voices.find(action.voice_id, grant)
        parts = _VOICE_ID_PATTERN.fullmatch(voice.id)
        target_model = parts["target"] if parts else ""
        return VoiceDetails(**_enrolled_voice(voice).model_dump(), target_model=target_model)

    async def _update(self, action: UpdateVoiceInput, grant: Grant) -> NoVoiceOutput:
        voice = self._voices.find(action.voice_id, grant)
        new = _new_voice(action, voice.name, voice_id=None)
        await self._voices.replace(voice.id, await self._guard.fetch(action.url), new, grant)
        return NoVoiceOutput()


def _new_voice(action: CreateVoiceInput | UpdateVoiceInput, name: str, voice_id: str | None) -> NewVoice:
    is_data_url = action.url[:5].lower() == "data:"
    return NewVoice(
        name,
        transcript=action.transcript,
        language=action.language_hints[0] if action.language_hints else "",
        consent=action.consent,
        provenance="DashScope API, "
        + ("data URL" if is_data_url else action.url[:_MAX_PROVENANCE_URL_CHARACTERS]),
        voice_id=voice_id,
        max_prompt_s=action.max_prompt_audio_length,
        limits=_RECORDING_LIMITS,
    )


def _enrolled_voice(voice: StoredVoice) -> EnrolledVoice:
    return EnrolledVoice(
        voice_id=voice.id,
        gmt_create=_format_gmt(voice.created_at),
        gmt_modified=_format_gmt(voice.changed_at),
    )


def _format_gmt(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
