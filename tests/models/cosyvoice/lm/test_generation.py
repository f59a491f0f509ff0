"""The interleave with upstream's faults mended: every id fed once, all text used, bounded, nothing stray."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.generation import (
    END_OF_PROMPT,
    START_INPUT,
    TURN_INPUT,
    BistreamGeneration,
    CompatBistreamGeneration,
    CompatOneShotGeneration,
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    OneShotGeneration,
    SamplingRequest,
    SpecialIds,
    SpeechLengthRule,
    UnexpectedIdError,
)

V2 = SpecialIds(CosyVoiceVersion.V2, 120)
V3 = SpecialIds(CosyVoiceVersion.V3, 120)
Model = Callable[[SamplingRequest], int]


class Recorded:
    """Drives a generation with a model and remembers what the model was fed."""

    def __init__(self, generation: Generation, model: Model) -> None:
        self.generation, self.model = generation, model
        self.fed: list[LmInput] = []

    def say(self, pieces: Sequence[Sequence[int]]) -> "Recorded":
        for piece in pieces:
            self.generation.push_text(piece)
            self.answer_all()
        self.generation.end_text()
        self.answer_all()
        return self

    def answer_all(self) -> None:
        while (ask := self.generation.ask()) is not None:
            self.fed += ask.inputs
            sampled = self.model(ask) if ask.forced is None else ask.forced
            assert sampled not in ask.forbidden
            self.generation.answer(sampled)

    def ids(self, kind: LmInputKind) -> list[int]:
        return [unit.id for unit in self.fed if unit.kind is kind]


def never_done(ask: SamplingRequest) -> int:
    """Goes on making sounds for ever, counting."""
    return len(ask.inputs) % 7


def eager(ids: SpecialIds) -> Model:
    """Ends or asks for text as soon as it may."""

    def answer(ask: SamplingRequest) -> int:
        for wish in (ids.end, ids.fill):
            if wish not in ask.forbidden:
                return wish
        return 1

    return answer


def after(sounds: int, ids: SpecialIds) -> Model:
    """Ends after so many sounds in all; asks for text never."""
    said = 0

    def answer(ask: SamplingRequest) -> int:
        nonlocal said
        if said >= sounds and ids.end not in ask.forbidden:
            return ids.end
        said += 1
        return said % 100

    return answer


def split(ids: Sequence[int], cuts: Sequence[int]) -> list[Sequence[int]]:
    places = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [ids[start:stop] for start, stop in itertools.pairwise(places)]


@given(
    st.integers(1, 60),
    st.lists(st.integers(0, 60), max_size=6),
    st.integers(0, 30),
    st.integers(0, 70),
    st.integers(0, 300),
)
def test_every_id_is_fed_once_and_in_order_however_the_text_was_split(
    text: int, cuts: list[int], prompt_text: int, prompt_speech: int, sounds: int
) -> None:
    prompt = LmPrompt(tuple(range(1000, 1000 + prompt_text)), tuple(range(prompt_speech)))
    pushed = range(2000, 2000 + text)
    recorded = Recorded(BistreamGeneration(V2, prompt), after(sounds, V2)).say(split(pushed, cuts))
    assert recorded.ids(LmInputKind.TEXT) == [*prompt.text_ids, *pushed]
    spoken = recorded.generation.speech_ids
    assert (
        recorded.ids(LmInputKind.SPEECH)
        == [*prompt.speech_ids, *spoken][: len(recorded.ids(LmInputKind.SPEECH))]
    )
    # Only a last sound that ends the utterance by its length needs no feeding.
    assert len(prompt.speech_ids) + len(spoken) - len(recorded.ids(LmInputKind.SPEECH)) in (0, 1)
    assert recorded.fed.count(START_INPUT) == recorded.fed.count(TURN_INPUT) == 1
    assert recorded.generation.finished
    # However the text was split, the same is fed and spoken.
    whole = Recorded(BistreamGeneration(V2, prompt), after(sounds, V2)).say([pushed])
    assert whole.fed == recorded.fed


def test_blocks_are_5_text_ids_and_15_sounds() -> None:
    recorded = Recorded(BistreamGeneration(V2), after(200, V2)).say([range(12)])
    kinds = "".join(
        unit.kind.value[0] if unit.kind is not LmInputKind.START else "B" for unit in recorded.fed
    )
    assert kinds.startswith("B" + "t" * 5 + "s" * 15 + "t" * 5 + "s" * 15 + "t" * 2 + "t" + "s")


def test_a_request_for_text_ends_a_block_early_and_is_never_fed() -> None:
    recorded = Recorded(BistreamGeneration(V2), eager(V2)).say([range(10)])
    assert recorded.fed[:11] == [START_INPUT, *(LmInput(LmInputKind.TEXT, id) for id in range(10))]
    assert V2.fill not in recorded.ids(LmInputKind.SPEECH)


def test_a_prompt_of_whole_blocks_is_followed_by_text() -> None:
    prompt = LmPrompt(tuple(range(10)), tuple(range(30)))
    generation = BistreamGeneration(V2, prompt)
    generation.push_text([50])
    assert generation.ask() is None
    generation.push_text([51, 52, 53, 54])
    ask = generation.ask()
    assert ask is not None
    assert [unit.id for unit in ask.inputs[-5:]] == [50, 51, 52, 53, 54]


def test_speech_of_the_prompt_is_heard_even_when_the_text_is_short() -> None:
    recorded = Recorded(BistreamGeneration(V2, LmPrompt((1, 2), tuple(range(40)))), after(9, V2)).say([[7]])
    assert recorded.ids(LmInputKind.SPEECH)[:40] == list(range(40))
    turn = recorded.fed.index(TURN_INPUT)
    assert [unit.kind for unit in recorded.fed[turn + 1 : turn + 41]] == [LmInputKind.SPEECH] * 40


@pytest.mark.parametrize("ids", [V2, V3])
@pytest.mark.parametrize("way", [OneShotGeneration, BistreamGeneration])
def test_an_utterance_has_at_most_20_and_at_least_2_sounds_a_text_id(
    way: type[Generation], ids: SpecialIds
) -> None:
    prompt = LmPrompt((1, END_OF_PROMPT)) if ids.version is CosyVoiceVersion.V3 else LmPrompt()
    longest = Recorded(way(ids, prompt), never_done).say([range(7)])
    assert len(longest.generation.speech_ids) == 7 * 20
    shortest = Recorded(way(ids, prompt), eager(ids)).say([range(7)])
    assert len(shortest.generation.speech_ids) == 7 * 2


@pytest.mark.parametrize("way", [OneShotGeneration, BistreamGeneration])
def test_other_ratios_may_be_asked_for(way: type[Generation]) -> None:
    longest = Recorded(way(V2, LmPrompt(), SpeechLengthRule(0.5, 4)), never_done).say([range(10)])
    assert len(longest.generation.speech_ids) == 40


@pytest.mark.parametrize("ids", [V2, V3])
def test_no_stray_id_can_be_sampled(ids: SpecialIds) -> None:
    asks: list[SamplingRequest] = []

    def remember(ask: SamplingRequest) -> int:
        asks.append(ask)
        return never_done(ask)

    Recorded(BistreamGeneration(ids, LmPrompt((END_OF_PROMPT,))), remember).say([range(7)])
    for ask in asks:
        assert len(set(ids.control) - set(ask.forbidden)) <= 1
    assert {ids.end} in [set(ids.control) - set(ask.forbidden) for ask in asks]
    assert {ids.fill} in [set(ids.control) - set(ask.forbidden) for ask in asks]


@pytest.mark.parametrize("way", [OneShotGeneration, BistreamGeneration])
def test_nothing_to_say_asks_for_nothing(way: type[Generation]) -> None:
    recorded = Recorded(way(V2, LmPrompt((1, 2, 3, 4, 5, 6), (1, 2))), never_done).say([])
    assert recorded.fed == []
    assert recorded.generation.finished


def test_one_shot_waits_for_the_end_of_the_text() -> None:
    generation = OneShotGeneration(V2, LmPrompt((1,), (3,)))
    generation.push_text([2])
    assert generation.ask() is None
    generation.end_text()
    ask = generation.ask()
    assert ask is not None
    assert ask.inputs == (
        START_INPUT,
        LmInput(LmInputKind.TEXT, 1),
        LmInput(LmInputKind.TEXT, 2),
        TURN_INPUT,
        LmInput(LmInputKind.SPEECH, 3),
    )
    assert generation.ask() is ask


def test_text_after_the_end_is_refused() -> None:
    generation = OneShotGeneration(V2)
    generation.end_text()
    with pytest.raises(ValueError, match="after its end"):
        generation.push_text([1])


def test_an_answer_needs_a_question() -> None:
    with pytest.raises(ValueError, match="without having been asked"):
        BistreamGeneration(V2).answer(3)


@pytest.mark.parametrize("way", [OneShotGeneration, CompatOneShotGeneration])
def test_version_3_wants_the_end_of_the_prompt_marked(way: type[Generation]) -> None:
    generation = way(V3)
    generation.push_text([1, 2])
    generation.end_text()
    with pytest.raises(ValueError, match="151646"):
        generation.ask()
    with pytest.raises(ValueError, match="151646"):
        BistreamGeneration(V3, LmPrompt((1,)))


def test_upstream_ends_version_3_before_its_least_length() -> None:
    compat = Recorded(CompatOneShotGeneration(V3, LmPrompt((END_OF_PROMPT,))), eager(V3)).say([range(7)])
    assert compat.generation.speech_ids == []


def test_upstream_is_ended_by_any_control_id() -> None:
    compat = Recorded(CompatOneShotGeneration(V2), lambda ask: V2.fill).say([range(7)])
    assert compat.generation.speech_ids == []


def test_upstream_fails_at_a_stray_id() -> None:
    with pytest.raises(UnexpectedIdError, match="got id 121"):
        Recorded(CompatBistreamGeneration(V2), lambda ask: 121).say([range(7)])
