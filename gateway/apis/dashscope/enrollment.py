"""DashScope's enrolment of voices: its actions and fields over the registry of the house.

Ids are DashScope's, {target_model}-{prefix}-{32 hex}, which is how a listing knows the prefix of a voice and
whether this API made it. A recording is kept as what the model took from it, not as sound: there is no
``resource_link`` to it.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol
from uuid import uuid4

from ....adapters.dashscope.parameters import InvalidDashScopeField
from ....tts_engine.voices.recording import RecordingLimits
from ....tts_engine.voices.store import StoredVoice
from ...access.access_control import Grant
from ...access.url_guard import UrlGuard
from ...voice_registry import NewVoice
from .request_mapping import VoiceResolver, check_dashscope_model

_RECORDING_LIMITS = RecordingLimits(
    max_duration_s=60.0
)  # as long as DashScope takes; ``use_s`` of it is heard
DEFAULT_PROMPT_S: Final = 10.0
PROMPT_RANGE_S: Final = (3.0, 30.0)
MAX_PAGE_SIZE: Final = 1000
PREFIX_PATTERN: Final = re.compile(r"[a-z0-9]{1,10}", re.ASCII)
TARGET_MODEL_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_VOICE_ID_PATTERN: Final = re.compile(r"(?P<target>.+)-(?P<prefix>[a-z0-9]{1,10})-[0-9a-f]{32}", re.ASCII)

DashScopeFields = Mapping[str, object]
DashScopeOutput = dict[str, object]


class DashScopeVoiceRegistry(VoiceResolver, Protocol):
    """The voices of the house, as far as this API changes them."""

    def enrolled_voices(self, grant: Grant) -> tuple[StoredVoice, ...]:
        """Those on file that the key may use, in order of age."""

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        """One of them; raises UnknownVoice."""

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Enrol the bytes of a sound file."""

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Give a voice another recording."""

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        """Delete a voice."""


class DashScopeEnrollment:
    """Answers the actions; ``guard`` fetches recordings."""

    def __init__(self, voices: DashScopeVoiceRegistry, guard: UrlGuard) -> None:
        self._voices = voices
        self._guard = guard

    async def perform(self, fields: DashScopeFields, grant: Grant) -> DashScopeOutput:
        """The ``output`` for an ``input``; raises Invalid, BadRequest, UnknownVoice, Overloaded."""
        actions: Mapping[object, Callable[[DashScopeFields, Grant], Awaitable[DashScopeOutput]]] = {
            "create_voice": self._create,
            "list_voice": self._list,
            "query_voice": self._query,
            "update_voice": self._update,
            "delete_voice": self._delete,
        }
        action = fields.get("action")
        if not isinstance(action, str) or action not in actions:
            raise InvalidDashScopeField(f"input.action must be one of {', '.join(map(str, actions))}")
        return await actions[action](fields, grant)

    async def _create(self, fields: DashScopeFields, grant: Grant) -> DashScopeOutput:
        target, prefix = (
            _matching_string(fields, "target_model", TARGET_MODEL_PATTERN),
            _matching_string(fields, "prefix", PREFIX_PATTERN),
        )
        check_dashscope_model(target)
        new = _read_new_voice(fields, prefix, voice_id=f"{target}-{prefix}-{uuid4().hex}")
        voice = await self._voices.create(await self._fetch_recording(fields), new, grant)
        return {"voice_id": voice.id}

    async def _list(self, fields: DashScopeFields, grant: Grant) -> DashScopeOutput:
        prefix = fields.get("prefix")
        if prefix is not None:
            _matching_string(fields, "prefix", PREFIX_PATTERN)
        index = _integer(fields, "page_index", 0, 0, 1_000_000)
        size = _integer(fields, "page_size", 10, 1, MAX_PAGE_SIZE)
        matched = [
            (_VOICE_ID_PATTERN.fullmatch(voice.id), voice) for voice in self._voices.enrolled_voices(grant)
        ]
        found = [voice for parts, voice in matched if parts and prefix in (None, parts["prefix"])]
        return {
            "voice_list": [_listed_voice_body(voice) for voice in found[index * size : (index + 1) * size]]
        }

    async def _query(self, fields: DashScopeFields, grant: Grant) -> DashScopeOutput:
        voice = self._voices.find(_required_voice_id(fields), grant)
        parts = _VOICE_ID_PATTERN.fullmatch(voice.id)
        target = parts["target"] if parts else ""
        return {**_listed_voice_body(voice), "target_model": target, "resource_link": ""}

    async def _update(self, fields: DashScopeFields, grant: Grant) -> DashScopeOutput:
        voice = self._voices.find(_required_voice_id(fields), grant)
        new = _read_new_voice(fields, voice.name, voice_id=None)
        await self._voices.replace(voice.id, await self._fetch_recording(fields), new, grant)
        return {}

    async def _delete(self, fields: DashScopeFields, grant: Grant) -> DashScopeOutput:
        await self._voices.remove(_required_voice_id(fields), grant)
        return {}

    async def _fetch_recording(self, fields: DashScopeFields) -> bytes:
        url = fields.get("url")
        if not isinstance(url, str) or not url:
            raise InvalidDashScopeField("input.url is required: http, https or data")
        return await self._guard.fetch(url)


def _read_new_voice(fields: DashScopeFields, name: str, voice_id: str | None) -> NewVoice:
    """``transcript`` and ``consent`` are fields of ours; the others are DashScope's."""
    url = str(fields.get("url", ""))
    return NewVoice(
        name,
        transcript=_optional_string(fields, "transcript", 1_000),
        language=_language(fields),
        consent=_optional_string(fields, "consent", 2_000),
        provenance="DashScope API, " + ("data URL" if url[:5].lower() == "data:" else url[:200]),
        voice_id=voice_id,
        max_prompt_s=_number(fields, "max_prompt_audio_length", DEFAULT_PROMPT_S, *PROMPT_RANGE_S),
        limits=_RECORDING_LIMITS,
    )


def _listed_voice_body(voice: StoredVoice) -> DashScopeOutput:
    return {
        "voice_id": voice.id,
        "gmt_create": _format_gmt(voice.created_at),
        "gmt_modified": _format_gmt(voice.changed_at),
        "status": "OK",
    }


def _format_gmt(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _matching_string(fields: DashScopeFields, name: str, pattern: re.Pattern[str]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidDashScopeField(f"input.{name} must match {pattern.pattern}")
    return value


def _required_voice_id(fields: DashScopeFields) -> str:
    value = fields.get("voice_id")
    if not isinstance(value, str) or not value:
        raise InvalidDashScopeField("input.voice_id is required")
    return value


def _optional_string(fields: DashScopeFields, name: str, max_characters: int) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > max_characters:
        raise InvalidDashScopeField(f"input.{name} must be a string of at most {max_characters} characters")
    return value


def _language(fields: DashScopeFields) -> str:
    hints = fields.get("language_hints")
    if hints is None or hints == []:
        return ""
    if not isinstance(hints, list) or not isinstance(hints[0], str) or len(hints[0]) > 16:
        raise InvalidDashScopeField("input.language_hints must be a list of language codes")
    return hints[0]


def _number(fields: DashScopeFields, name: str, default: float, minimum: float, maximum: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise InvalidDashScopeField(f"input.{name} must be a number from {minimum:g} to {maximum:g}")
    return float(value)


def _integer(fields: DashScopeFields, name: str, default: int, minimum: int, maximum: int) -> int:
    value = _number(fields, name, default, minimum, maximum)
    if value != int(value):
        raise InvalidDashScopeField(f"input.{name} must be a whole number")
    return int(value)
