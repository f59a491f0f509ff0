"""Count of wrong words in a transcript, independent of how numbers are written.

A speech recogniser writes "$1,234.50" for "one thousand two hundred thirty four dollars and fifty cents". The
reference and the transcript are brought to one canonical form, with numbers digit by digit, and aligned. The
reference is the words to be heard, not the text that was synthesised, so that mistakes of the engine's text
normaliser count as well.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, 2)
}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_ORDINALS = {
    "first": "one",
    "second": "two",
    "third": "three",
    "fifth": "five",
    "eighth": "eight",
    "ninth": "nine",
    "twelfth": "twelve",
} | {word + "th": word for word in _UNITS[4:] if word not in ("five", "eight", "nine", "twelve")}
_ORDINALS |= {word[:-1] + "ieth": word for word in _TENS}
_DECADES = {word[:-1] + "ies": word for word in _TENS}
_MONTHS = "january february march april may june july august september october november december".split()
_SHORT_MONTHS = {name[:3]: name for name in _MONTHS} | {"sept": "september"}
_EXPANSIONS = {
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "dr": "doctor",
    "saint": "st",
    "street": "st",
    "ave": "avenue",
    "dept": "department",
    "ext": "extension",
    "approx": "approximately",
    "vs": "versus",
    "ok": "okay",
    "gb": "gigabytes",
    "mb": "megabytes",
    "mbps": "megabits per second",
    "kwh": "kilowatt hours",
    "km": "kilometers",
    "lbs": "pounds",
    "mph": "miles per hour",
    "°f": "degrees fahrenheit",
    "°c": "degrees celsius",
    "°": "degrees",
    "%": "percent",
    "&": "and",
    "+": "plus",
    "#": "number",
    "mon": "monday",
    "tue": "tuesday",
    "tues": "tuesday",
    "wed": "wednesday",
    "thu": "thursday",
    "thurs": "thursday",
    "fri": "friday",
}
_SINGULAR = {"dollars": "dollar", "cents": "cent", "euros": "euro", "pence": "penny"}
_CONTRACTIONS = (
    (r"\b(can)'t\b", r"\1 not"),
    (r"\bcannot\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"\b(i)'m\b", r"\1 am"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"'re\b", " are"),
    (r"\b(it|that|what|there|here|he|she)'s\b", r"\1 is"),
)
_CURRENCIES = {"$": ("dollars", "cents"), "£": ("pounds", "pence"), "€": ("euros", "cents")}
_MONEY = re.compile(r"([$£€])\s?(\d[\d,]*)(?:\.(\d\d))?(?!\d)((?:\.\d+)?\s(?:million|billion|thousand))?")
# A substitution costs a little more than an insertion or deletion: of the alignments with the fewest edits,
# the one with the most words in common is the cheapest.
_SUBSTITUTION_COST = 1025
_INSERTION_COST = 1024
_TOKEN = re.compile(r"\d+|[^\W\d_]+(?:'[^\W\d_]+)*|°[fc]?|[%&+#]")


def canonical_words(text: str) -> list[str]:
    """Return the words of ``text`` in lower case, with every number as its digits one by one.

    "$127.50", "3:05 p.m." and "0417" become the same words as their spoken forms.
    """
    lower = _replace_written_forms(text.lower().replace("’", "'"))
    for pattern, full in _CONTRACTIONS:
        lower = re.sub(pattern, full, lower)
    words = [word for token in _TOKEN.findall(lower) for word in _EXPANSIONS.get(token, token).split()]
    return list(_drop_optional_words(list(_digits_of(words))))


def _replace_written_forms(text: str) -> str:
    """Replace what occurs in writing only: signs, separators and symbols that join numbers."""
    text = _MONEY.sub(_money, text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _slash_date, text)
    text = re.sub(r"\b(\d{1,2}):00\b", r"\1 o'clock", text)
    text = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1 th", text)
    text = re.sub(r"\b([ap])\.?\s?m\b\.?", r"\1 m", text)
    text = re.sub(r"(?<=\d)([ap])m\b", r" \1 m", text)
    text = re.sub(rf"\b({'|'.join(_SHORT_MONTHS)})\.? (?=\d)", _full_month, text)
    text = re.sub(r"\bi\.e\.", "that is", text)
    text = re.sub(r"\be\.g\.", "for example", text)
    text = re.sub(r"\bno\. (?=\d)", "number ", text)
    text = re.sub(r"\be-mail", "email", text)
    text = text.replace("½", " one half ").replace("1/2", " one half ").replace("o'clock", " ")
    text = re.sub(r"(\d{3})\.(\d{3})\.(\d{4})", r"\1 \2 \3", text)
    text = re.sub(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", lambda match: match.group().replace(".", " dot "), text)
    text = re.sub(r"(?<=\d)\.(?=\d)", " point ", text)
    text = re.sub(r"(?<=[a-z])-(?=[a-z]+\.(?:com|org|net|io)\b)", " dash ", text)
    text = re.sub(r"(?<=[a-z0-9])@(?=[a-z0-9])", " at ", text)
    text = re.sub(r"(?<=[a-z]{2})\.(?=[a-z]{2})", " dot ", text)
    text = re.sub(r"(?<=[a-z])/(?=[a-z])", " slash ", text)
    return re.sub(r"(?<!\S)-(?=\d)", "minus ", text)


def _money(match: re.Match[str]) -> str:
    units, cents = _CURRENCIES[match.group(1)]
    whole, fraction, scale = match.group(2).replace(",", ""), match.group(3), match.group(4)
    if scale:
        return f" {whole}{'.' + fraction if fraction else ''}{scale} {units} "
    if fraction in (None, "00"):
        return f" {whole} {units} "
    small = f"{int(fraction)} {cents}"
    return f" {small} " if int(whole) == 0 else f" {whole} {units} and {small} "


def _full_month(match: re.Match[str]) -> str:
    return f"{_SHORT_MONTHS[match.group(1)]} "


def _slash_date(match: re.Match[str]) -> str:
    month, day, year = match.groups()
    return f"{_MONTHS[int(month) - 1]} {day} {year}" if 1 <= int(month) <= 12 else match.group()


def _digits_of(words: Sequence[str]) -> Iterator[str]:
    """Yield the words with every number, in words or figures, as single digits."""
    at = 0
    while at < len(words):
        if words[at] in ("o", "oh") and _is_number(words, at - 1) and _is_number(words, at + 1):
            yield "0"
            at += 1
        elif _is_number(words, at):
            text, suffix, at = _number(words, at)
            yield from text
            yield from suffix
        elif words[at] == "point" and _is_number(words, at + 1):
            fraction, at = _fraction(words, at + 1)
            yield from ("point", *fraction)
        else:
            yield _SINGULAR.get(words[at], words[at])
            at += 1


def _fraction(words: Sequence[str], at: int) -> tuple[str, int]:
    """Return the digits after a decimal point and where they end; they have no tens and scales."""
    text = ""
    while at < len(words) and _is_number(words, at):
        text += words[at] if words[at].isdigit() else str(_value(words[at]))
        at += 1
    return text, at


def _is_number(words: Sequence[str], at: int) -> bool:
    if not 0 <= at < len(words):
        return False
    word = words[at]
    return word.isdigit() or word in _VALUES or word in _ORDINALS or word in _DECADES


def _number(words: Sequence[str], at: int) -> tuple[str, list[str], int]:
    """Return the digits of the number at ``at``, its suffix "th" or "s" if any, and where it ends."""
    if words[at].isdigit() and words[at].startswith("0"):
        return words[at], [], at + 1
    total = group = 0
    last = 0  # decimal place of the last word: 1, 10, 100; no word of a higher place may follow
    begun = False
    while at < len(words):
        word = words[at]
        value = _value(word)
        if value is not None and (not begun or _continues_number(value, last)):
            group += value
            last, begun = (10 if word in _TENS else 1), True
            if value == 0:
                return "0", [], at + 1
        elif word in _SCALES and begun:
            scale = _SCALES[word]
            if scale == 100:
                group *= 100
                last = 100
            else:
                total, group, last = total + group * scale, 0, 1000
        else:
            break
        at += 1
        if word in _ORDINALS or word in _DECADES:
            return str(total + group), ["th" if word in _ORDINALS else "s"], at
    return str(total + group), [], at


def _value(word: str) -> int | None:
    if word.isdigit():
        return int(word) if len(word) < 16 else None
    plain = _ORDINALS.get(word) or _DECADES.get(word) or word
    return _VALUES.get(plain)


def _continues_number(value: int, last: int) -> bool:
    """Whether ``value`` continues a number: in "twenty six" and "hundred twelve", not in "six twenty"."""
    if last == 1000:
        return True
    return 0 < value < 100 if last == 100 else last == 10 and 0 < value < 10


def _drop_optional_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without optional ones: "and" before cents, the "th" of a date."""
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        after = words[at + 1] if at + 1 < len(words) else ""
        if word == "and" and before in ("dollar", "pounds", "euro", "hundred") and after.isdigit():
            continue
        if word == "th" and _follows_month(words, at):
            continue
        yield word


def _follows_month(words: Sequence[str], at: int) -> bool:
    """Whether the digits before ``at`` follow the name of a month."""
    at -= 1
    while at >= 0 and words[at].isdigit():
        at -= 1
    return at >= 0 and words[at] in _MONTHS


class MistakeKind(Enum):
    """Kind of the word that is wrong."""

    WORD = "word"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class TranscriptMistake:
    """Run of words that was recognised differently. ``words``: number of wrong words in it."""

    expected: str
    heard: str
    words: int
    kind: MistakeKind


@dataclass(frozen=True, slots=True)
class TranscriptScore:
    """Result of comparing a transcript with its reference."""

    words: int  # in the reference, without names
    names: int  # in the reference
    mistakes: tuple[TranscriptMistake, ...]

    def count_wrong(self, kind: MistakeKind) -> int:
        """Return the number of wrong words of ``kind``."""
        return sum(mistake.words for mistake in self.mistakes if mistake.kind is kind)


def score(reference: str, heard: str, names: Sequence[str] = ()) -> TranscriptScore:
    """Compare a transcript with its reference.

    Runs that differ only in where words are divided ("e mail", "email") are right. A run that contains one of
    ``names`` counts as a mistake in names, not in words.
    """
    expected = canonical_words(reference)
    marked = {word for name in names for word in canonical_words(name)}
    scores = [_score(expected, canonical_words(reading), marked) for reading in _possible_transcripts(heard)]
    return min(
        scores, key=lambda each: each.count_wrong(MistakeKind.WORD) + each.count_wrong(MistakeKind.NAME)
    )


def _possible_transcripts(heard: str) -> tuple[str, str]:
    """Return ``heard`` and a variant with "7.15" as a time: Whisper writes 7:15 and 7.15 the same way."""
    return heard, re.sub(r"(?<![\d.$£€])([01]?\d|2[0-4])\.([0-5]\d)(?![\d%]|\.\d)", r"\1 \2", heard)


def _score(expected: Sequence[str], got: Sequence[str], marked: set[str]) -> TranscriptScore:
    mistakes = tuple(
        _mistake(expected[a:b], got[c:d], marked)
        for a, b, c, d in differences(expected, got)
        if "".join(expected[a:b]) != "".join(got[c:d])
    )
    named = sum(word in marked for word in expected)
    return TranscriptScore(len(expected) - named, named, mistakes)


def _mistake(expected: Sequence[str], heard: Sequence[str], marked: set[str]) -> TranscriptMistake:
    kind = MistakeKind.NAME if marked.intersection(expected) else MistakeKind.WORD
    return TranscriptMistake(" ".join(expected), " ".join(heard), max(len(expected), len(heard)), kind)


def differences(expected: Sequence[str], heard: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the runs (start, stop, start, stop) in which two word sequences differ, by fewest edits."""
    runs: list[tuple[int, int, int, int]] = []
    for a, b, c, d in _edits(expected, heard):
        if runs and runs[-1][1] == a and runs[-1][3] == c:
            a, c = runs.pop()[::2]
        runs.append((a, b, c, d))
    return runs


def _edits(expected: Sequence[str], heard: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the single edits of a cheapest alignment, in order."""
    cost = _costs(expected, heard)
    edits = []
    row, column = len(expected), len(heard)
    while row or column:
        here = cost[row][column]
        if row and column:
            change = _SUBSTITUTION_COST if expected[row - 1] != heard[column - 1] else 0
            if here == cost[row - 1][column - 1] + change:
                row, column = row - 1, column - 1
                if change:
                    edits.append((row, row + 1, column, column + 1))
                continue
        if row and here == cost[row - 1][column] + _INSERTION_COST:
            row -= 1
            edits.append((row, row + 1, column, column))
        else:
            column -= 1
            edits.append((row, row, column, column + 1))
    return edits[::-1]


def _costs(expected: Sequence[str], heard: Sequence[str]) -> list[list[int]]:
    """Return the cost of the cheapest alignment of the first ``row`` with the first ``column`` words."""
    cost = [[_INSERTION_COST * column for column in range(len(heard) + 1)]]
    for row, word in enumerate(expected, 1):
        above = cost[-1]
        current = [_INSERTION_COST * row]
        for column, other in enumerate(heard, 1):
            change = 0 if word == other else _SUBSTITUTION_COST
            current.append(
                min(
                    above[column - 1] + change, above[column] + _INSERTION_COST, current[-1] + _INSERTION_COST
                )
            )
        cost.append(current)
    return cost
