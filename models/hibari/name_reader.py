"""Names that the voice's lexicons lack, before its network guesses them.

A word with accents takes the sounds of its ASCII spelling, if a lexicon has that: "Zoë", "jalapeño". Other
names, and those whose accents show the origin plainly, are read by the letters of their origin. Ordinary
words pass by: they are in lower-case ASCII letters, or a lexicon has them.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final

from hibari.g2p import Context
from hibari.g2p.lexicon import Lexicon
from hibari.g2p.token import Tok

from ..phonemes.ascii_twins import ascii_twins, is_twin
from ..phonemes.english_ipa import from_ipa
from ..phonemes.origins.foreign_names import ForeignNames

_PLAIN: Final = 2  # cues of an origin that outweigh an ASCII spelling
_POSSESSIVES: Final = ("'s", "’s", "'S", "’S")


class NameReader:
    """Finds names among tokens, and gives them a known spelling or their phonemes.

    Args:
        lexicon: of the voice.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._foreign = ForeignNames.load()
        self._beside = frozenset(name for origin in self._foreign.origins for name in origin.beside)

    def read(self, tokens: Sequence[Tok]) -> None:
        """Change the tokens of names."""
        for index, token in enumerate(tokens):
            if token.text.islower() and token.text.isascii():
                continue
            phonemes = self._phonemes(tokens, index)
            if phonemes is not None:
                token.phonemes = phonemes
                self._add_possessive(tokens, index)

    def _phonemes(self, tokens: Sequence[Tok], index: int) -> str | None:
        """The phonemes of a name by its origin; None if a lexicon has it, or nothing shows the origin."""
        token = tokens[index]
        name = token.text
        if not _may_be_name(name):
            return None
        known = self._is_known(name, token.tag)
        if known and name.lower() not in self._beside:
            return None
        neighbours = _neighbours(tokens, index)
        if known:
            ipa = self._foreign.ipa_beside(name, neighbours)
        elif twin := self._twin(name, neighbours):
            token.text = twin
            return None
        else:
            ipa = self._foreign.ipa(name, neighbours)
        return None if ipa is None else from_ipa(ipa)[0]

    def _twin(self, name: str, neighbours: Sequence[str]) -> str | None:
        """The ASCII spelling that a lexicon has for a word with accents, unless they show its origin plainly.

        English has other sounds for many a name without its accents.
        """
        if name.isascii() or (name[0].isupper() and self._foreign.ipa(name, neighbours, _PLAIN)):
            return None
        for twin in ascii_twins(name):
            spelling = twin.capitalize() if name.isupper() else twin
            phonemes = self._said(spelling, "NNP")
            if phonemes is not None and is_twin(name, phonemes):
                return spelling
        return None

    def _is_known(self, word: str, tag: str) -> bool:
        """Whether a lexicon has a word; letters are not spelled out."""
        if word in self._lexicon.golds:
            return True
        return self._said(word.capitalize() if word.isupper() else word, tag) is not None

    def _said(self, word: str, tag: str) -> str | None:
        phonemes: str | None = self._lexicon(Tok(word, tag), Context())[0]
        return phonemes

    def _add_possessive(self, tokens: Sequence[Tok], index: int) -> None:
        """Add the "s" of the next token to a name, and silence that token."""
        if (
            not tokens[index].whitespace
            and index + 1 < len(tokens)
            and tokens[index + 1].text in _POSSESSIVES
        ):
            tokens[index].phonemes = self._lexicon._s(tokens[index].phonemes)
            tokens[index + 1].phonemes = ""


def composed(word: str) -> str:
    """A word whose marks are part of its letters, where Unicode has such letters."""
    return word if word.isascii() else unicodedata.normalize("NFC", word)


def _may_be_name(text: str) -> bool:
    if text.isascii():
        return text[:1].isupper() and not text.isupper() and text.isalpha()
    return any(map(str.isalpha, text))


def _neighbours(tokens: Sequence[Tok], index: int) -> list[str]:
    """The capitalized words just before and after a token; hyphens between them count for nothing."""
    return [name for step in (-1, 1) if (name := _neighbour(tokens, index, step))]


def _neighbour(tokens: Sequence[Tok], index: int, step: int) -> str:
    index += step
    if 0 <= index < len(tokens) and tokens[index].text == "-":
        index += step
    text = tokens[index].text if 0 <= index < len(tokens) else ""
    return text if text[:1].isupper() else ""
