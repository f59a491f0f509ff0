"""Tags of voices in plain text: any split, nested, open and stray ones."""

from itertools import groupby

import pytest

from vivavoce.adapters.ssml.markups.voice_tags import MAX_TAG_DEPTH, VoiceTags

TEXTS = {
    "He said: [voice:anna]Come in![/voice] So she did.": [
        ("He said: ", None),
        ("Come in!", "anna"),
        (" So she did.", None),
    ],
    "[voice:a]One [voice: b b ]two[/voice] three[/voice] four": [
        ("One ", "a"),
        ("two", "b b"),
        (" three", "a"),
        (" four", None),
    ],
    "[voice:a]One [voice:b]two": [("One ", "a"), ("two", "b")],
    "One[/voice] two": [("One[/voice] two", None)],
    "[pause] [voice] [voice:] [voice:\n] [[voice:a]x": [
        ("[pause] [voice] [voice:] [voice:\n] [", None),
        ("x", "a"),
    ],
    "ends in [voice:a": [("ends in [voice:a", None)],
    f"[voice:{'n' * 300}] long": [(f"[voice:{'n' * 300}] long", None)],
}


def read(*parts: str) -> list[tuple[str, str | None]]:
    tags = VoiceTags()
    found = [one for part in parts for one in tags.push(part)] + tags.flush()
    by_voice = groupby(found, lambda one: one.voice)
    return [("".join(one.text for one in stretch), voice) for voice, stretch in by_voice]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_stretches_have_their_voices_however_the_text_is_split(text: str) -> None:
    assert read(text) == TEXTS[text]
    assert read(*text) == TEXTS[text]
    for cut in range(len(text)):
        assert read(text[:cut], text[cut:]) == TEXTS[text]


def test_text_without_a_bracket_is_never_held() -> None:
    assert [one.text for one in VoiceTags().push("One [two] three")] == ["One [two] three"]


def test_nested_tags_are_bounded() -> None:
    text = "[voice:a]" * MAX_TAG_DEPTH + "[voice:b]x" + "[/voice]" * MAX_TAG_DEPTH + "y"
    assert read(text) == [("[voice:b]x", "a"), ("y", None)]
