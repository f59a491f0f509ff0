"""Lexicons in TOML.

[words]
nginx = "engine x"                                            another text that is read instead
Siobhan = "/ʃɪˈvɔːn/"                                         phonemes in slashes, IPA
"Saoirse Ronan" = { ipa = "ˈsɜːʃə ˈroʊnən", say = "Sersha Ronan" }    ``say``: for voices without phonemes
"重庆" = { pinyin = "chong2 qing4" }                             Mandarin, with tone digits
"""

import tomllib
from typing import Any, Final

from ..entries import BadLexicon, LexiconFormat, read_entry
from ..lexicon import Pronunciation, fold_phrase


def _parse(data: bytes, name: str) -> dict[str, Pronunciation]:
    try:
        text = data.decode("utf-8")
        table = _parse_toml(text)
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError, which name the place
        raise BadLexicon(f"{name}: not TOML in UTF-8: {error}") from None
    words = table.get("words")
    if not isinstance(words, dict) or len(table) > 1:
        raise BadLexicon(f"{name}: has {sorted(table) or 'no table'}; allowed is one table, [words]")
    entries = {}
    for phrase, value in words.items():
        try:
            entries[fold_phrase(phrase)] = read_entry(value)
        except ValueError as error:
            raise BadLexicon(f"{name}, line {_line_of(phrase, text)}: {phrase!r}: {error}") from None
    return entries


def _parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML document; raises ValueError with the line."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _line_of(phrase: str, text: str) -> int:
    """The line of an entry; tomllib does not tell it, so each line is read alone until one has the entry."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if phrase in _parse_toml(line):
                return number
        except ValueError:  # a line of a value that goes on
            continue
    return 1


TOML: Final = LexiconFormat((".toml",), _parse)
