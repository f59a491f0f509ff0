"""What is left of a stream's inputs after any position."""

from hypothesis import given
from hypothesis import strategies as st

from vivavoce.gateway.cluster.replicas.input_log import InputLog
from vivavoce.gateway.cluster.replicas.messages import (
    EndInput,
    Flush,
    PushText,
    SetLanguage,
    SetProsody,
    StreamInput,
)
from vivavoce.tts_engine.reading.pronunciation.entries import make_pronunciation
from vivavoce.tts_engine.reading.prosody import Prosody

_INPUTS = st.lists(
    st.one_of(
        st.text("ab c.", max_size=6).map(PushText),
        st.sampled_from([SetProsody(Prosody(0.5)), SetProsody(Prosody(2.0)), Flush(), EndInput()]),
        st.sampled_from(["de", None]).map(SetLanguage),
    ),
    max_size=12,
)


def text_of(inputs: list[StreamInput]) -> str:
    return "".join(each.text for each in inputs if isinstance(each, PushText))


def styles_by_character(inputs: list[StreamInput]) -> list[tuple[str, float, str | None]]:
    rate, language, found = 1.0, None, list[tuple[str, float, str | None]]()
    for each in inputs:
        match each:
            case SetProsody(new):
                rate = new.speed
            case SetLanguage(other):
                language = other
            case PushText(text):
                found += [(character, rate, language) for character in text]
            case _:
                pass
    return found


@given(_INPUTS, st.integers(0, 80))
def test_the_rest_is_the_text_after_the_position_in_its_rates_and_languages(
    inputs: list[StreamInput], position: int
) -> None:
    log = InputLog()
    for each in inputs:
        log.add(each)
    begins, rest = log.after(position)
    assert begins == position
    assert text_of(rest) == text_of(inputs)[position:]
    assert styles_by_character(rest) == styles_by_character(inputs)[position:]
    assert (EndInput() in rest) == (EndInput() in inputs)


def test_flushes_of_the_text_before_are_left_out_and_later_ones_keep_their_place() -> None:
    log = InputLog()
    for each in (PushText("one "), Flush(), PushText("two "), Flush(), PushText("three"), Flush()):
        log.add(each)
    assert log.after(5) == (5, [PushText("wo "), Flush(), PushText("three"), Flush()])
    assert log.after(13) == (13, [])


def test_a_phrase_with_a_pronunciation_is_left_out_whole_if_it_was_begun() -> None:
    phrase = PushText("New York", make_pronunciation(respelling="noo york"))
    log = InputLog()
    for each in (PushText("in "), phrase, PushText(" now")):
        log.add(each)
    assert log.after(3) == (3, [phrase, PushText(" now")])
    assert log.after(6) == (11, [PushText(" now")])
