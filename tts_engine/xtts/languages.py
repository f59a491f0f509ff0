"""The languages of XTTS v2: names, codes, and the language of a text that is not given."""

import re
from collections.abc import Collection

from ..errors import BadRequest
from ..reading.unicode_scripts import CYRILLIC, GREEK, HAN, HANGUL, KANA, LATIN, ReadableScripts
from ..voices.voices import MULTIPLE_LANGUAGES

XTTS_LANGUAGES = {
    "ar": "Arabic",
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ru": "Russian",
    "tr": "Turkish",
    "zh": "Chinese",
}
_ARABIC = "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff"
_DEVANAGARI = "\u0900-\u097f"
_ALPHABETS = (LATIN, GREEK, CYRILLIC, _ARABIC, _DEVANAGARI)
_ROMANIZED_SCRIPTS = {"zh": (HAN,), "ja": (HAN, KANA), "ko": (HANGUL,)}
_LANGUAGE_OF_SCRIPT = (
    (re.compile(f"[{KANA}]"), "ja"),
    (re.compile(f"[{HANGUL}]"), "ko"),
    (re.compile(f"[{HAN}]"), "zh"),
    (re.compile(f"[{CYRILLIC}]"), "ru"),
    (re.compile(f"[{_ARABIC}]"), "ar"),
    (re.compile(f"[{_DEVANAGARI}]"), "hi"),
)
_DEFAULT = "en"


def xtts_language(tag: str | None, known: Collection[str]) -> str | None:
    """The base code of a language tag or an English name; None if the tag names no single language.

    known: codes of the bundle, such as "en" and "zh-cn". Raises BadRequest for another language.
    """
    if tag is None or tag.lower() in (MULTIPLE_LANGUAGES, "und", "auto", ""):
        return None
    bases = sorted({code.partition("-")[0] for code in known})
    wanted = tag.replace("_", "-").partition("-")[0].lower()
    for code in bases:
        if wanted in (code, XTTS_LANGUAGES.get(code, code).lower()):
            return code
    listed = ", ".join(f"{XTTS_LANGUAGES.get(code, code)} ({code})" for code in bases)
    raise BadRequest(f"language is {tag!r}; this bundle speaks {listed}")


def readable_scripts(language: str | None) -> ReadableScripts:
    """The scripts that are read in a language; None: in a text whose language is not given."""
    if language is None:
        return ReadableScripts(*_ALPHABETS, HAN, KANA, HANGUL)
    if language in _ROMANIZED_SCRIPTS:
        return ReadableScripts(LATIN, *_ROMANIZED_SCRIPTS[language])
    return ReadableScripts(*_ALPHABETS)


def language_of_text(text: str) -> str:
    """The language of a text by its script; Latin letters are taken for English."""
    if text.isascii():
        return _DEFAULT
    return next((code for script, code in _LANGUAGE_OF_SCRIPT if script.search(text)), _DEFAULT)
