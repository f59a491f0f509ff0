"""The sounds of names of one origin, from their letters, by a table.

A table is a TOML file beside this one:

    letters = "..."     letters with marks that the origin has
    tones = "..."       marks that are not heard in English, optional. A name with other marks is foreign
    names = "..."       common names without marks. They lend their origin to the name beside them
    cues = ["..."]      patterns of spelling that show the origin
    certain = "..."     a pattern that only this origin has, optional
    foreign = "..."     a pattern that no name of this origin has, optional
    syllable = "..."    a pattern of all syllables, optional: a name is then a row of them
    [said]              IPA of whole names, ahead of the rules
    [beside]            IPA of names that English says otherwise, for those beside a name of this origin
    [stress]
    syllable = -2       the stressed one, from the front, or if negative from the end
    last = "..."        a pattern of names stressed on the last one instead, optional
    marked = "..."      letters that are stressed wherever they are, optional
    [sounds]            patterns and their IPA, in order: the first that fits where the last one ended counts.
                        One whose IPA has a vowel is a syllable

Patterns are regular expressions, without groups that capture, for lower-case letters in NFC.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ..ascii_twins import without_marks

MAX_LETTERS: Final = 40  # of a name
_VOWEL: Final = re.compile("[aeiouyæœøɑɔəɛɜɪʊʌɚɝ]")
_CERTAIN: Final = 2  # a common name, or a spelling that no other origin has, counts as many cues


@dataclass(frozen=True)
class NameOrigin:
    """A language, or a way to spell it, whose names English speakers say much as it does.

    Args:
        name: of the origin.
        table: as read from its file.
    """

    name: str
    table: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "NameOrigin":
        """Read a table."""
        return cls(path.stem, tomllib.loads(path.read_text("utf-8")))

    @property
    def beside(self) -> dict[str, str]:
        """IPA of names that English says otherwise, by their ASCII letters."""
        beside: dict[str, str] = self.table.get("beside", {})
        return beside

    def cues(self, name: str) -> int:
        """Count what shows that a name in lower-case letters is of this origin."""
        found = sum(cue.search(name) is not None for cue in self._cues)
        certain = self._certain is not None and self._certain.search(name) is not None
        return found + _CERTAIN * (certain + (without_marks(name) in self._names))

    def ipa(self, name: str) -> str | None:
        """IPA of a name in lower-case letters; None if it cannot be one of this origin."""
        said = self._said.get(name) or self._said.get(without_marks(name))
        if said is not None:
            return said
        letters = self._own_letters(name)
        if letters is None or (self._foreign is not None and self._foreign.search(letters)):
            return None
        sounds = [sound for part in self._parts(letters) for sound in self._sounds(part)]
        syllables = [index for index, (_, ipa) in enumerate(sounds) if _VOWEL.search(ipa)]
        if not syllables:
            return None
        stressed = self._stressed(letters, [sounds[index][0] for index in syllables])
        marks = dict.fromkeys(syllables[1:-1], "") | ({syllables[0]: "ˌ"} if stressed >= 2 else {})
        marks[syllables[stressed]] = "ˈ"
        return "".join(_marked(marks.get(index), ipa) for index, (_, ipa) in enumerate(sounds))

    def _own_letters(self, name: str) -> str | None:
        """Leave out the tones; None if the origin lacks another mark."""
        letters = ""
        for sign in unicodedata.normalize("NFD", name):
            if unicodedata.category(sign) != "Mn":
                letters += sign
            elif letters and (marked := unicodedata.normalize("NFC", letters[-1] + sign)) in self._letters:
                letters = letters[:-1] + marked
            elif sign not in self.table.get("tones", ""):
                return None
        return letters

    def _parts(self, letters: str) -> list[str]:
        """The syllables, if the table has a pattern of them; none if the letters are no row of them."""
        if self._syllable is None:
            return [letters]
        parts = self._syllable.findall(letters)
        return parts if "".join(parts) == letters else []

    def _sounds(self, letters: str) -> Iterator[tuple[str, str]]:
        """Letters and the IPA that they have."""
        for found in self._patterns.finditer(letters):
            yield found.group(), self._ipa[found.lastindex - 1] if found.lastindex else ""

    def _stressed(self, name: str, syllables: list[str]) -> int:
        """The index of the stressed syllable, given the letters that each has its vowel of."""
        stress = self.table["stress"]
        marks = set(stress.get("marked", ""))
        marked = [index for index, letters in enumerate(syllables) if marks.intersection(letters)]
        if marked:
            return marked[-1]
        if "last" in stress and re.search(stress["last"], name):
            return len(syllables) - 1
        index = int(stress["syllable"])
        return max(index + len(syllables), 0) if index < 0 else min(index, len(syllables) - 1)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.table["names"].split())

    @cached_property
    def _said(self) -> dict[str, str]:
        return {**self.beside, **self.table.get("said", {})}

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(self.table["letters"])

    @cached_property
    def _cues(self) -> "tuple[re.Pattern[str], ...]":
        return tuple(map(re.compile, self.table["cues"]))

    @cached_property
    def _certain(self) -> "re.Pattern[str] | None":
        return self._pattern("certain")

    @cached_property
    def _foreign(self) -> "re.Pattern[str] | None":
        return self._pattern("foreign")

    @cached_property
    def _syllable(self) -> "re.Pattern[str] | None":
        return self._pattern("syllable")

    def _pattern(self, key: str) -> "re.Pattern[str] | None":
        return re.compile(self.table[key], re.VERBOSE) if key in self.table else None

    @cached_property
    def _ipa(self) -> tuple[str, ...]:
        return tuple(self.table["sounds"].values())

    @cached_property
    def _patterns(self) -> "re.Pattern[str]":
        """All patterns in order, a group each."""
        return re.compile("|".join(f"({pattern})" for pattern in self.table["sounds"]))


def _marked(stress: str | None, ipa: str) -> str:
    """IPA with its mark of stress. English says an unstressed "a" inside a name as in "sofa"."""
    return "ə" if stress == "" and ipa == "ɑ" else (stress or "") + ipa
