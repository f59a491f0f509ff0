"""TODO."""

import re
import unicodedata
from collections.abc import Mapping

FOLDED_CHARACTERS = {
    **dict.fromkeys("\t\r\x1f", " "),
    **dict.fromkeys("\n\x0b\x0c\x1c\x1d\x1e\x85\u2028", "\n"),
    "\u2029": "\n\n",
    **dict.fromkeys("‘’‚‛ʼʹ′＇", "'"),
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
    "²": "^2",
    "³": "^3",
    "½": " 1/2",
    "¼": " 1/4",
    "¾": " 3/4",
    "⅓": " 1/3",
    "⅔": " 2/3",
    "⅛": " 1/8",
    "⁄": "/",
    "℃": "°C",
    "℉": "°F",
    "￥": "¥",
    "￡": "£",
}


_KEPT_SYMBOLS = "°©§±×÷≈≤≥→"


def _fold_character(character: str, folded: Mapping[str, str]) -> str:
    if character in folded:
        return folded[character]
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs", "Cn", "Co", "Me") or "\ufe00" <= character <= "\ufe0f":
        return ""
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category in ("Zs", "Sk", "So") and character not in _KEPT_SYMBOLS and character not in "^`":
        compatible = unicodedata.normalize("NFKC", character)
        return compatible if compatible.isascii() and compatible.isalnum() else " "
    if category in ("No", "Nl") or "\uff00" <= character <= "\uffef" or "\ufb00" <= character <= "\ufb06":
        compatible = unicodedata.normalize("NFKC", character)
        return compatible if compatible.isascii() or compatible.isalpha() else " "
    return character


_PLAIN_ASCII = re.compile(r"[\n -~]*\Z")


def fold(text: str, table: Mapping[str, str] = FOLDED_CHARACTERS) -> tuple[str, list[int]]:
    """``text`` in the scanner's alphabet, and for each character of it its position in ``text``.

    Quotes, dashes, blanks and digits become ASCII, compatibility characters what they are compatible with;
    controls, zero-width characters, lone surrogates and emoji go. Character by character: no context.
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
