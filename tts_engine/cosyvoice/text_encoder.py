"""Words to text ids of CosyVoice. Words with phonemes or pinyin become version 3's marks of sounds.

    Siobhan, phonemes "ʃɪˈvɔːn"  ->  [SH][IH0][V][AO1][N]
    天气, pinyin "tian1 qi4"      ->  [t][iān][q][ì]

Sounds of other languages in IPA become the nearest English ones. Version 2 has no such marks and reads the
word.
Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/tokenizer/tokenizer.py:285-327 (marks), example.py (a word
as marks in a sentence).
"""

import logging
from collections.abc import Callable, Container, Iterator
from dataclasses import replace

from ...models.phonemes.arpabet import to_arpabet
from ...models.phonemes.english_ipa import from_ipa
from ..reading.normalizer import join_words
from ..segmenter import SpokenWord
from ..voice_kit.pinyin_words import with_pinyin, with_tone_mark

logger = logging.getLogger(__name__)

Words = tuple[SpokenWord, ...]


class CosyVoiceTextEncoder:
    """Encodes the words of a bundle's sessions.

    Args:
        encode_text: text to text ids.
        marks: of the model, such as "[laughter]" and "[AY1]".
    """

    def __init__(self, encode_text: Callable[[str], list[int]], marks: Container[str]) -> None:
        self._encode_text = encode_text
        self._model_marks = marks
        self._has_sounds = "[AY1]" in marks
        self._reported: set[str] = set()

    def encode(self, words: Words, before: Words = ()) -> tuple[int, ...]:
        """The text ids of words. before: the word before them, which decides on the blank between."""
        known = len(join_words(self._written(before)))
        return tuple(self._encode_text(join_words(self._written((*before, *words)))[known:]))

    def _written(self, words: Words) -> Words:
        """The words as the model takes them."""
        if all(word.phonemes is None and word.pinyin is None for word in words):
            return words
        if not self._has_sounds:
            self._report("CosyVoice 2 reads letters; phonemes of words are not used")
            return words
        return tuple(self._with_marks(words))

    def _with_marks(self, words: Words) -> Iterator[SpokenWord]:
        """The words, those with phonemes in marks. A word whose phonemes are in the one before joins it."""
        pending: SpokenWord | None = None
        for word in with_pinyin(words, self._pinyin_marks):
            if word.phonemes == "" and pending is not None:
                pending = replace(pending, punctuation=word.punctuation or pending.punctuation)
                continue
            if pending is not None:
                yield pending
            pending = replace(word, text=self._sounds(word.phonemes) or word.text) if word.phonemes else word
        if pending is not None:
            yield pending

    def _pinyin_marks(self, pinyin: str) -> str:
        """Marks of Mandarin syllables; "" if the model lacks one, and the word is read."""
        sounds = [sound for syllable in pinyin.split() for sound in with_tone_mark(syllable) if sound]
        # The model writes "nüe" and "lüe" with a "v", and "ju", "qu" and "xu" without dots, as pinyin does.
        marks = [f"[{sound.replace('üè', 'vè')}]" for sound in sounds]
        missing = [mark for mark in marks if mark not in self._model_marks]
        for mark in missing:
            self._report(f"CosyVoice has no mark {mark}; words with that sound are read as they are written")
        return "" if missing else "".join(marks)

    def _sounds(self, ipa: str) -> str:
        phonemes, missing = from_ipa(ipa)
        for sign in sorted(missing):
            self._report(f"CosyVoice has no sound for {sign}, which is left out")
        return "".join(f"[{sound}]" for sound in to_arpabet(phonemes))

    def _report(self, message: str) -> None:
        """Log a warning once."""
        if message not in self._reported:
            self._reported.add(message)
            logger.warning(message)
