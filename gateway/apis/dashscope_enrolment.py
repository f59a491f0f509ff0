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

from ...adapters.dashscope_parameters import Invalid
from ...tts_engine.recording import RecordingLimits
from ...tts_engine.voice_store import StoredVoice
from ..access.access import Grant
from ..access.url_guard import UrlGuard
from ..voice_registry import NewVoice
from .dashscope_words import Voices, check_model

_RECORDING = RecordingLimits(longest_s=60.0)  # as long as DashScope takes; ``use_s`` of it is heard
DEFAULT_PROMPT_S: Final = 10.0
PROMPT_S: Final = (3.0, 30.0)
MOST_ON_A_PAGE: Final = 1000
PREFIX: Final = re.compile(r"[a-z0-9]{1,10}", re.ASCII)
TARGET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_VOICE: Final = re.compile(r"(?P<target>.+)-(?P<prefix>[a-z0-9]{1,10})-[0-9a-f]{32}", re.ASCII)

Fields = Mapping[str, object]
Output = dict[str, object]


class Registry(Voices, Protocol):
    """The voices of the house, as far as this API changes them."""

    def cloned(self, grant: Grant) -> tuple[StoredVoice, ...]:
        """Those on file that the key may use, in order of age."""

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        """One of them; raises UnknownVoice."""

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Enrol the bytes of a sound file."""

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Give a voice another recording."""

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        """Delete a voice."""


class Enrolment:
    """Answers the actions; ``guard`` fetches recordings."""

    def __init__(self, voices: Registry, guard: UrlGuard) -> None:
        self._voices = voices
        self._guard = guard

    async def answer(self, given: Fields, grant: Grant) -> Output:
        """The ``output`` for an ``input``; raises Invalid, BadRequest, UnknownVoice, Overloaded."""
        actions: Mapping[object, Callable[[Fields, Grant], Awaitable[Output]]] = {
            "create_voice": self._create,
            "list_voice": self._list,
            "query_voice": self._query,
            "update_voice": self._update,
            "delete_voice": self._delete,
        }
        action = given.get("action")
        if not isinstance(action, str) or action not in actions:
            raise Invalid(f"input.action must be one of {', '.join(map(str, actions))}")
        return await actions[action](given, grant)

    async def _create(self, given: Fields, grant: Grant) -> Output:
        target, prefix = _matching(given, "target_model", TARGET), _matching(given, "prefix", PREFIX)
        check_model(target)
        new = _new_voice(given, prefix, voice_id=f"{target}-{prefix}-{uuid4().hex}")
        voice = await self._voices.create(await self._recording(given), new, grant)
        return {"voice_id": voice.id}

    async def _list(self, given: Fields, grant: Grant) -> Output:
        prefix = given.get("prefix")
        if prefix is not None:
            _matching(given, "prefix", PREFIX)
        index = _whole(given, "page_index", 0, 0, 1_000_000)
        size = _whole(given, "page_size", 10, 1, MOST_ON_A_PAGE)
        made = [(_VOICE.fullmatch(voice.id), voice) for voice in self._voices.cloned(grant)]
        found = [voice for parts, voice in made if parts and prefix in (None, parts["prefix"])]
        return {"voice_list": [_listed(voice) for voice in found[index * size : (index + 1) * size]]}

    async def _query(self, given: Fields, grant: Grant) -> Output:
        voice = self._voices.find(_voice_id(given), grant)
        parts = _VOICE.fullmatch(voice.id)
        target = parts["target"] if parts else ""
        return {**_listed(voice), "target_model": target, "resource_link": ""}

    async def _update(self, given: Fields, grant: Grant) -> Output:
        voice = self._voices.find(_voice_id(given), grant)
        new = _new_voice(given, voice.name, voice_id=None)
        await self._voices.replace(voice.id, await self._recording(given), new, grant)
        return {}

    async def _delete(self, given: Fields, grant: Grant) -> Output:
        await self._voices.remove(_voice_id(given), grant)
        return {}

    async def _recording(self, given: Fields) -> bytes:
        url = given.get("url")
        if not isinstance(url, str) or not url:
            raise Invalid("input.url is required: http, https or data")
        return await self._guard.fetch(url)


def _new_voice(given: Fields, name: str, voice_id: str | None) -> NewVoice:
    """``transcript`` and ``consent`` are fields of ours; the others are DashScope's."""
    url = str(given.get("url", ""))
    return NewVoice(
        name,
        transcript=_optional(given, "transcript", 1_000),
        language=_language(given),
        consent=_optional(given, "consent", 2_000),
        provenance="DashScope API, " + ("data URL" if url[:5].lower() == "data:" else url[:200]),
        voice_id=voice_id,
        use_s=_number(given, "max_prompt_audio_length", DEFAULT_PROMPT_S, *PROMPT_S),
        limits=_RECORDING,
    )


def _listed(voice: StoredVoice) -> Output:
    return {
        "voice_id": voice.id,
        "gmt_create": _gmt(voice.created_at),
        "gmt_modified": _gmt(voice.changed_at),
        "status": "OK",
    }


def _gmt(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _matching(given: Fields, name: str, pattern: re.Pattern[str]) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Invalid(f"input.{name} must match {pattern.pattern}")
    return value


def _voice_id(given: Fields) -> str:
    value = given.get("voice_id")
    if not isinstance(value, str) or not value:
        raise Invalid("input.voice_id is required")
    return value


def _optional(given: Fields, name: str, longest: int) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > longest:
        raise Invalid(f"input.{name} must be a string of at most {longest} characters")
    return value


def _language(given: Fields) -> str:
    hints = given.get("language_hints")
    if hints is None or hints == []:
        return ""
    if not isinstance(hints, list) or not isinstance(hints[0], str) or len(hints[0]) > 16:
        raise Invalid("input.language_hints must be a list of language codes")
    return hints[0]


def _number(given: Fields, name: str, default: float, low: float, high: float) -> float:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Invalid(f"input.{name} must be a number from {low:g} to {high:g}")
    return float(value)


def _whole(given: Fields, name: str, default: int, low: int, high: int) -> int:
    value = _number(given, name, default, low, high)
    if value != int(value):
        raise Invalid(f"input.{name} must be a whole number")
    return int(value)
