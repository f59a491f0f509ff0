"""SSML documents of the greatest length whose markup takes the longest to parse."""

from typing import Final

from vivavoce.adapters.ssml.document import MAX_DOCUMENT_CHARACTERS

DENSE_UNITS: Final = (
    "<break/>a",
    "<s>a</s>",
    "<p>a</p>",
    "x<a/>",
    '<prosody rate="2">a</prosody>',
    '<sub alias="b">a</sub>',
    '<lang xml:lang="en">a</lang>',
    '<phoneme ph="a">a</phoneme>',
)


def dense_document(unit: str, *, attributes: str = "", ending: str = "") -> str:
    """Return a document that repeats a unit. attributes: of its element ``speak``; ending: of its text."""
    begin, end = f"<speak{attributes}>", f"{ending}</speak>"
    room = MAX_DOCUMENT_CHARACTERS - len(begin + end)
    return begin + unit * (room // len(unit)) + end
