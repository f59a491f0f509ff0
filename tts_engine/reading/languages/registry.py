"""The languages that are read; another package adds one with an entry point of ``vivavoce.languages``."""

from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from typing import Final

from ...packaging.plug_ins import with_plug_ins
from ..language import Language
from .de.rules import GERMAN
from .default import DEFAULT_LANGUAGE
from .es.rules import SPANISH
from .fr.rules import FRENCH
from .it.rules import ITALIAN
from .ja.rules import JAPANESE
from .ko.rules import KOREAN
from .nl.rules import DUTCH
from .pl.rules import POLISH
from .pt.rules import PORTUGUESE
from .ru.rules import RUSSIAN
from .tr.rules import TURKISH
from .zh.rules import CHINESE

LANGUAGES: Final = (
    DEFAULT_LANGUAGE,
    CHINESE,
    JAPANESE,
    GERMAN,
    FRENCH,
    SPANISH,
    ITALIAN,
    PORTUGUESE,
    DUTCH,
    POLISH,
    RUSSIAN,
    TURKISH,
    KOREAN,
)
_ENTRY_POINTS: Final = "vivavoce.languages"


@cache
def languages_by_code() -> Mapping[str, Language]:
    """The languages of this package, then those of others, by their codes."""
    languages = with_plug_ins(_ENTRY_POINTS, LANGUAGES, attrgetter("code"))
    return {language.code: language for language in languages}


@cache
def _aliases() -> Mapping[str, str]:
    return {alias: each.code for each in languages_by_code().values() for alias in each.aliases}


def primary_code(tag: str) -> str:
    """The code of a language tag such as "de-AT"; one that is not read keeps its own."""
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return _aliases().get(primary, primary)


def is_supported_language(tag: str) -> bool:
    """Whether text of the language ``tag`` is read in its own language."""
    return primary_code(tag) in languages_by_code()
