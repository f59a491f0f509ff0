"""The origin of a name that no lexicon has, and its sounds in English.

Its spelling shows the origin ("Wiśniewski", "Caoimhe"), or a name beside it does ("Juan Ibarrola"). A name
without either is left to whoever reads unknown words.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .name_origin import MAX_LETTERS, NameOrigin

# A name that fits several equally is of the first one.
_ORIGINS: Final = (
    *("spanish", "french", "german", "portuguese", "polish"),
    *("irish", "pinyin", "vietnamese", "yoruba", "igbo"),
)


@dataclass(frozen=True, slots=True)
class ForeignNames:
    """Reads names by their origin.

    Args:
        origins: what it knows; where several fit equally, the first one.
    """

    origins: tuple[NameOrigin, ...]

    @classmethod
    def load(cls) -> "ForeignNames":
        """Read the tables of this package."""
        folder = Path(__file__).parent
        return cls(tuple(NameOrigin.read(folder / f"{name}.toml") for name in _ORIGINS))

    def ipa(self, name: str, neighbours: Sequence[str] = (), min_cues: int = 1) -> str | None:
        """IPA of a name, or None if fewer cues show an origin.

        neighbours: the names before and after it.
        """
        letters = _letters(name)
        lent = self._origins_of(neighbours)
        ranked = [(origin.cues(letters) + lent.count(origin.name), origin) for origin in self.origins]
        ranked.sort(key=lambda rank: -rank[0])  # stable
        return next(
            (ipa for cues, origin in ranked if cues >= min_cues and (ipa := origin.ipa(letters)) is not None),
            None,
        )

    def ipa_beside(self, name: str, neighbours: Sequence[str]) -> str | None:
        """IPA of a name that English says otherwise, if a name beside it is of the origin that has it too."""
        letters = name.lower()
        having = [origin for origin in self.origins if letters in origin.beside]
        lent = self._origins_of(neighbours) if having else []
        return next((origin.beside[letters] for origin in having if origin.name in lent), None)

    def _origins_of(self, names: Iterable[str]) -> list[str]:
        """The origins that names have the most cues for."""
        found = []
        for name in map(_letters, names):
            cues = {origin.name: origin.cues(name) for origin in self.origins}
            most = max(cues.values(), default=0)
            found += [origin for origin, count in cues.items() if count == most > 0]
        return found


def _letters(name: str) -> str:
    return unicodedata.normalize("NFC", name).lower()[:MAX_LETTERS]
