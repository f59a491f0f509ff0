"""Which sentences rise at their end, how lively a line is, and where groups of digits rise."""

import pytest

from benches.voices.packaged_voice import read_questions
from vivavoce.models.hibari.melody import Accent
from vivavoce.tts_engine.hibari.intonation import melody_of, range_of, rises
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.reading.prosody import Prosody
from vivavoce.tts_engine.segmenter import Segmenter

QUESTIONS = read_questions()


def words_of(text: str) -> list[SpokenWord]:
    segmenter = Segmenter()
    return [word for segment in segmenter.push(text) + segmenter.flush() for word in segment.words]


@pytest.mark.parametrize("direction", ["rising", "falling"])
def test_questions_rise_by_their_kind(direction: str) -> None:
    questions = [text for texts in QUESTIONS[direction].values() for text in texts]
    assert len(questions) == {"rising": 40, "falling": 16}[direction]
    wrong = [text for text in questions if rises(words_of(text)) is not (direction == "rising")]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is your son or daughter ill?", True),
        ("Has your card or phone been stolen?", True),
        ("Did the driver call or email?", False),
        ("Could you wait a minute or two?", True),
        ("Would you like a drink or something?", True),
        ("Is it the first or the second?", False),
        ("Tea or coffee?", False),
        ("What a day, isn't it?", True),
        ("When you are ready, what would you like to do?", False),
        ("By which date do you need it?", False),
        ("What you need is a key, right?", True),
        ("Is that correct.", False),
        ("Hello.", False),
    ],
)
def test_or_and_question_words_are_read_in_their_place(text: str, expected: bool) -> None:
    assert rises(words_of(text)) is expected


def test_no_words_do_not_rise() -> None:
    assert not rises([])


@pytest.mark.parametrize(
    ("livelier", "calmer"),
    [
        ("Good morning, how are you today.", "The office is on the second floor."),
        ("No, it is the second door.", "It is the second door."),
        ("It is not the first but the second.", "It is the second one."),
        ("The parcel arrived today.", "You need milk, eggs, flour, and sugar."),
        ("You need milk, eggs, flour, and sugar.", "I am sorry to hear that."),
    ],
)
def test_a_line_is_as_lively_as_what_it_says(livelier: str, calmer: str) -> None:
    assert range_of(words_of(livelier)) > range_of(words_of(calmer))


def test_each_group_of_digits_but_the_last_ends_higher() -> None:
    words = words_of("Call 555-201-0142 now.")
    melody = melody_of(words, 1.0, Prosody(), rises=False)
    lifted = [words[accent.words[0]].text for accent in melody.accents]
    assert lifted == ["five", "one"] and all(isinstance(accent, Accent) for accent in melody.accents)
    assert not melody_of(words_of("Your PIN is 0417."), 1.0, Prosody(), rises=False).accents
