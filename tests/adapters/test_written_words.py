"""Written words cover the text, each character once, whatever the engine has words for."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.written_words import WrittenWords
from vivavoce.tts_engine.chunk import Word


def engine_words(text: str, *spoken: str) -> list[Word]:
    """Words of 0.2 s each, found in the text one after another."""
    words, place = [], 0
    for number, word in enumerate(spoken):
        start = text.index(word, place)
        place = start + len(word)
        words.append(Word(word, 0.2 * number, 0.2 * (number + 1), start, place))
    return words


@pytest.mark.parametrize(
    ("text", "spoken", "written"),
    [
        ("Well, (yes!) it is.", "Well yes it is", "Well, (yes!) it is."),
        ("2 + 2 = 4 😀", "2 2 = 4", "2 + 2 = 4 😀"),
        (" **Bold** — “so”", "Bold so", "**Bold** — “so”"),
        ("and/or well-known", "and or well known", "and/or well-known"),
        ("Hello 世界 all", "Hello all", "Hello 世界 all"),
        ("😀 Hi", "Hi", "😀 Hi"),
        ("你好，世界。（再见）", "你好 世界 再见", "你好， 世界。 （再见）"),
        ("我用iPhone「好」", "我 用 iPhone 好", "我 用 iPhone 「好」"),
        ("1 1/2 cups", "1 1/2 cups", "1 1/2 cups"),
    ],
)
def test_a_word_has_everything_that_is_written_around_it(text: str, spoken: str, written: str) -> None:
    words = WrittenWords()
    found = words.push(engine_words(text, *spoken.split()), text, len(text)) + words.finish(text)
    assert [word.text for word in found] == written.split()


def test_a_word_of_several_words_of_the_engine_lasts_to_the_end_of_the_last_one() -> None:
    text = "2 + and/or so"
    words = engine_words(text, "2", "+", "and", "or", "so")
    times = [(word.text, word.start_s, word.stop_s) for word in WrittenWords().push(words, text, len(text))]
    expected = [("2", 0, 0.2), ("+", 0.2, 0.4), ("and/or", 0.4, 0.8), ("so", 0.8, 1.0)]
    assert times == [(word, pytest.approx(start), pytest.approx(stop)) for word, start, stop in expected]


@given(st.text(st.sampled_from("ab1 \n.,()“”«»+-*_😀你好、「」")), st.data())
def test_written_words_cover_the_text_without_its_blanks(text: str, data: st.DataObject) -> None:
    runs = [match.span() for match in re.finditer(r"[\w+]+", text)]
    engine = [
        Word(text[start:stop], float(start), float(stop), start, stop)
        for start, stop in runs
        if data.draw(st.booleans())
    ]
    words, found = WrittenWords(), list[Word]()
    while engine:
        count = data.draw(st.integers(1, len(engine)))
        batch, engine = engine[:count], engine[count:]
        found += words.push(batch, text, data.draw(st.integers(batch[-1].text_stop, len(text))))
    found += words.finish(text)
    assert all(word.text == text[word.text_start : word.text_stop] for word in found)
    assert "".join(word.text for word in found).split() == "".join(text.split()).split()
    ends = [0, *(place for word in found for place in (word.text_start, word.text_stop)), len(text)]
    assert ends == sorted(ends)
    assert not any(text[stop:start].strip() for stop, start in zip(ends[::2], ends[1::2], strict=True))
    times = [time for word in found for time in (word.start_s, word.stop_s)]
    assert all(before <= after for before, after in pairwise(times))
