"""Cartesia's tags in a transcript: any split, bounds and words beside them."""

import pytest

from vivavoce.adapters.ssml.document import SsmlPiece
from vivavoce.gateway.apis.dialects.cartesia.transcript_tags import (
    MAX_SPELLED_CHARACTERS,
    MAX_TAG_CHARACTERS,
    TranscriptTags,
)
from vivavoce.tts_engine.reading.pronunciation.lexicon import Pronunciation
from vivavoce.tts_engine.reading.prosody import Prosody

# Text, pause, speed, volume and what is said instead
Heard = tuple[str, float | None, float, float, str]
TEXTS: dict[str, list[Heard]] = {
    'One.<break time="1.25s"/>Two.': [
        ("One.", None, 1, 1, ""),
        ("", 1.25, 1, 1, ""),
        (" Two.", None, 1, 1, ""),
    ],
    "One <break time='300ms' /> two": [
        ("One ", None, 1, 1, ""),
        ("", 0.3, 1, 1, ""),
        (" two", None, 1, 1, ""),
    ],
    '<break time=".5s"/><break/><break time="3600s">x': [
        ("", 0.5, 1, 1, ""),
        ("", 0.5, 1, 1, ""),
        ("", 20.0, 1, 1, ""),
        ("x", None, 1, 1, ""),
    ],
    'a<speed ratio="1.5"/>b <VOLUME level="0.5"/>c<speed ratio="0.8"/>, d': [
        ("a", None, 1, 1, ""),
        (" b ", None, 1.5, 1, ""),
        ("c", None, 1.5, 0.5, ""),
        (", d", None, 0.8, 0.5, ""),
    ],
    '<speed ratio="9"/>a <volume ratio="0.01"/>b <speed ratio="fast"/>c</speed> d': [
        ("a ", None, 1.5, 1, ""),
        ("b c", None, 1.5, 0.5, ""),
        (" d", None, 1, 0.5, ""),
    ],
    '<emotion value="angry" /> I am.</emotion>': [(" I am.", None, 1, 1, "")],
    "Code <spell>AB-12</spell>, call <spell> (123) 456 </spell>.": [
        ("Code ", None, 1, 1, ""),
        ("AB-12", None, 1, 1, "A B, 1 2"),
        (", call  ", None, 1, 1, ""),
        ("(123) 456", None, 1, 1, "1 2 3, 4 5 6"),
        (" .", None, 1, 1, ""),
    ],
    "a < b <Enter> <speedy> <breakfast/> <spells>": [
        ("a < b <Enter> <speedy> <breakfast/> <spells>", None, 1, 1, "")
    ],
    f"<break time='{'1' * MAX_TAG_CHARACTERS}'/>": [
        (f"<break time='{'1' * MAX_TAG_CHARACTERS}'/>", None, 1, 1, "")
    ],
    "ends in <speed rat": [("ends in <speed rat", None, 1, 1, "")],
    "ends in <spell>AB": [("ends in ", None, 1, 1, ""), ("AB", None, 1, 1, "A B")],
    "<spell/>AB</spell> C": [("AB C", None, 1, 1, "")],
}


def read(tags: TranscriptTags, *parts: str) -> list[Heard]:
    """What is heard of a text in parts; stretches that are spoken alike are one."""
    heard: list[Heard] = []
    for piece in (*(piece for part in parts for piece in tags.push(part)), *tags.flush()):
        said = piece.pronunciation.respelling if piece.pronunciation else ""
        manner = piece.pause_s, piece.prosody.speed, piece.prosody.volume, said
        if heard and piece.pause_s is None and heard[-1][1:] == manner:
            heard[-1] = (heard[-1][0] + piece.text, *manner)
        else:
            heard.append((piece.text, *manner))
    return heard


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_text_is_spoken_as_the_tags_say_however_it_is_split(text: str) -> None:
    assert read(TranscriptTags(), text) == TEXTS[text]
    assert read(TranscriptTags(), *text) == TEXTS[text]
    for cut in range(len(text)):
        assert read(TranscriptTags(), text[:cut], text[cut:]) == TEXTS[text]


def test_speed_and_volume_of_a_tag_replace_those_of_the_request_and_go_on_after_a_flush() -> None:
    tags = TranscriptTags(speed=1.25, volume=2.0)
    assert read(tags, 'a <speed ratio="0.625"/>b <volume ratio="1"/>') == [
        ("a ", None, 1, 1, ""),
        ("b ", None, 0.5, 1, ""),
    ]
    assert read(tags, "c</speed> d") == [("c", None, 0.5, 0.5, ""), (" d", None, 1, 0.5, "")]
    assert read(TranscriptTags(volume=0.0), '<volume ratio="2"/>a')[0][3] == 2  # of nothing


def test_an_element_that_is_not_closed_is_spelled_to_its_bound() -> None:
    heard = read(TranscriptTags(), "<spell>", *"x" * MAX_SPELLED_CHARACTERS, "yes, and more of it")
    spelled = "".join(text for text, _, _, _, said in heard if said)
    assert spelled == "x" * MAX_SPELLED_CHARACTERS
    assert heard[-1] == ("yes, and more of it", None, 1, 1, "")


def test_text_without_a_tag_is_never_held() -> None:
    assert TranscriptTags().push("a < b, <Enter>") == [SsmlPiece("a < b, <Enter>", prosody=Prosody())]
    assert TranscriptTags().push("<spell>b</spell>")[0].pronunciation == Pronunciation(respelling="b")
