"""Languages of voices and of texts, as BCP 47 tags, and what happens where the two differ."""

import logging
from enum import StrEnum

from ..errors import LanguageNotSpoken
from .voices import MULTIPLE_LANGUAGES, Voice

logger = logging.getLogger(__name__)


class OtherLanguage(StrEnum):
    """What happens to a text in a language that its voice does not speak."""

    REFUSE = "refuse"
    WARN = "warn"  # speak it with the voice's own rules
    # Speak it with the default voice of its language; refuse without one. A stream keeps its voice, so that a
    # part of a text is refused.
    OTHER_VOICE = "other-voice"


def require_language(voice: Voice, language: str | None) -> None:
    """Raise LanguageNotSpoken unless a voice speaks a language; None and "mul" leave it to the voice."""
    if language and not speaks(voice, language):
        raise LanguageNotSpoken(
            f"the voice {voice.id} speaks {', '.join((voice.language, *voice.further_languages))}; "
            f"the language of the text is {language!r}"
        )


def language_read(voice: Voice, language: str, other: OtherLanguage) -> str | None:
    """The language in which a voice reads a part of a text that is in ``language``.

    None is its own, with a warning. Raises LanguageNotSpoken.
    """
    if speaks(voice, language):
        return language
    if other is not OtherLanguage.WARN:
        require_language(voice, language)
    logger.warning("the voice %s does not speak %s; it reads the text by its own rules", voice.id, language)
    return None


def speaks(voice: Voice, language: str) -> bool:
    """Whether a voice speaks a language, in any region."""
    spoken = {primary_language(each) for each in (voice.language, *voice.further_languages)}
    return primary_language(language) in spoken | {MULTIPLE_LANGUAGES} or MULTIPLE_LANGUAGES in spoken


def primary_language(tag: str) -> str:
    """The language of a tag without its region, in lower case."""
    return tag.replace("_", "-").partition("-")[0].lower()
