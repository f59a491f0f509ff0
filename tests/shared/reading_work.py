"""Texts that take long to read, and the work of reading one, which is the same on every machine."""

from collections.abc import Callable
from typing import Final

from shared.counted_work import counted_calls
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.normalizer import TextNormalizer
from vivavoce.tts_engine.reading.unicode_scripts import ALL_SCRIPTS
from vivavoce.tts_engine.segmenter import Segmenter

LANGUAGES: Final = ("en", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")
ORDINARY: Final = (
    "It was a bright cold day in April, and the clocks were striking thirteen. You owe us $127.50 by 3 p.m. "
    "on Monday, 24 March 2025, please; Dr. Smith will call you back. "
)
# Each is repeated. Of thousands of random ones, those of which a character took the longest, and one of each
# kind of text that rules look ahead or behind in.
UNITS: Final = (
    *("½", "1½", "1e", "a1b2", "1-", "3x", "1/", "²", "20%", "1:", "12,", "1.", "7", "$1 ", "+1 ", "5km "),
    *('"', "(", "[", "<b>", "&amp;", "**a", "_a", "#a", "`", "{", "a'", "...", "— ", "a\n", " ", "a@b."),
    *(
        "http://a.b/c?d=e&",
        "abcdefghij",
        "AB ",
        "IV ",
        "e\u0301",
        "👩\u200d👩",
        "\u200b",
        "汉字",
        "かな",
        "مرحبا ",
    ),
    *(
        "<speak>",
        "p.m. ",
        "1/2/2024 ",
        "3:45pm ",
        "1.2.3.4 ",
        "0x1F ",
        "v1.2",
        "555-1234 ",
        "5'6\"",
        "–Mr. ½º}",
        "3x - 2",
        "* * ",
        "/v1/2",
        "0#1*",
        "5 / 6 ",
        "~1 -> ",
        "2 mi. NO ",
        "kill -9 1",
    ),
)


def segmenter_maker(language: str) -> Callable[[], Segmenter]:
    """What makes the segmenters of a voice of a language; the grammars are loaded once."""
    if language == "en":
        return Segmenter
    grammars = LanguageGrammars.load([language])
    return lambda: Segmenter(reader=TextNormalizer(grammars.clause_normalizer(language)), scripts=ALL_SCRIPTS)


def repeated(unit: str, characters: int) -> str:
    """A text of a length that repeats a unit."""
    return (unit * (characters // len(unit) + 1))[:characters]


def read(segmenter: Segmenter, text: str) -> None:
    """Read a whole text."""
    segmenter.push(text)
    segmenter.flush()


def calls_of_reading(segmenter: Segmenter, text: str) -> int:
    """The number of functions that are called while a text is read, built-in ones too."""
    with counted_calls() as calls:
        read(segmenter, text)
    return calls[0]
