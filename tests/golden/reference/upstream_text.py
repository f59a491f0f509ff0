"""How upstream prepares text, kept for comparison: Chinese and English rules, and how paragraphs are cut.

Only for `compat`: the engine has normalisers of its own, which know more languages and bound every segment.
What upstream gets wrong is kept: numbers are read in English whatever the language, every full stop of a
Chinese text becomes 。, a piece without marks has no bound. Text normalisation by wetext, which upstream uses
where it is installed, is not here.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:129-165, cosyvoice/utils/frontend_utils.py.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from enum import Enum

import inflect

MAX_LENGTH = 80  # characters of Chinese, tokens otherwise
MIN_LENGTH_TO_CUT = 60
MIN_LAST_LENGTH = 20

Tokenize = Callable[[str], list[str]] | Callable[[str], list[int]]

_CHINESE = re.compile("[\u4e00-\u9fff]")
_BRACKETS = str.maketrans({mark: "" for mark in "（）【】`"})
_CLOSING_QUOTES = ('"', "”")
_TRAILING_COMMAS = re.compile("[，,、]+$")


class UpstreamTextRules(Enum):
    """Which rules hold. The value is the marks that end a piece, the first where a text has none."""

    CHINESE = "。？！；：、.?!;"
    OTHER = ".?!;:"


def rules_for(text: str) -> UpstreamTextRules:
    """Chinese where any Chinese character is in the text."""
    return UpstreamTextRules.CHINESE if _CHINESE.search(text) else UpstreamTextRules.OTHER


def prepare(text: str, tokenize: Tokenize) -> list[str]:
    """Normalised segments of a text, spoken one by one; the text untouched where it has control marks."""
    if _is_left_alone(text):
        return [text]
    normal = normalize(text)
    pieces = split_paragraph(normal, tokenize, rules_for(normal))
    return [piece for piece in pieces if not is_only_punctuation(piece)]


def normalize(text: str) -> str:
    """One text, not cut."""
    if _is_left_alone(text):
        return text
    stripped = text.strip()
    return (
        _chinese(stripped)
        if rules_for(stripped) is UpstreamTextRules.CHINESE
        else spell_out_numbers(stripped)
    )


def is_only_punctuation(text: str) -> bool:
    """Whether there is nothing but punctuation and symbols; true of the empty text, not of a blank."""
    return all(unicodedata.category(character)[0] in "PS" for character in text)


def spell_out_numbers(text: str) -> str:
    """Every run of digits as English words, whatever stands around it."""
    engine = inflect.engine()
    return re.sub(r"\d+", lambda run: str(engine.number_to_words(run[0])), text)


def remove_blanks(text: str) -> str:
    """Keep a blank only between two ASCII characters that are no blanks themselves."""
    kept = []
    for before, character, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if character != " " or (before.isascii() and after.isascii() and " " not in (before, after)):
            kept.append(character)
    return "".join(kept)


def spell_out_corner_marks(text: str) -> str:
    """Square and cubic, in Chinese."""
    return text.replace("²", "平方").replace("³", "立方")


def remove_brackets(text: str) -> str:
    """Brackets go, what is in them stays; a long dash becomes a blank."""
    return text.translate(_BRACKETS).replace("——", " ")


def split_paragraph(text: str, tokenize: Tokenize, script: UpstreamTextRules) -> list[str]:
    """Cut after marks and join pieces greedily up to 80; a last one below 20 joins the one before."""
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


def _is_left_alone(text: str) -> bool:
    return not text or ("<|" in text and "|>" in text)


def _chinese(text: str) -> str:
    text = spell_out_corner_marks(remove_blanks(text.replace("\n", "")))
    text = remove_brackets(text.replace(".", "。").replace(" - ", "，"))
    return _TRAILING_COMMAS.sub("。", text)


def _pieces(text: str, script: UpstreamTextRules) -> Iterator[str]:
    """Up to and with each mark, a closing quote after it included; a mark after nothing is dropped."""
    marks = script.value
    if text and text[-1] not in marks:
        text += marks[0]
    start = 0
    for place, character in enumerate(text):
        if character not in marks or place < start:
            continue
        stop = place + 2 if text[place + 1 : place + 2] in _CLOSING_QUOTES else place + 1
        if place > start:
            yield text[start:stop]
        start = stop


def _length(text: str, tokenize: Tokenize, script: UpstreamTextRules) -> int:
    return len(text) if script is UpstreamTextRules.CHINESE else len(tokenize(text))
