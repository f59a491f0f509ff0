"""Requests of a generation: every id is fed once, all text is used, and the length is bounded."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.generation import (
    END_OF_PROMPT_ID,
    START_INPUT,
    TURN_INPUT,
    BistreamGeneration,
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    OneShotGeneration,
    SamplingRequest,
    SpecialIds,
    SpeechLengthRule,
)

V2 = SpecialIds(CosyVoiceVersion.V2, 120)
V3 = SpecialIds(CosyVoiceVersion.V3, 120)
Model = Callable[[SamplingRequest], int]


class Utterance:
    """Drives a generation with a model and records the inputs of the model."""

    def __init__(self, generation: Generation, model: Model) -> None:
        self.generation, self.model = generation, model
        self.fed: list[LmInput] = []

    def generate(self, parts: Sequence[Sequence[int]]) -> "Utterance":
        for part in parts:
            self.generation.push_text(part)
            self.answer_all()
        self.generation.end_text()
        self.answer_all()
        return self

    def answer_all(self) -> None:
        while (request := self.generation.ask()) is not None:
            self.fed += request.inputs
            sampled = self.model(request)
            assert sampled not in request.forbidden
            self.generation.answer(sampled)

    def ids(self, kind: LmInputKind) -> list[int]:
        return [lm_input.id for lm_input in self.fed if lm_input.kind is kind]


def endless(request: SamplingRequest) -> int:
    """Answers speech ids only."""
    return len(request.inputs) % 7


def eager(ids: SpecialIds) -> Model:
    """Answers the end or the fill id as soon as it is allowed."""

    def answer(request: SamplingRequest) -> int:
        for id in (ids.end, ids.fill):
            if id not in request.forbidden:
                return id
        return 1

    return answer


def end_after(speech_ids: int, ids: SpecialIds) -> Model:
    """Answers the end after a number of speech ids, and never the fill id."""
    answered = 0

    def answer(request: SamplingRequest) -> int:
        nonlocal answered
        if answered >= speech_ids and ids.end not in request.forbidden:
            return ids.end
        answered += 1
        return answered % 100

    return answer


def split(ids: Sequence[int], cuts: Sequence[int]) -> list[Sequence[int]]:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [ids[start:stop] for start, stop in itertools.pairwise(edges)]


@given(
    st.integers(1, 60),
    st.lists(st.integers(0, 60), max_size=6),
    st.integers(0, 30),
    st.integers(0, 70),
    st.integers(0, 300),
)
def test_every_id_is_fed_once_and_in_order_for_any_split_of_the_text(
    text: int, cuts: list[int], prompt_text: int, prompt_speech: int, speech_ids: int
) -> None:
    prompt = LmPrompt(tuple(range(1000, 1000 + prompt_text)), tuple(range(prompt_speech)))
    pushed = range(2000, 2000 + text)
    recorded = Utterance(BistreamGeneration(V2, prompt), end_after(speech_ids, V2)).generate(
        split(pushed, cuts)
    )
    assert recorded.ids(LmInputKind.TEXT) == [*prompt.text_ids, *pushed]
    spoken = recorded.generation.speech_ids
    assert (
        recorded.ids(LmInputKind.SPEECH)
        == [*prompt.speech_ids, *spoken][: len(recorded.ids(LmInputKind.SPEECH))]
    )
    # The last sound is not fed if the length bound ends the utterance.
    assert len(prompt.speech_ids) + len(spoken) - len(recorded.ids(LmInputKind.SPEECH)) in (0, 1)
    assert recorded.fed.count(START_INPUT) == recorded.fed.count(TURN_INPUT) == 1
    assert recorded.generation.finished
    whole = Utterance(BistreamGeneration(V2, prompt), end_after(speech_ids, V2)).generate([pushed])
    assert whole.fed == recorded.fed


def test_blocks_are_5_text_ids_and_15_speech_ids() -> None:
    recorded = Utterance(BistreamGeneration(V2), end_after(200, V2)).generate([range(12)])
    kinds = "".join(
        lm_input.kind.value[0] if lm_input.kind is not LmInputKind.START else "B" for lm_input in recorded.fed
    )
    assert kinds.startswith("B" + "t" * 5 + "s" * 15 + "t" * 5 + "s" * 15 + "t" * 2 + "t" + "s")


def test_a_fill_id_ends_a_block_early_and_is_never_fed() -> None:
    recorded = Utterance(BistreamGeneration(V2), eager(V2)).generate([range(10)])
    assert recorded.fed[:11] == [START_INPUT, *(LmInput(LmInputKind.TEXT, id) for id in range(10))]
    assert V2.fill not in recorded.ids(LmInputKind.SPEECH)


def test_a_prompt_of_whole_blocks_is_followed_by_text() -> None:
    prompt = LmPrompt(tuple(range(10)), tuple(range(30)))
    generation = BistreamGeneration(V2, prompt)
    generation.push_text([50])
    assert generation.ask() is None
    generation.push_text([51, 52, 53, 54])
    request = generation.ask()
    assert request is not None
    assert [lm_input.id for lm_input in request.inputs[-5:]] == [50, 51, 52, 53, 54]


def test_speech_of_the_prompt_is_fed_even_if_the_text_is_short() -> None:
    recorded = Utterance(
        BistreamGeneration(V2, LmPrompt((1, 2), tuple(range(40)))), end_after(9, V2)
    ).generate([[7]])
    assert recorded.ids(LmInputKind.SPEECH)[:40] == list(range(40))
    turn = recorded.fed.index(TURN_INPUT)
    assert [lm_input.kind for lm_input in recorded.fed[turn + 1 : turn + 41]] == [LmInputKind.SPEECH] * 40


@pytest.mark.parametrize("ids", [V2, V3])
@pytest.mark.parametrize("kind", [OneShotGeneration, BistreamGeneration])
def test_an_utterance_has_2_to_20_speech_ids_for_each_text_id(
    kind: type[Generation], ids: SpecialIds
) -> None:
    prompt = LmPrompt((1, END_OF_PROMPT_ID)) if ids.version is CosyVoiceVersion.V3 else LmPrompt()
    longest = Utterance(kind(ids, prompt), endless).generate([range(7)])
    assert len(longest.generation.speech_ids) == 7 * 20
    shortest = Utterance(kind(ids, prompt), eager(ids)).generate([range(7)])
    assert len(shortest.generation.speech_ids) == 7 * 2


@pytest.mark.parametrize("kind", [OneShotGeneration, BistreamGeneration])
def test_other_ratios_bound_the_length(kind: type[Generation]) -> None:
    longest = Utterance(kind(V2, LmPrompt(), SpeechLengthRule(0.5, 4)), endless).generate([range(10)])
    assert len(longest.generation.speech_ids) == 40


@pytest.mark.parametrize("ids", [V2, V3])
def test_at_most_one_control_id_is_allowed_at_a_time(ids: SpecialIds) -> None:
    requests: list[SamplingRequest] = []

    def remember(request: SamplingRequest) -> int:
        requests.append(request)
        return endless(request)

    Utterance(BistreamGeneration(ids, LmPrompt((END_OF_PROMPT_ID,))), remember).generate([range(7)])
    for request in requests:
        assert len(set(ids.control) - set(request.forbidden)) <= 1
    assert {ids.end} in [set(ids.control) - set(request.forbidden) for request in requests]
    assert {ids.fill} in [set(ids.control) - set(request.forbidden) for request in requests]


@pytest.mark.parametrize("kind", [OneShotGeneration, BistreamGeneration])
def test_without_text_there_is_no_request(kind: type[Generation]) -> None:
    recorded = Utterance(kind(V2, LmPrompt((1, 2, 3, 4, 5, 6), (1, 2))), endless).generate([])
    assert recorded.fed == []
    assert recorded.generation.finished


def test_one_shot_waits_for_the_end_of_the_text() -> None:
    generation = OneShotGeneration(V2, LmPrompt((1,), (3,)))
    generation.push_text([2])
    assert generation.ask() is None
    generation.end_text()
    request = generation.ask()
    assert request is not None
    assert request.inputs == (
        START_INPUT,
        LmInput(LmInputKind.TEXT, 1),
        LmInput(LmInputKind.TEXT, 2),
        TURN_INPUT,
        LmInput(LmInputKind.SPEECH, 3),
    )
    assert generation.ask() is request


def test_text_after_the_end_is_refused() -> None:
    generation = OneShotGeneration(V2)
    generation.end_text()
    with pytest.raises(ValueError, match="after its end"):
        generation.push_text([1])


def test_an_answer_needs_a_pending_request() -> None:
    with pytest.raises(ValueError, match="no request is pending"):
        BistreamGeneration(V2).answer(3)


@pytest.mark.parametrize("kind", [OneShotGeneration])
def test_version_3_needs_the_end_of_prompt_token(kind: type[Generation]) -> None:
    generation = kind(V3)
    generation.push_text([1, 2])
    generation.end_text()
    with pytest.raises(ValueError, match="151646"):
        generation.ask()
    with pytest.raises(ValueError, match="151646"):
        BistreamGeneration(V3, LmPrompt((1,)))
