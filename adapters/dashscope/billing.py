"""The characters that DashScope charges for a text.

Source: Alibaba Cloud Model Studio, CosyVoice pricing: a Chinese character counts as two.
"""

import re
from typing import Final

# Unicode's script Han: radicals, marks, numerals, extension A, unified, compatibility, planes 2 and 3.
_HAN_CHARACTERS: Final = re.compile(
    "[\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd]+"
)


def billed_characters(text: str) -> int:
    """Return the number of charged characters: two for each Han character, in Japanese and Korean too."""
    if text.isascii():
        return len(text)
    return len(text) + sum(len(run) for run in _HAN_CHARACTERS.findall(text))
