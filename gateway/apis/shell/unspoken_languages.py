"""Notices and refusals of texts in a language that their voice lacks, where the request states none."""

import logging
from dataclasses import dataclass
from typing import Final

from ....tts_engine.errors import LanguageNotSpoken
from ....tts_engine.reading.text_language import MAX_CHARACTERS, likely_language
from ....tts_engine.voices.languages import primary_language
from ....tts_engine.voices.voices import MULTIPLE_LANGUAGES, Voice
from ...voice_registry import ListedVoice, VoiceRegistry

logger = logging.getLogger(__name__)

_NO_LANGUAGE: Final = "zxx"  # BCP 47, of a voice that makes other sounds
_MAX_LOGGED: Final = 1_000  # pairs of voice and language, each once


@dataclass(frozen=True, slots=True)
class UnspokenLanguage:
    """The language that a text seems to be in, and a voice of the bundles that speaks it, if there is one."""

    language: str  # ISO 639-1
    voice: str | None


class UnspokenLanguages:
    """Finds and logs such texts of one server."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def find(self, text: str, voice_id: str, voices: VoiceRegistry) -> UnspokenLanguage | None:
        """The language of a text, if a voice of the bundles is to read it that does not speak it."""
        voice = voices.bundle_voice(voice_id)
        if voice is None or (language := likely_language(text)) is None or _speaks(voice, language):
            return None
        other = next((each.id for each in voices.bundle_voices() if _speaks(each, language)), None)
        self._log(voice_id, language, other)
        return UnspokenLanguage(language, other)

    def _log(self, voice_id: str, language: str, other: str | None) -> None:
        if (voice_id, language) in self._logged or len(self._logged) >= _MAX_LOGGED:
            return
        self._logged.add((voice_id, language))
        advice = "no voice of the bundles speaks it" if other is None else f"the voice {other} speaks it"
        logger.warning(
            "a text seems to be in %s, which the voice %s reads by its own rules; %s",
            *(language, voice_id, advice),
        )


class LanguageCheck:
    """Refuses the text of one utterance as soon as it is clearly in a language that its voice lacks."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._text = ""

    def push(self, text: str) -> None:
        """Take the next part of the text; raises LanguageNotSpoken."""
        if len(self._text) >= MAX_CHARACTERS:
            return
        self._text += text[:MAX_CHARACTERS]
        language = likely_language(self._text)
        if language is not None and not _speaks(self._voice, language):
            spoken = ", ".join((self._voice.language, *self._voice.further_languages))
            raise LanguageNotSpoken(
                f"the text seems to be in {language!r}; the voice {self._voice.id} speaks {spoken}. "
                f"A request that states a language is not refused for a guess"
            )


def _speaks(voice: Voice | ListedVoice, language: str) -> bool:
    spoken = {primary_language(each) for each in (voice.language, *voice.further_languages)}
    return bool({language, MULTIPLE_LANGUAGES, _NO_LANGUAGE} & spoken)
