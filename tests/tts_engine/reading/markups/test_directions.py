"""Directions in plain text: thoughts are skipped, pauses are found, all else stays text."""

import pytest

from vivavoce.tts_engine.reading.markups.directions import MAX_SKIPPED_CHARACTERS, Directions
from vivavoce.tts_engine.reading.prosody import MAX_BREAK_S, DirectedText, PlainText

# Written; what is spoken of it, with pauses in seconds
CASES = [
    ("<think>Short.</think>Yes.", ["Yes."]),
    ("<Reasoning step='1'>a < b</Reasoning >Yes.", ["Yes."]),
    ("[THINK]Hm[/THINK]Yes.", ["Yes."]),
    ('<tool_call>{"name": "pay"}</tool_call> Done.', [" Done."]),
    ('Here: ```json\n{"a": [1]}\n``` That is all.', ["Here: ", " That is all."]),
    ("Yes.</think> No.", ["Yes.", " No."]),
    ("No end: <think>for ever and ever", ["No end: "]),
    ("Wait [pause:1.5s] here.", ["Wait ", 1.5, " here."]),
    ("Wait [pause 500ms] here [pause] there.", ["Wait ", 0.5, " here ", 0.5, " there."]),
    ("One<break time=\"1s\"/>two<break time='.25s' />three<break/>", ["One", 1.0, "two", 0.25, "three", 0.5]),
    ('One<break strength="x-strong"/>two', ["One", 1.5, "two"]),
    ("[pause:2h]Long", [MAX_BREAK_S, "Long"]),
    # Text
    (
        "if a < b and [see](x) or [pausing] then ```python",
        ["if a < b and [see](x) or [pausing] then ```python"],
    ),
    ("<thinker>I</thinker> and <breakfast> at [pause:soon]", None),
    ("cut off at <thi", None),
    ("cut off at [pause:1", None),
    ("```jsonnet stays", None),
]


def read(text: str, size: int) -> list[str | float]:
    """Return the spoken text and the pauses of a text that arrives in pieces of a size."""
    directions = Directions()
    stretches: list[DirectedText] = []
    for begin in range(0, len(text), size):
        stretches += directions.push(text[begin : begin + size])
    stretches += directions.flush()
    assert "".join(one.text for one in stretches) == text
    found: list[str | float] = []
    skipped_since = True
    for one in stretches:
        if one.is_spoken and not skipped_since:
            found[-1] = f"{found[-1]}{one.text}"
        elif one.is_spoken:
            found.append(one.text)
        if one.pause_s is not None:
            found.append(one.pause_s)
        skipped_since = not one.is_spoken
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 1_000])
@pytest.mark.parametrize(("text", "expected"), CASES)
def test_directions_are_found_in_any_split(text: str, expected: list[str | float] | None, size: int) -> None:
    assert read(text, size) == ([text] if expected is None else expected)


@pytest.mark.parametrize("size", [1, 999, 1_000_000])
def test_a_block_that_does_not_end_ends_after_its_bound(size: int) -> None:
    text = "<think>" + "a" * MAX_SKIPPED_CHARACTERS + " Hello.</think> Bye."
    assert read(text, size) == [" Hello.", " Bye."]


def test_a_text_is_held_only_while_it_may_be_a_direction() -> None:
    directions = Directions()
    assert directions.push("a <") == [DirectedText("a ")]
    assert directions.push("x") == [DirectedText("<x")]
    assert directions.push("[pau") == []
    assert directions.flush() == [DirectedText("[pau")]
    assert directions.push("x" * 3) == [DirectedText("xxx")]


def test_an_opening_tag_that_is_too_long_is_text() -> None:
    text = "<think " + "x" * 200 + ">y"
    assert read(text, 7) == [text]


def test_a_plain_text_has_no_directions() -> None:
    assert PlainText().push("<think>x</think>") == [DirectedText("<think>x</think>")]
