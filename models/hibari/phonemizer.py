"""Words to the phoneme ids of the packaged voice: lexicons, tagger, a network for other words, and IPA.

Text normalization is not included: words are spelled as they are spoken.

Source: hibari-tts 0.2.1 (Apache-2.0): phoneme alphabet and G2P.
"""

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hibari
import numpy as np
from numpy.typing import NDArray

from ..phonemes.english_ipa import IPA_OF_SIGNS, STRESS_MARKS, SpelledWord, from_ipa
from .name_reader import NameReader, composed
from .prepared_files import PreparedFiles

ASSETS = Path(hibari.__file__).parent / "assets"
MAX_PHONEMES = 400  # hibari's own limit for one call of its encoder


@dataclass(frozen=True, slots=True)
class PhonemeLine:
    """Phoneme ids of one line."""

    ids: NDArray[np.int64]  # (L,)
    words: tuple[tuple[int, int], ...]  # (first, stop) id of each word, in order

    @property
    def has_phonemes(self) -> bool:
        """Whether any word has a phoneme of the model's alphabet."""
        return any(first < stop for first, stop in self.words)


class Phonemizer:
    """Converts words to phoneme ids with hibari's lexicon, tagger and out-of-vocabulary network.

    Args:
        files: of the packaged voice.
    Attributes:
        phoneme_ids: the alphabet, which is Kokoro's.
        ipa: of each id that is a sound; marks of stress have none.
        space_id: of the space between words.
        missing: signs of IPA so far that the alphabet has nothing for; they are left out.
    """

    def __init__(self, files: PreparedFiles) -> None:
        self._g2p = files.g2p()
        self._names = NameReader(self._g2p.lexicon)
        self.missing: set[str] = set()
        self.phoneme_ids: dict[str, int] = json.loads((ASSETS / "vocab.json").read_text("utf-8"))
        self.ipa = {
            id: IPA_OF_SIGNS.get(sign, sign)
            for sign, id in self.phoneme_ids.items()
            if sign not in STRESS_MARKS
        }
        self.space_id = self.phoneme_ids[" "]
        # Punctuation has the first ids of the alphabet. Its time is a pause, not part of the word.
        self._last_pause_id = self.phoneme_ids["…"]
        self._letters = frozenset(self._g2p.oov.cin)  # it drops all others without a sound
        self.phonemize([SpelledWord("Vivavoce", ".")])  # loads the network, and what shows origins

    @classmethod
    def load(cls) -> "Phonemizer":
        """Load the phonemizer alone. Raises HibariGraphMismatchError for another version of the package."""
        return cls(PreparedFiles.load(ASSETS))

    def phonemize(self, words: Sequence[SpelledWord]) -> list[PhonemeLine]:
        """Lines of at most 400 phonemes, split between words. A word without phonemes has an empty range."""
        return [self._line(part) for part in _split_lines(self.word_phonemes(words))]

    def word_phonemes(self, words: Sequence[SpelledWord]) -> list[str]:
        """The phonemes of each word in Kokoro's alphabet, with the punctuation after it."""
        text = " ".join(composed(word.text) + word.punctuation for word in words)
        return [
            phonemes if word.phonemes is None else self._from_ipa(word.phonemes) + word.punctuation
            for word, phonemes in zip(words, self._phonemes(text, len(words)), strict=True)
        ]

    def _from_ipa(self, ipa: str) -> str:
        phonemes, missing = from_ipa(ipa)
        self.missing |= missing
        return phonemes

    def _known_letters(self, word: str) -> str:
        """Replace letters that the network does not know by the same letter without accents."""
        if word.isascii():
            return word
        return "".join(map(self._known_letter, word))

    def _known_letter(self, letter: str) -> str:
        base = unicodedata.normalize("NFD", letter)[0]
        return next((form for form in (letter, base, base.lower()) if form in self._letters), letter)

    def _phonemes(self, text: str, words: int) -> list[str]:
        """The phonemes of each word: those of all tokens up to the next white space."""
        tokens = self._g2p.tokenize(text)
        self._names.read(tokens)
        if not text.isascii():
            for token in tokens:
                token.text = self._known_letters(token.text)
        word_phonemes = [""] * words
        index = 0
        for token in self._g2p.phonemize_tokens(tokens):
            word_phonemes[index] += token.phonemes or ""
            index += bool(token.whitespace)
        return word_phonemes

    def _line(self, word_phonemes: Iterable[str]) -> PhonemeLine:
        """The ids of the words of a line, with id 0 at both ends."""
        ids = [0]
        ranges = []
        for phonemes in word_phonemes:
            known = [self.phoneme_ids[symbol] for symbol in phonemes.strip() if symbol in self.phoneme_ids]
            if known and len(ids) > 1:
                ids.append(self.space_id)
            sounds = [symbol for symbol in known if symbol > self._last_pause_id]
            ranges.append((len(ids), len(ids) + len(sounds)))
            ids += known
        ids.append(0)
        return PhonemeLine(np.array(ids, np.int64), tuple(ranges))


def _split_lines(word_phonemes: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    length = 0
    for phonemes in word_phonemes:
        if parts[-1] and length + len(phonemes) + 1 > MAX_PHONEMES:
            parts.append([])
            length = 0
        parts[-1].append(phonemes[:MAX_PHONEMES])
        length += len(phonemes) + 1
    return parts
