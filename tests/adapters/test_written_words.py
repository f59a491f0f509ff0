"""Written words cover the text, each character once, whatever the engine has words for."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters import written_words
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


@given(st.text(st.sampled_from("ab1 \n.,(“)你好、「」"), min_size=1), st.data())
def test_a_word_ends_at_the_first_place_that_parts_and_begins_at_the_last(
    text: str, data: st.DataObject
) -> None:
    place = data.draw(st.integers(1, len(text)))
    ends = [stop for stop in range(place, len(text) + 1) if written_words._may_end(text, stop)]
    candidates = written_words._candidates(text, place, len(text))
    assert next((stop for stop in candidates if written_words._may_end(text, stop)), len(text)) == ends[0]
    begins = [start for start in range(1, place) if written_words._may_begin(text, start)]
    found = written_words._candidates(text, 1, place - 1)
    assert [start for start in found if written_words._may_begin(text, start)] == begins


@pytest.mark.parametrize("run", ["½", "a1", "((((", "字、"])
def test_the_work_of_a_word_does_not_grow_with_the_run_that_it_is_in(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def count_calls(text: str, place: int) -> bool:
        nonlocal calls
        calls += 1
        return False

    monkeypatch.setattr(written_words, "_may_part", count_calls)
    text = run * 50_000
    words = WrittenWords()
    for start in range(0, 400, 4):
        words.push([Word(text[start : start + 4], 0.0, 0.1, start, start + 4)], text, start + 4)
    words.push([Word(text[-4:], 0.0, 0.1, len(text) - 4, len(text))], text, len(text))
    assert calls <= (2_000 if run != "字、" else 2 * len(text))


def test_many_symbols_that_nothing_is_spoken_of_come_in_few_words() -> None:
    text = "Hello " + "- " * 50_000 + "all"
    words = engine_words(text, "Hello", "all")
    found = WrittenWords().push(words, text, len(text))
    assert len(found) < 1_000
    assert " ".join(word.text for word in found) == text
