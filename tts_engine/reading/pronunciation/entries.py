"""Checked entries of lexicons, as people write them, and the record of a format of their files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...errors import BadRequest
from .ipa import read_ipa
from .lexicon import MAX_RESPELLING_CHARACTERS, Lexicon, Pronunciation, fold_phrase
from .pinyin import read_pinyin

_ENTRY_FIELDS: Final = {"ipa": "phonemes", "say": "respelling", "pinyin": "pinyin"}


class BadLexicon(BadRequest):
    """A lexicon cannot be used; the message has the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class LexiconFormat:
    """A format of lexicon files.

    parse: returns the entries of a file's bytes; raises BadLexicon, whose messages begin with the given name.
    """

    suffixes: tuple[str, ...]
    parse: Callable[[bytes, str], dict[str, Pronunciation]]


def make_pronunciation(respelling: str = "", phonemes: str = "", pinyin: str = "") -> Pronunciation:
    """Return a checked pronunciation; raises ValueError (BadIpa and BadPinyin are such)."""
    respelling = " ".join(respelling.split())
    if not (respelling or phonemes.strip() or pinyin.strip()):
        raise ValueError("a respelling, phonemes or pinyin are needed")
    if len(respelling) > MAX_RESPELLING_CHARACTERS:
        raise ValueError(f"{len(respelling)} characters; at most {MAX_RESPELLING_CHARACTERS} are allowed")
    return Pronunciation(
        respelling,
        read_ipa(phonemes) if phonemes.strip() else "",
        read_pinyin(pinyin) if pinyin.strip() else "",
    )


def read_entry(value: object) -> Pronunciation:
    """Return the pronunciation of a phrase, as TOML and JSON have it; raises ValueError."""
    match value:
        case str() if len(value) > 1 and value.startswith("/") and value.endswith("/"):
            return make_pronunciation(phonemes=value)
        case str():
            return make_pronunciation(respelling=value)
        case dict() if value.keys() <= _ENTRY_FIELDS.keys():
            fields = {_ENTRY_FIELDS[key]: said for key, said in value.items() if isinstance(said, str)}
            if len(fields) == len(value):
                return make_pronunciation(**fields)
    raise ValueError(
        "allowed is a text, or a table with ipa, pinyin and say; a word with a stop needs quotes"
    )


def lexicon_of(entries: Mapping[str, Any]) -> Lexicon:
    """Return the lexicon of entries as a TOML file has them; raises BadLexicon with the entry."""
    return Lexicon(dict(_checked(entries)))


def _checked(entries: Mapping[str, Any]) -> Iterator[tuple[str, Pronunciation]]:
    for phrase, value in entries.items():
        try:
            yield fold_phrase(phrase), read_entry(value)
        except ValueError as error:
            raise BadLexicon(f"pronunciation of {phrase[:80]!r}: {error}") from None
