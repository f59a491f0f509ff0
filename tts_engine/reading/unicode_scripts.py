"""Facts about scripts: their characters, and the spacing between words. How a language is read is not known.

Source: Unicode 15.1 blocks (Scripts.txt).
"""

from .lazy_pattern import LazyPattern

HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
BOPOMOFO = "\u3105-\u312f"
HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"
# Thai, Lao, Tibetan, Burmese, Khmer: blanks between phrases only
_PHRASE_SPACED = "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u0f40-\u0fbc\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
NO_SPACE_SCRIPTS = f"{HAN}{KANA}{BOPOMOFO}"  # blanks beside these separate no words
LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u02af\u1e00-\u1eff"
GREEK = "\u0370-\u03ff\u1f00-\u1fff"
CYRILLIC = "\u0400-\u052f"
WIDE_MARKS = "。！？；：，、"

_IGNORES_SPACES = LazyPattern(f"[{NO_SPACE_SCRIPTS}{WIDE_MARKS}]")
_UNSPACED = LazyPattern(f"[{NO_SPACE_SCRIPTS}{_PHRASE_SPACED}]")
SYLLABIC = LazyPattern(f"[{NO_SPACE_SCRIPTS}{_PHRASE_SPACED}{HANGUL}]")  # said as a syllable or more


class ReadableScripts:
    """The scripts that a voice can read, as members of a regular expression's character class."""

    def __init__(self, *scripts: str) -> None:
        self._unread_letter = LazyPattern(rf"(?![{''.join(scripts)}])[^\W\d_]")
        self._readable = LazyPattern(rf"\d|(?=[{''.join(scripts)}])[^\W_]")

    def count_unread(self, word: str) -> int:
        """Return the number of letters of other scripts in ``word``."""
        return 0 if word.isascii() else len(self._unread_letter.compiled.findall(word))

    def can_read(self, word: str) -> bool:
        """Whether ``word`` has a letter or a digit that the voice can read."""
        return word.isascii() or self._readable.compiled.search(word) is not None


ALL_SCRIPTS = ReadableScripts(r"\w")


def ignores_spaces(character: str) -> bool:
    """Whether blanks beside ``character`` separate no words: Han, kana and wide marks."""
    return not character.isascii() and bool(_IGNORES_SPACES.compiled.match(character))


def is_unspaced(character: str) -> bool:
    """Whether the script of ``character`` writes words without blanks between them."""
    return not character.isascii() and bool(_UNSPACED.compiled.match(character))


def is_syllabic(character: str) -> bool:
    """Whether ``character`` is said as a syllable or more."""
    return not character.isascii() and bool(SYLLABIC.compiled.match(character))
