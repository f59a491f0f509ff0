"""Facts about scripts: spacing between words, speaking time of characters, likely language.

The language of a text is guessed from its characters where it is not given. How a language is read is not
known here.
Source: Unicode 15.1 blocks (Scripts.txt).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .kit.lazy_pattern import LazyPattern

HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
BOPOMOFO = "\u3105-\u312f"
HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"
# Thai, Lao, Tibetan, Burmese, Khmer: blanks between phrases only
_PHRASE_SPACED = "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u0f40-\u0fbc\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
NO_SPACE_SCRIPTS = f"{HAN}{KANA}{BOPOMOFO}"  # blanks beside these separate no words
LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u02af\u1e00-\u1eff"
GREEK = "\u0370-\u03ff\u1f00-\u1fff"
CYRILLIC = "\u0400-\u052f"
WIDE_MARKS = "。！？；：，、"

_IGNORES_SPACES = LazyPattern(f"[{NO_SPACE_SCRIPTS}{WIDE_MARKS}]")
_UNSPACED = LazyPattern(f"[{NO_SPACE_SCRIPTS}{_PHRASE_SPACED}]")
_SYLLABIC = LazyPattern(f"[{NO_SPACE_SCRIPTS}{_PHRASE_SPACED}{HANGUL}]")
_LANGUAGE_OF_SCRIPT = ((LazyPattern(f"[{KANA}]"), "ja"), (LazyPattern(f"[{HANGUL}]"), "ko"))
_HAN = LazyPattern(f"[{HAN}{BOPOMOFO}]")
_CYRILLIC = LazyPattern(f"[{CYRILLIC}]")
_LATIN = LazyPattern("[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
_LATIN_WORD = LazyPattern("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]{2,}")
_MIN_PHRASE_WORDS = 3  # Latin words that make a text one of a Latin-script language: "5 km" does not
_LETTERS_PER_SYLLABLE = 3  # letters that take about as long to say as one syllabic character
_WRITTEN_IN_HAN = frozenset({"zh", "ja", "ko"})
_LETTER = re.compile(r"[^\W\d_]")

# Speaking times at a brisk conversational pace.
_CHARACTER_SECONDS = (
    (LazyPattern(f"[{HAN}]"), 0.23),
    (LazyPattern(f"[{HANGUL}]"), 0.17),
    (LazyPattern(f"[{KANA}{BOPOMOFO}]"), 0.13),
)
_LETTER_SECONDS = 0.075
_PAUSE_SECONDS = 0.25  # at a punctuation mark


class PositionedWord(Protocol):
    """Spoken word with the range of the text that it stands for."""

    @property
    def text(self) -> str:
        """The word without punctuation."""

    @property
    def punctuation(self) -> str:
        """Punctuation after the word, or ""."""

    @property
    def start(self) -> int:
        """First character of the range."""

    @property
    def stop(self) -> int:
        """Character after the range."""

    @property
    def is_mark(self) -> bool:
        """Whether it is a mark of the model, which is not spoken as a word."""


@dataclass(frozen=True, slots=True)
class WrittenWord:
    """Word of the text. ``spoken_range``: indices of the spoken words that say it."""

    spoken_range: range
    start: int
    stop: int


class ReadableScripts:
    """The scripts that a voice can read, as members of a regular expression's character class."""

    def __init__(self, *scripts: str) -> None:
        self._unread_letter = LazyPattern(rf"(?![{''.join(scripts)}])[^\W\d_]")
        self._readable = LazyPattern(rf"\d|(?=[{''.join(scripts)}])[^\W_]")

    def count_unread(self, word: str) -> int:
        """Return the number of letters of other scripts in ``word``."""
        return 0 if word.isascii() else len(self._unread_letter.compiled.findall(word))

    def can_read(self, word: str) -> bool:
        """Whether ``word`` has a letter or a digit that the voice can read."""
        return word.isascii() or self._readable.compiled.search(word) is not None


ALL_SCRIPTS = ReadableScripts(r"\w")


def ignores_spaces(character: str) -> bool:
    """Whether blanks beside ``character`` separate no words: Han, kana and wide marks."""
    return not character.isascii() and bool(_IGNORES_SPACES.compiled.match(character))


def is_unspaced(character: str) -> bool:
    """Whether the script of ``character`` writes words without blanks between them."""
    return not character.isascii() and bool(_UNSPACED.compiled.match(character))


def nth_syllabic_position(text: str, nth: int) -> int | None:
    """Return the position of the ``nth`` character (from 1) that is said as a syllable or more, or None."""
    if text.isascii():
        return None
    for count, match in enumerate(_SYLLABIC.compiled.finditer(text), 1):
        if count == nth:
            return match.start()
    return None


def join_words(words: Sequence[PositionedWord]) -> str:
    """Join words as they are written: with blanks in spaced scripts, without beside Han and kana."""
    parts: list[str] = []
    for index, word in enumerate(words):
        if index and not _are_joined(words[index - 1], word):
            parts.append(" ")
        parts += (word.text, word.punctuation)
    return "".join(parts)


def group_written_words(words: Sequence[PositionedWord]) -> list[WrittenWord]:
    """Group spoken words by the written word that they say: "0417" is said in four words, "$5" in two.

    Two spoken words belong to one written word if their ranges touch; in scripts without blanks, if their
    ranges overlap. Marks belong to none and separate words.
    """
    found: list[WrittenWord] = []
    for position, word in enumerate(words):
        if word.is_mark:
            continue
        last = found[-1] if found and not words[position - 1].is_mark else None
        if last and (word.start < last.stop or _are_adjacent(words[position - 1], word)):
            found[-1] = replace(
                last,
                spoken_range=range(last.spoken_range.start, position + 1),
                stop=max(last.stop, word.stop),
            )
        else:
            found.append(WrittenWord(range(position, position + 1), word.start, word.stop))
    return found


def _are_adjacent(left: PositionedWord, right: PositionedWord) -> bool:
    spaced = not (is_unspaced(left.text[-1]) or is_unspaced(right.text[0]))
    return spaced and left.stop == right.start


def _are_joined(left: PositionedWord, right: PositionedWord) -> bool:
    """Whether no blank is written between two words."""
    last, first = (left.text + left.punctuation)[-1], right.text[0]
    if ignores_spaces(last) or ignores_spaces(first):
        return True
    if left.is_mark or right.is_mark:  # as written: <strong> touches the words that it encloses
        return right.start - left.stop <= len(left.punctuation)
    return left.stop == right.start and _is_syllabic(last) and _is_syllabic(first)


def _is_syllabic(character: str) -> bool:
    return not character.isascii() and bool(_SYLLABIC.compiled.match(character))


def estimate_seconds(words: Iterable[PositionedWord]) -> float:
    """Estimate the speaking time of ``words`` in seconds; at a usual pace the error is below a third."""
    return sum(
        (_mark_seconds(word.text) if word.is_mark else _word_seconds(word.text))
        + _PAUSE_SECONDS * bool(word.punctuation)
        for word in words
    )


def _mark_seconds(text: str) -> float:
    """Marks in brackets are sounds or phonemes; those in angle brackets say how the words sound."""
    return 0.0 if text.startswith("<") else _LETTER_SECONDS * (len(text) - 2)


def _word_seconds(text: str) -> float:
    if text.isascii():
        return _LETTER_SECONDS * (len(text) + 1)
    counts = [(len(script.compiled.findall(text)), each) for script, each in _CHARACTER_SECONDS]
    others = len(text) - sum(count for count, _ in counts)
    return sum(count * each for count, each in counts) + _LETTER_SECONDS * others


def full_stop_after(word: PositionedWord) -> str:
    """Return the mark that ends a sentence after ``word``, in the width of its script."""
    return "。" if ignores_spaces(word.text[-1]) else "."


def detect_language(text: str, *, voice_language: str, before: str, latin_language: str) -> str:
    """Return the language code of a clause, guessed from its scripts; "" for a script of no known language.

    ``voice_language``: decides Han text between Chinese and Japanese. ``before``: language of the clause
    before, which a clause without letters shares. ``latin_language``: language of Latin text; it takes a
    phrase of Latin words, so "5 km" in a Chinese text is Chinese.
    """
    if text.isascii():
        return latin_language if _has_phrase(text) else before or latin_language
    letters, syllabic = len(_LATIN.compiled.findall(text)), len(_SYLLABIC.compiled.findall(text))
    others = len(_LETTER.findall(text)) - syllabic - letters
    if not letters + syllabic + others:
        return before
    if syllabic and (voice_language in _WRITTEN_IN_HAN or _LETTERS_PER_SYLLABLE * syllabic >= letters):
        return _syllabic_language(text, (voice_language, before))
    if letters >= others:
        return latin_language if _has_phrase(text) else before or latin_language
    return "ru" if _CYRILLIC.compiled.search(text) else ""


def _has_phrase(text: str) -> bool:
    return len(_LATIN_WORD.compiled.findall(text)) >= _MIN_PHRASE_WORDS


def _syllabic_language(text: str, likely: tuple[str, ...]) -> str:
    for script, language in _LANGUAGE_OF_SCRIPT:
        if script.compiled.search(text):
            return language
    if not _HAN.compiled.search(text):
        return ""
    return next((language for language in likely if language in _WRITTEN_IN_HAN), "zh")
