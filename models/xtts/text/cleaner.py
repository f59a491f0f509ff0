"""Cleans text for XTTS: lower case, numbers, abbreviations and symbols in words, one space between words.

The steps and their order are upstream's, because the networks were trained on its results. Number words come
from a ``NumberWords`` of the caller; with num2words the results are upstream's own. Chinese, Japanese and
Korean are romanized; text that is romanized already stays as it is. Digits of Japanese are left, as upstream
leaves them.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/tokenizer.py (multilingual_cleaners,
VoiceBpeTokenizer.preprocess_text).
"""

import re
from functools import lru_cache
from typing import Protocol

from .language_tables import (
    ABBREVIATIONS,
    COMMA_THOUSANDS,
    CURRENCIES,
    DEFAULT_MONEY_JOINT,
    EASTERN,
    MONEY_JOINTS,
    ORDINAL_ENDINGS,
    SYMBOL_WORDS,
    SYMBOLS,
)
from .romanizer import romanize

_SPACES = re.compile(r"\s+")
_DIGITS = re.compile("[0-9]+")
_DECIMAL = re.compile("([0-9]+[.,][0-9]+)")
_COMMA_THOUSANDS = re.compile(r"\b\d{1,3}(,\d{3})*(\.\d+)?\b")
_STOP_THOUSANDS = re.compile(r"\b\d{1,3}(\.\d{3})*(,\d+)?\b")
_YEAR_OR_LONG = re.compile("[0-9]{4}(?=年)|[0-9]{7,}")
_FRACTION = re.compile(r"(?<![0-9/])([0-9]+)/([0-9]+)(?![0-9/])")  # not a date, 2024/5/6
_TIME_COLON = re.compile("(?<=[0-9]):(?=[0-9])")
_CHINESE_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_FOREIGN_LETTER = re.compile("[^\\W\\d_a-zA-Z\u00aa-\u02af\u1e00-\u1eff]")  # none of the Latin script
_TURKISH_LETTERS = str.maketrans("İÖÜ", "iöü")
_MAX_DIGITS = 30  # longer runs of digits are left as they are: no speech, but a lot of words


class NumberWords(Protocol):
    """Numbers in words. Each method returns None for a number or a language that it does not know."""

    def cardinal(self, number: int, language: str) -> str | None:
        """A whole number."""

    def decimal(self, number: float, language: str) -> str | None:
        """A number with decimals."""

    def ordinal(self, number: int, language: str) -> str | None:
        """A place in an order."""

    def money(self, amount: float, currency: str, language: str) -> str | None:
        """An amount in GBP, USD or EUR, with its decimals: "five euro, twenty cents"."""


def clean_text(text: str, language: str, numbers: NumberWords) -> str:
    """The text as XTTS was trained to read it. language: a code such as "en" or "pt-br".

    Chinese and Japanese script need a library. Raises ModuleNotFoundError without it.
    """
    code = base_language(language)
    if code in EASTERN:
        return _romanized(text, code, numbers)
    text = text.replace('"', "")
    if code == "tr":
        text = text.translate(_TURKISH_LETTERS)
    text = _expand_numbers(text.lower(), code, numbers)
    for pattern, words in _abbreviations(code):
        text = pattern.sub(words, text)
    return _SPACES.sub(" ", _expand_symbols(text, code))


def base_language(language: str) -> str:
    """The part of a language's code before the region: "zh" of "zh-cn"."""
    return language.lower().partition("-")[0]


def _romanized(text: str, language: str, numbers: NumberWords) -> str:
    text = text.replace('"', "").lower()
    if not text.isascii():
        if language == "zh":
            text = _expand_chinese_numbers(text, numbers)
        elif language == "ko":
            text = _expand_symbols(_expand_numbers(text, language, numbers), language)
        # Letters of another script would be unknown ids.
        text = _FOREIGN_LETTER.sub("", romanize(text, language))
    return _SPACES.sub(" ", text).strip()


def _expand_chinese_numbers(text: str, numbers: NumberWords) -> str:
    """Years and telephone numbers digit by digit; other numbers as quantities, a half as 二分之一.

    The colon of a time becomes a comma, as upstream writes punctuation.
    """
    text = _FRACTION.sub(r"\2分之\1", text)
    text = _TIME_COLON.sub(",", text)
    text = _YEAR_OR_LONG.sub(lambda found: found[0].translate(_CHINESE_DIGITS), text)
    text = re.sub(r"([0-9]+(?:\.[0-9]+)?)%", r"百分之\1", text)
    text = re.sub(r"(?<=[0-9])\.([0-9]+)", lambda found: "点" + found[1].translate(_CHINESE_DIGITS), text)
    return _DIGITS.sub(lambda found: _cardinal_words(found[0], "zh", numbers), text)


def _expand_numbers(text: str, language: str, numbers: NumberWords) -> str:
    if language in COMMA_THOUSANDS:
        text = _COMMA_THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    else:
        text = _STOP_THOUSANDS.sub(lambda found: found[0].replace(".", ""), text)
    for sign, currency in CURRENCIES.items():
        text = _money(sign).sub(lambda found: _money_words(found, currency, language, numbers), text)  # noqa: B023 - used at once
    if language != "tr":
        text = _DECIMAL.sub(
            lambda found: numbers.decimal(float(found[0].replace(",", ".")), language) or found[0], text
        )
    if language in ORDINAL_ENDINGS:
        text = _ordinal(language).sub(
            lambda found: numbers.ordinal(int(found[1]), language) or found[0], text
        )
    return _DIGITS.sub(lambda found: _cardinal_words(found[0], language, numbers), text)


def _cardinal_words(digits: str, language: str, numbers: NumberWords) -> str:
    if len(digits) > _MAX_DIGITS:
        return digits
    return numbers.cardinal(int(digits), language) or digits


def _money_words(found: re.Match[str], currency: str, language: str, numbers: NumberWords) -> str:
    digits = re.sub(r"[^\d.]", "", found[0].replace(",", "."))
    if digits.count(".") > 1 or len(digits) > _MAX_DIGITS:
        return found[0]
    amount = float(digits)
    words = numbers.money(amount, currency, language)
    if words is None:
        return found[0]
    if amount.is_integer():
        # Without the words of zero cents.
        words = words.rpartition(MONEY_JOINTS.get(language, DEFAULT_MONEY_JOINT))[0] or words
    return words


def _expand_symbols(text: str, language: str) -> str:
    for symbol, word in zip(SYMBOLS, SYMBOL_WORDS.get(language, ()), strict=False):
        text = text.replace(symbol, f" {word} ").replace("  ", " ")
    return text.strip()


@lru_cache(maxsize=8)
def _money(sign: str) -> re.Pattern[str]:
    sign = re.escape(sign)
    return re.compile(rf"({sign}[0-9.,]*[0-9]+)|([0-9.,]*[0-9]+{sign})")


@lru_cache(maxsize=32)
def _ordinal(language: str) -> re.Pattern[str]:
    return re.compile(rf"([0-9]+)({ORDINAL_ENDINGS[language]})")


@lru_cache(maxsize=32)
def _abbreviations(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    end = r"\b" if language == "ru" else r"\."
    found = ABBREVIATIONS.get(language, {})
    return tuple((re.compile(rf"\b{short}{end}", re.IGNORECASE), words) for short, words in found.items())
