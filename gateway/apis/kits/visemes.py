"""Shapes of the mouth for a drawn face, from the times of phonemes: Microsoft's 22 visemes.

    words     |hello      | |there   |
    phonemes  |h|ə|l|oʊ   | |ð|ɛ|ɹ   |
    visemes  0|12|1|14|8  |0|17|4|13 |0

Movements follow one another without a gap: a silence, viseme 0, is before the first word, between words that
are apart, and at the end, where it takes no time and closes the mouth.

Source: Azure AI Speech, "Get facial position with viseme" (the shapes) and "SSML phonetic alphabets", en-US
(the phonemes of each).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....tts_engine.chunk import Word

SILENCE: Final = 0
_PHONEMES_OF_VISEMES: Final[Mapping[int, str]] = {
    1: "æ ə ʌ ɐ",
    2: "ɑ a ɒ",
    3: "ɔ",
    4: "ɛ ʊ eɪ e",
    5: "ɝ ɜ",
    6: "j i ɪ",
    7: "w u",
    8: "oʊ əʊ o",
    9: "aʊ",
    10: "ɔɪ",
    11: "aɪ",
    12: "h",
    13: "ɹ r",
    14: "l",
    15: "s z ts dz",
    16: "ʃ tʃ dʒ ʒ",
    17: "ð",
    18: "f v",
    19: "d t n θ ɾ ʔ",  # of the glottal stop there is none: it stands for a "t"
    20: "k ɡ g ŋ",
    21: "p b m",
}
# Sounds that American English has not, at the shape that is nearest: lips first, then the place of the tongue
_OTHER_SOUNDS: Final[Mapping[int, str]] = {
    4: "ø œ ɶ",
    6: "ɨ ɪ\u0308 ʝ ɥ",
    7: "y ʏ ɯ ʉ ɰ",
    8: "ɤ ɵ",
    12: "ħ ʕ ɦ",
    14: "ʎ ɫ ɭ ɬ ɮ",
    16: "ʂ ʐ ɕ ʑ tɕ dʑ",
    18: "ʋ ɸ β ɱ",
    19: "ɲ ɳ ʈ ɖ ɽ",
    20: "x ɣ χ ʁ ʀ ç c ɟ q ɢ ɴ",
}
_OTHER_VISEME: Final = 1  # a mouth half open
VISEMES: Final[Mapping[str, int]] = {
    phoneme: viseme
    for table in (_OTHER_SOUNDS, _PHONEMES_OF_VISEMES)
    for viseme, phonemes in table.items()
    for phoneme in phonemes.split()
}
_MIN_SILENCE_S: Final = 0.02  # a shorter gap belongs to the sound before it


@dataclass(frozen=True, slots=True)
class MouthMovement:
    """A sound and its viseme. Times are in seconds from the first sample."""

    phoneme: str  # IPA without stress; "" is silence
    viseme: int
    start_s: float
    stop_s: float


class MouthTimeline:
    """The movements of an utterance, as its words come."""

    def __init__(self) -> None:
        self._stop_s = 0.0  # of the movements so far
        self._has_sounds = False

    def push(self, words: Sequence[Word]) -> list[MouthMovement]:
        """The movements of further words, and the silence before them; none of words without phonemes."""
        movements: list[MouthMovement] = []
        for phoneme in (each for word in words for each in word.phonemes):
            start_s = max(phoneme.start_s, self._stop_s)
            if start_s - self._stop_s >= _MIN_SILENCE_S:
                movements.append(MouthMovement("", SILENCE, self._stop_s, start_s))
            else:
                start_s = self._stop_s
            self._stop_s = max(start_s, phoneme.stop_s)
            viseme = _viseme(phoneme.ipa)
            movements.append(MouthMovement(phoneme.ipa, viseme, start_s, self._stop_s))
        self._has_sounds = self._has_sounds or bool(movements)
        return movements

    def finish(self) -> list[MouthMovement]:
        """The silence that closes the mouth; none of an utterance without phonemes."""
        return [MouthMovement("", SILENCE, self._stop_s, self._stop_s)] if self._has_sounds else []


def _viseme(ipa: str) -> int:
    """The shape of a sound: of itself, or without its marks of length and its diacritics."""
    return VISEMES.get(ipa, VISEMES.get(ipa[:1], _OTHER_VISEME))
