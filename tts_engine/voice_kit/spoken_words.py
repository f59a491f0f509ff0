"""The written word that each spoken word says, and how long words usually take."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..reading.lazy_pattern import LazyPattern
from ..reading.unicode_scripts import BOPOMOFO, HAN, HANGUL, KANA, is_unspaced
from ..segmenter import SpokenWord

# Speaking times at a brisk conversational pace.
_CHARACTER_SECONDS = (
    (LazyPattern(f"[{HAN}]"), 0.23),
    (LazyPattern(f"[{HANGUL}]"), 0.17),
    (LazyPattern(f"[{KANA}{BOPOMOFO}]"), 0.13),
)
_LETTER_SECONDS = 0.075
_PAUSE_SECONDS = 0.25  # at a punctuation mark


@dataclass(frozen=True, slots=True)
class WrittenWord:
    """Word of the text. ``spoken_range``: indices of the spoken words that say it."""

    spoken_range: range
    start: int
    stop: int


def group_written_words(words: Sequence[SpokenWord]) -> list[WrittenWord]:
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


def _are_adjacent(left: SpokenWord, right: SpokenWord) -> bool:
    spaced = not (is_unspaced(left.text[-1]) or is_unspaced(right.text[0]))
    return spaced and left.stop == right.start


def estimate_seconds(words: Iterable[SpokenWord]) -> float:
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
