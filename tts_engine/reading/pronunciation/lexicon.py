"""Words and phrases with the way they are said, found while a text is tokenized.

An entry matches whole words. One in lower case matches any case ("nginx", "Nginx"); one with a capital
matches as written, so that "Polish" and "polish" can be two. The longest entry wins. A possessive "'s" is
said after the entry. In Chinese and Japanese, which write no blanks, an entry matches anywhere. The cost of
a word does not depend on the number of entries.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ..folding import fold
from ..unicode_scripts import NO_SPACE_SCRIPTS, ignores_spaces
from .ipa import BadIpa, read_ipa

MAX_PHRASE_CHARACTERS: Final = 64  # readings of an unfinished clause look 100 characters ahead
MAX_RESPELLING_CHARACTERS: Final = 200
_FIRST_PART: Final = re.compile(rf"[{NO_SPACE_SCRIPTS}]|[^\W_{NO_SPACE_SCRIPTS}]+|[^\w\s]")
_POSSESSIVE: Final = re.compile(r"'s(?![^\W_])", re.IGNORECASE)
_SIBILANTS: Final = "szʃʒʧʤ"
_VOICELESS: Final = "ptkfθ"
# "[Siobhan](/ʃɪˈvɔːn/)". A sign outside ASCII, or a stop at its start, tells phonemes from a link's path.
_INLINE: Final = re.compile(
    r"\[([^\[\]\n]{1,64})\]\(/(\.[^()/\n]{1,160}|(?=[!-~]*[^\x00-\x7f])[^()/\n]{1,160})/\)"
)


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """How a text is said. Voices that take neither phonemes nor pinyin read the respelling, if any."""

    respelling: str = ""  # a text that is read instead
    phonemes: str = ""  # IPA as ``read_ipa`` returns it
    pinyin: str = ""  # Mandarin syllables as ``read_pinyin`` returns them


@dataclass(frozen=True, slots=True)
class PronouncedRange:
    """A part of a text with its pronunciation. Positions are characters of the text."""

    text: str  # as written
    start: int  # of the characters that the words stand for
    stop: int
    end: int  # where reading goes on
    pronunciation: Pronunciation


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Entries by word or phrase. Immutable; raises ValueError for a phrase that can never match."""

    entries: Mapping[str, Pronunciation]
    _as_written: dict[str, Pronunciation] = field(default_factory=dict, repr=False, compare=False)
    _any_case: dict[str, Pronunciation] = field(default_factory=dict, repr=False, compare=False)
    # Lengths of the phrases that begin with a word, in lower case; the longest first.
    _lengths: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths: dict[str, set[int]] = {}
        for written, pronunciation in self.entries.items():
            phrase = fold_phrase(written)
            first = _FIRST_PART.match(phrase)
            assert first is not None  # ``fold_phrase`` checks it
            self._as_written[phrase] = pronunciation
            if phrase == phrase.lower():
                self._any_case[phrase] = pronunciation
            lengths.setdefault(first.group().lower(), set()).add(len(phrase))
        self._lengths.update({first: tuple(sorted(each, reverse=True)) for first, each in lengths.items()})

    def find(self, view: str, at: int) -> PronouncedRange | None:
        """Return the longest entry at a position of folded text."""
        first = _FIRST_PART.match(view, at)
        lengths = self._lengths.get(first.group().lower()) if first else None
        if not lengths or _is_inside_word(view, at):
            return None
        for length in lengths:
            phrase = view[at : at + length]
            found = self._as_written.get(phrase) or self._any_case.get(phrase.lower())
            stop = at + len(phrase)  # shorter than ``length`` at the end of the view
            if found is not None and (stop == len(view) or _ends_word(view, stop)):
                return with_possessive(view, PronouncedRange(phrase, at, stop, stop, found))
        return None


def fold_phrase(written: str) -> str:
    """Return an entry's word or phrase as it is looked up; raises ValueError if it can never match."""
    phrase = " ".join(fold(written)[0].split())
    if not phrase or len(phrase) > MAX_PHRASE_CHARACTERS:
        raise ValueError(f"{written[:80]!r}: allowed are 1 to {MAX_PHRASE_CHARACTERS} characters")
    if _FIRST_PART.match(phrase) is None:
        raise ValueError(f"{written[:80]!r} begins with {phrase[0]!r}; no word does")
    return phrase


def find_inline(view: str, at: int) -> PronouncedRange | None:
    """Return a word with phonemes in the text itself: "[Siobhan](/ʃɪˈvɔːn/)".

    The notation is that of misaki, which Kokoro's users know.
    """
    match = _INLINE.match(view, at)
    if match is None:
        return None
    try:
        phonemes = read_ipa(match[2])
    except BadIpa:
        return None
    found = PronouncedRange(match[1], *match.span(1), match.end(), Pronunciation(phonemes=phonemes))
    return with_possessive(view, found)


def inline_pronunciation(word: str, ipa: str) -> str | None:
    """Return a word as ``find_inline`` reads it; None if that cannot be, as for text that is no IPA."""
    try:
        phonemes = read_ipa(ipa)
    except BadIpa:
        return None
    written = f"[{word}](/{'.' if phonemes.isascii() else ''}{phonemes}/)"
    return written if find_inline(written, 0) else None


def with_possessive(view: str, found: PronouncedRange) -> PronouncedRange:
    """Return the range with the "'s" that follows it, if one does."""
    suffix = _POSSESSIVE.match(view, found.end)
    if suffix is None:
        return found
    said = found.pronunciation
    sound = "ɪz" if said.phonemes[-1:] in _SIBILANTS else "s" if said.phonemes[-1:] in _VOICELESS else "z"
    longer = replace(
        said,
        respelling=said.respelling and said.respelling + "'s",
        phonemes=said.phonemes and said.phonemes + sound,
    )
    stop = suffix.end() if found.stop == found.end else found.stop
    return PronouncedRange(f"{found.text}'s", found.start, stop, suffix.end(), longer)


def _is_inside_word(view: str, at: int) -> bool:
    if not at or not view[at].isalnum() or ignores_spaces(view[at]):
        return False
    before = view[at - 1]
    if ignores_spaces(before):
        return False
    return before.isalnum() or before == "_" or (before == "'" and at > 1 and view[at - 2].isalnum())


def _ends_word(view: str, stop: int) -> bool:
    """Whether a word ends at ``stop``: not in "nginx.org", "nginx_conf" and "nginx'd"."""
    following, after = view[stop], view[stop + 1 : stop + 2]
    if ignores_spaces(following) or ignores_spaces(view[stop - 1]):
        return True
    if following.isalnum() or following == "_":
        return False
    return bool(_POSSESSIVE.match(view, stop)) or following not in "'.@" or not after.isalnum()


@dataclass(slots=True)
class PronunciationFinder:
    """Pronunciations of one stream."""

    lexicons: Sequence[Lexicon] = ()  # the first that has a word decides
    # Ranges that the caller pronounced, by where they begin in the clause that is read next.
    ranges: Mapping[int, PronouncedRange] = field(default_factory=dict)

    def find(self, view: str, at: int) -> PronouncedRange | None:
        """Return the pronounced range at a position of a clause, if there is one."""
        if at in self.ranges:
            return with_possessive(view, self.ranges[at])
        if view[at] == "[":
            return find_inline(view, at)
        for lexicon in self.lexicons:
            found = lexicon.find(view, at)
            if found is not None:
                return found
        return None
