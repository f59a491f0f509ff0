"""Upstream's text normalisation and segmentation, with its faults, to compare with upstream's answers.

Not used to speak: the engine's normalisers support more languages and bound every segment. Upstream spells
numbers in English in every language, turns every full stop of a Chinese text into 。, and does not bound a
segment without punctuation. Its normalisation by wetext, used if that is installed, is not reproduced.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:129-165, cosyvoice/utils/frontend_utils.py.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from enum import Enum

import inflect

# In characters for Chinese, else in tokens.
MAX_LENGTH = 80
MIN_LENGTH_TO_CUT = 60
MIN_LAST_LENGTH = 20

Tokenize = Callable[[str], list[str]] | Callable[[str], list[int]]

_CHINESE = re.compile("[\u4e00-\u9fff]")
_BRACKETS = str.maketrans({mark: "" for mark in "（）【】`"})
_CLOSING_QUOTES = ('"', "”")
_TRAILING_COMMAS = re.compile("[，,、]+$")


class UpstreamTextRules(Enum):
    """The rules of a script. The value lists the marks that end a piece; the first one is the default."""

    CHINESE = "。？！；：、.?!;"
    OTHER = ".?!;:"


def rules_for(text: str) -> UpstreamTextRules:
    """The Chinese rules if the text has any Chinese character."""
    return UpstreamTextRules.CHINESE if _CHINESE.search(text) else UpstreamTextRules.OTHER


def prepare(text: str, tokenize: Tokenize) -> list[str]:
    """Normalised segments of a text; a text with control tokens is returned unchanged."""
    if _is_unchanged(text):
        return [text]
    normal = normalize(text)
    pieces = split_paragraph(normal, tokenize, rules_for(normal))
    return [piece for piece in pieces if not is_only_punctuation(piece)]


def normalize(text: str) -> str:
    """Normalise a text without cutting it."""
    if _is_unchanged(text):
        return text
    stripped = text.strip()
    return (
        _chinese(stripped)
        if rules_for(stripped) is UpstreamTextRules.CHINESE
        else spell_out_numbers(stripped)
    )


def is_only_punctuation(text: str) -> bool:
    """Whether the text has only punctuation and symbols; true for the empty text, false for a space."""
    return all(unicodedata.category(character)[0] in "PS" for character in text)


def spell_out_numbers(text: str) -> str:
    """Spell every run of digits in English, whatever surrounds it."""
    engine = inflect.engine()
    return re.sub(r"\d+", lambda run: str(engine.number_to_words(run[0])), text)


def remove_blanks(text: str) -> str:
    """Remove spaces, except between two ASCII characters that are not spaces."""
    kept = []
    for before, character, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if character != " " or (before.isascii() and after.isascii() and " " not in (before, after)):
            kept.append(character)
    return "".join(kept)


def spell_out_corner_marks(text: str) -> str:
    """Spell ² and ³ in Chinese."""
    return text.replace("²", "平方").replace("³", "立方")


def remove_brackets(text: str) -> str:
    """Remove brackets but not their content; a long dash becomes a space."""
    return text.translate(_BRACKETS).replace("——", " ")


def split_paragraph(text: str, tokenize: Tokenize, script: UpstreamTextRules) -> list[str]:
    """Cut after marks and join pieces greedily up to MAX_LENGTH; a short last segment joins the previous."""
    segments: list[str] = []
    current = ""
    for piece in _pieces(text, script):
        if (
            _length(current + piece, tokenize, script) > MAX_LENGTH
            and _length(current, tokenize, script) > MIN_LENGTH_TO_CUT
        ):
            segments.append(current)
            current = ""
        current += piece
    if current and segments and _length(current, tokenize, script) < MIN_LAST_LENGTH:
        segments[-1] += current
    elif current:
        segments.append(current)
    return segments


def _is_unchanged(text: str) -> bool:
    return not text or ("<|" in text and "|>" in text)


def _chinese(text: str) -> str:
    text = spell_out_corner_marks(remove_blanks(text.replace("\n", "")))
    text = remove_brackets(text.replace(".", "。").replace(" - ", "，"))
    return _TRAILING_COMMAS.sub("。", text)


def _pieces(text: str, script: UpstreamTextRules) -> Iterator[str]:
    """Yield the text up to each mark, with a closing quote after it; a mark without text is dropped."""
    marks = script.value
    if text and text[-1] not in marks:
        text += marks[0]
    start = 0
    for index, character in enumerate(text):
        if character not in marks or index < start:
            continue
        stop = index + 2 if text[index + 1 : index + 2] in _CLOSING_QUOTES else index + 1
        if index > start:
            yield text[start:stop]
        start = stop


def _length(text: str, tokenize: Tokenize, script: UpstreamTextRules) -> int:
    return len(text) if script is UpstreamTextRules.CHINESE else len(tokenize(text))
