"""Folding of text into the small alphabet that the rules of the grammars are written in.

Quotes, dashes, blanks and digits become ASCII, compatibility characters become what they are compatible with,
and characters without a sound (controls, zero-width characters, lone surrogates, emoji) are dropped. Each
character is folded on its own, so text may be split anywhere.
Source: Unicode 15.1, general categories and compatibility decompositions.
"""

import re
import unicodedata
from collections.abc import Mapping

# Numerator and denominator
FRACTIONS = {sign: unicodedata.normalize("NFKC", sign).split("\u2044") for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"}
FOLDED_CHARACTERS = {
    **dict.fromkeys("\t\r\x1f", " "),
    **dict.fromkeys("\n\x0b\x0c\x1c\x1d\x1e\x85\u2028", "\n"),
    "\u2029": "\n\n",
    **dict.fromkeys("‘’‚‛ʼʹ′＇´", "'"),
    **dict.fromkeys("“”„‟«»″＂", '"'),
    **dict.fromkeys("‐‑−﹣－", "-"),
    **dict.fromkeys("‒–", "–"),
    **dict.fromkeys("—―⸺⸻", "—"),
    "…": "...",
    "。": ". ",
    "、": ", ",
    "，": ", ",
    "！": "! ",
    "？": "? ",
    "；": "; ",
    "：": ": ",
    "،": ",",
    "؛": ";",
    "؟": "?",
    **dict.fromkeys("•‣◦▪●·∙", "•"),
    **dict.fromkeys("™®℠¡¿", ""),
    **{superscript: f"^{digit}" for digit, superscript in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    # With a blank, so that "2½" becomes "2 1/2".
    **{sign: " " + "/".join(numbers) for sign, numbers in FRACTIONS.items()},
    "⁄": "/",
    **{letter: unicodedata.normalize("NFKC", letter) for letter in "ℂℕℙℚℝℤ"},
    "℃": "°C",
    "℉": "°F",
    "￥": "¥",
    "￡": "£",
    "µ": "μ",  # the micro sign becomes the Greek letter
}
_KEPT_SYMBOLS = "°©§±×÷≈≤≥→♭♯⌘⌥⇧⌃"
# Other, not assigned, private use, surrogates and enclosing marks have no sound.
_SILENT_CATEGORIES = ("Cc", "Cf", "Cs", "Cn", "Co", "Me")
_PLAIN_ASCII = re.compile(r"[\n -~]*\Z")


def fold(text: str, table: Mapping[str, str] = FOLDED_CHARACTERS) -> tuple[str, list[int]]:
    """Return ``text`` folded, and the position in ``text`` of each folded character.

    ``table``: what single characters become, ahead of the general rules.
    """
    if _PLAIN_ASCII.match(text):
        return text, list(range(len(text)))
    folded: list[str] = []
    positions: list[int] = []
    for position, character in enumerate(text):
        replacement = character if " " <= character <= "~" else _fold_character(character, table)
        folded.append(replacement)
        positions.extend([position] * len(replacement))
    return "".join(folded), positions


def _fold_character(character: str, table: Mapping[str, str]) -> str:
    if character in table:
        return table[character]
    category = unicodedata.category(character)
    is_variation_selector = "\ufe00" <= character <= "\ufe0f"
    if category in _SILENT_CATEGORIES or is_variation_selector:
        return ""
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category in ("Zs", "Sk", "So") and character not in _KEPT_SYMBOLS and character not in "^`":
        compatible = unicodedata.normalize("NFKC", character)
        return compatible if compatible.isascii() and compatible.isalnum() else " "
    is_wide_or_ligature = "\uff00" <= character <= "\uffef" or "\ufb00" <= character <= "\ufb06"
    if category in ("No", "Nl") or is_wide_or_ligature:
        compatible = unicodedata.normalize("NFKC", character)
        return compatible if compatible.isascii() or compatible.isalpha() else " "
    return character
