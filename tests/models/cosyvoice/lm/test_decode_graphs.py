"""Recorded decoding says what plain decoding says, alone, in company and among rows that only pad."""

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, SpeechLmConfig  # noqa: E402
from vivavoce.models.cosyvoice.lm.decode_graphs import DecodeGraphKey, DecodeGraphs  # noqa: E402
from vivavoce.models.cosyvoice.lm.decoding import DecodeTurn, advance  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import (
    BistreamGeneration,
    CompatBistreamGeneration,
    Generation,
    LmPrompt,
    SpecialIds,
    SpeechLengthRule,
)
from vivavoce.models.cosyvoice.lm.sampling import PeekableUniforms, SamplingParameters, seeded_uniforms  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm, SpeechLmState  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

END_OF_PROMPT = 45
TEXT = range(10, 33)
CAPACITY = 600
COLUMNS = 32  # the first ask's


@pytest.fixture(scope="module", params=CosyVoiceVersion, ids=lambda version: version.name)
def lm(request: pytest.FixtureRequest) -> SpeechLm:
    config = SpeechLmConfig(
        request.param,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=48,
        text_vocab_size=50,
        codebook_size=40,
    )
    drawn = rule_weights(llm_shapes(config), WeightRule("", (("llm_decoder.weight", 6.0),)))
    return SpeechLm.load(config, {key: torch.from_numpy(array) for key, array in drawn.items()})


def turn_of(lm: SpeechLm, seed: int, text: range = TEXT) -> DecodeTurn:
    ids = SpecialIds(lm.config.version, lm.config.codebook_size, END_OF_PROMPT)
    generation = BistreamGeneration(ids, LmPrompt((3, 4, END_OF_PROMPT), (1, 2, 3)), SpeechLengthRule(2, 6))
    generation.push_text(text)
    generation.end_text()
    return DecodeTurn(generation, seeded_uniforms(seed), SamplingParameters(top_k=5 + seed))


def said(turn: DecodeTurn) -> list[int]:
    return turn.generation.decoded


def graphs(
    lm: SpeechLm, rows: int, columns: int = COLUMNS, ahead: int = 1
) -> tuple[DecodeGraphs, SpeechLmState]:
    state = lm.init_state(rows, CAPACITY)
    return DecodeGraphs(lm, state, columns, ahead), state


def take_foreseen(steps: DecodeGraphs, row: int, generation: Generation) -> int:
    """Answer what was foreseen; how many ids that was."""
    count = 0
    while (id := steps.decoded_ahead(row, generation.ask())) is not None:
        generation.answer(id)
        count += 1
    return count


def speak(steps: DecodeGraphs, turns: dict[int, DecodeTurn]) -> int:
    """To the end; in how many steps."""
    count = 0
    while chosen := steps.choose(turns):
        count += 1
        for row, id in chosen.items():
            turns[row].generation.answer(id)
            take_foreseen(steps, row, turns[row].generation)
    return count


def plainly(lm: SpeechLm, seed: int, text: range = TEXT) -> list[int]:
    turn, state = turn_of(lm, seed, text), lm.init_state(1, CAPACITY)
    while not turn.generation.finished:
        state = advance(lm, state, [turn])
    return said(turn)


def test_recorded_steps_say_what_plain_ones_say_alone_and_in_company(lm: SpeechLm) -> None:
    expected = [plainly(lm, seed) for seed in range(3)]
    assert all(len(ids) > 40 for ids in expected)
    for row, seed in ((0, 0), (5, 1)):  # among rows that only pad
        steps, state = graphs(lm, 6)
        turn = turn_of(lm, seed)
        speak(steps, {row: turn})
        assert said(turn) == expected[seed]
        assert [n for n, length in enumerate(state.lengths.tolist()) if length] == [row]
    steps, _ = graphs(lm, 6)
    turns = {row: turn_of(lm, seed) for seed, row in enumerate((4, 0, 2))}
    speak(steps, turns)
    assert [said(turn) for turn in turns.values()] == expected


@pytest.mark.parametrize("ahead", [2, 4, 7])
def test_ids_that_a_step_goes_on_to_are_those_that_would_have_been_asked_for(
    lm: SpeechLm, ahead: int
) -> None:
    expected = [plainly(lm, seed) for seed in range(3)]
    steps, _ = graphs(lm, 6, ahead=ahead)
    turns = {row: turn_of(lm, seed) for seed, row in enumerate((4, 0, 2))}
    count = speak(steps, turns)
    assert [said(turn) for turn in turns.values()] == expected
    # All are asked until the last has ended, and what follows a block of text is not foreseen.
    assert count <= 1.5 * max(len(ids) for ids in expected) / ahead + 6


@pytest.mark.parametrize("ahead", [1, 3])
def test_sessions_may_come_and_go_at_any_step(lm: SpeechLm, ahead: int) -> None:
    texts = [range(10, 12 + 5 * row) for row in range(4)]
    expected = [plainly(lm, row, text) for row, text in enumerate(texts)]
    steps, _ = graphs(lm, 4, ahead=ahead)
    turns = {row: turn_of(lm, row, text) for row, text in enumerate(texts)}
    for step in range(300):
        now = {row: turn for row, turn in turns.items() if step >= 9 * (3 - row)}
        for row, id in steps.choose(now).items():
            turns[row].generation.answer(id)
            if step % 3:  # else what was foreseen is asked for again
                take_foreseen(steps, row, turns[row].generation)
    assert [said(turn) for turn in turns.values()] == expected


def test_what_was_foreseen_is_kept_while_nothing_is_asked_and_dropped_for_another_ask(lm: SpeechLm) -> None:
    steps, state = graphs(lm, 1, ahead=8)
    turn = turn_of(lm, 0)
    turn.generation.answer(steps.choose({0: turn})[0])
    first = int(state.lengths[0])
    assert steps.decoded_ahead(0, None) is None
    ask = turn.generation.ask()
    assert ask is not None and len(ask.inputs) == 1
    assert steps.decoded_ahead(0, ask) is not None
    assert int(state.lengths[0]) == first + 1
    assert steps.decoded_ahead(0, ask) is None  # which was answered
    assert int(state.lengths[0]) == first + 1

    other = turn_of(lm, 0)
    steps, _ = graphs(lm, 1, ahead=8)
    other.generation.answer(steps.choose({0: other})[0])
    steps.discard_decoded_ahead(0)
    assert steps.decoded_ahead(0, other.generation.ask()) is None


def test_what_was_foreseen_outlives_the_steps_of_others(lm: SpeechLm) -> None:
    expected = [plainly(lm, seed) for seed in range(2)]
    steps, _ = graphs(lm, 2, ahead=6)
    one, other = turn_of(lm, 0), turn_of(lm, 1)
    one.generation.answer(steps.choose({0: one})[0])
    for _ in range(12):
        for id in steps.choose({1: other}).values():
            other.generation.answer(id)
    assert take_foreseen(steps, 0, one.generation) > 2
    speak(steps, {0: one, 1: other})
    assert [said(one), said(other)] == expected


def test_nothing_is_foreseen_behind_the_end_of_the_memory(lm: SpeechLm) -> None:
    turn = turn_of(lm, 0)
    ask = turn.generation.ask()
    assert ask is not None
    state = lm.init_state(1, len(ask.inputs) + 2)
    steps = DecodeGraphs(lm, state, COLUMNS, 6)
    turn.generation.answer(steps.choose({0: turn})[0])
    assert take_foreseen(steps, 0, turn.generation) == 2
    assert said(turn) == plainly(lm, 0)[:3]
    with pytest.raises(ValueError, match="its memory was made for"):
        steps.choose({0: turn})


def test_few_steps_are_recorded_and_all_usual_ones_beforehand(lm: SpeechLm) -> None:
    steps, state = graphs(lm, 3)
    steps.record()
    recorded = steps.recorded
    assert set(recorded) == {
        DecodeGraphKey(rows, columns, attended, 16)
        for rows in (1, 2, 3)
        for columns in (1, COLUMNS)
        for attended in (256, 512, 600)
    }
    assert not state.kv[..., :CAPACITY, :].any()  # which has harmed nobody
    turns = {row: turn_of(lm, row) for row in range(3)}
    speak(steps, turns)
    assert [said(turn) for turn in turns.values()] == [plainly(lm, row) for row in range(3)]
    assert steps.recorded == recorded


@pytest.mark.parametrize("ahead", [1, 4, 7])
def test_what_is_behind_the_bucket_of_attention_is_attended_to_as_well(lm: SpeechLm, ahead: int) -> None:
    text = range(10, 22)
    long = [DecodeTurn(_long(lm), seeded_uniforms(7)) for _ in range(2)]
    for turn in long:
        turn.generation.push_text(text)
        turn.generation.end_text()
    steps, state = graphs(lm, 1, columns=400, ahead=ahead)
    speak(steps, {0: long[0]})
    assert max(extent.attended_positions for extent in steps.recorded) == 512
    assert 256 < int(state.lengths[0]) <= 512
    plain = lm.init_state(1, CAPACITY)
    while not long[1].generation.finished:
        plain = advance(lm, plain, [long[1]])
    assert said(long[0]) == said(long[1])


@pytest.mark.parametrize(("ahead", "attended"), [(1, 256), (2, 256), (3, 512)])
def test_ids_that_a_step_goes_on_to_are_attended_to_as_well(lm: SpeechLm, ahead: int, attended: int) -> None:
    steps, state = graphs(lm, 1, ahead=ahead)
    turn = turn_of(lm, 0)
    ask = turn.generation.ask()
    assert ask is not None
    state.lengths[0] = 255 - len(ask.inputs)
    steps.choose({0: turn})
    assert [extent.attended_positions for extent in steps.recorded] == [attended]


def _long(lm: SpeechLm) -> Generation:
    ids = SpecialIds(lm.config.version, lm.config.codebook_size, END_OF_PROMPT)
    text_ids = (*(3 + n % 30 for n in range(30)), END_OF_PROMPT, *(3 + n % 30 for n in range(85)))
    return BistreamGeneration(
        ids, LmPrompt(text_ids, tuple(n % 40 for n in range(150))), SpeechLengthRule(2, 6)
    )


def test_a_forced_answer_draws_nothing_and_the_others_go_on(lm: SpeechLm) -> None:
    class Untouched:
        def random(self) -> float:
            raise AssertionError("a forced answer wants no random number")

    ids = SpecialIds(lm.config.version, lm.config.codebook_size, END_OF_PROMPT)
    forced = CompatBistreamGeneration(ids, LmPrompt((END_OF_PROMPT,), tuple(range(14))))
    forced.push_text(range(5))
    forced.decoded.append(9)
    ask = forced.ask()
    assert ask is not None and ask.forced == ids.fill
    other, expected = turn_of(lm, 1), turn_of(lm, 1)
    chosen = graphs(lm, 2)[0].choose({0: DecodeTurn(forced, PeekableUniforms(Untouched())), 1: other})
    assert chosen[0] == ids.fill
    assert chosen[1] == graphs(lm, 1)[0].choose({0: expected})[0]


def test_a_step_that_cannot_be_changes_nothing(lm: SpeechLm) -> None:
    for columns, state, sentence in (
        (3, lm.init_state(2, CAPACITY), r"an ask has \d+ inputs; a step takes 3"),
        (COLUMNS, lm.init_state(2, 5), r"a row would hold \d+ ids; its memory was made for 5"),
    ):
        turn = turn_of(lm, 0)
        steps = DecodeGraphs(lm, state, columns)
        with pytest.raises(ValueError, match=sentence):
            steps.choose({1: turn})
        assert state.lengths.tolist() == [0, 0]
        assert not state.kv.any()
        assert turn.draws.random() == seeded_uniforms(0).random()


@pytest.mark.parametrize("ahead", [1, 4])
def test_a_row_without_an_id_to_choose_can_be_tried_again(lm: SpeechLm, ahead: int) -> None:
    steps, state = graphs(lm, 1, ahead=ahead)
    turn, expected = turn_of(lm, 2), plainly(lm, 2)
    weight = lm.norm.weight.clone()
    lm.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="no id is left to choose from"):
        steps.choose({0: turn})
    lm.norm.weight.copy_(weight)
    assert state.lengths.tolist() == [0]
    speak(steps, {0: turn})
    assert said(turn) == expected


def test_nobody_asking_is_no_step(lm: SpeechLm) -> None:
    steps, _ = graphs(lm, 2)
    ids = SpecialIds(lm.config.version, lm.config.codebook_size, END_OF_PROMPT)
    assert (
        steps.choose({1: DecodeTurn(BistreamGeneration(ids, LmPrompt((END_OF_PROMPT,))), seeded_uniforms(0))})
        == {}
    )
    assert steps.recorded == ()
