"""Captured decoding samples the ids of plain decoding, alone, in a batch, and among padding rows."""

from functools import cache

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from shared.engine.lm_decoding import advance  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, SpeechLmConfig  # noqa: E402
from vivavoce.models.cosyvoice.lm.decode_graphs import DecodeGraphKey, DecodeGraphs  # noqa: E402
from vivavoce.models.cosyvoice.lm.decoding import DecodeTurn  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import (  # noqa: E402
    BistreamGeneration,
    Generation,
    LmPrompt,
    SpecialIds,
    SpeechLengthRule,
)
from vivavoce.models.cosyvoice.lm.sampling import SamplingParameters  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm  # noqa: E402
from vivavoce.models.decoding.kv_memory import SpeechLmState  # noqa: E402
from vivavoce.models.decoding.uniforms import seeded_uniforms  # noqa: E402
from vivavoce.models.devices.planned_captures import CaptureQueue  # noqa: E402

END_OF_PROMPT = 45
TEXT = range(10, 33)
CAPACITY = 600
COLUMNS = 32  # inputs of the first request


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


def decoded(turn: DecodeTurn) -> list[int]:
    return turn.generation.decoded


def graphs(
    lm: SpeechLm, rows: int, columns: int = COLUMNS, ahead: int = 1
) -> tuple[DecodeGraphs, SpeechLmState]:
    state = lm.init_state(rows, CAPACITY)
    return DecodeGraphs(lm, state, columns, ahead), state


def take_decoded_ahead(steps: DecodeGraphs, row: int, generation: Generation) -> int:
    """Answer with the ids decoded ahead; returns their number."""
    count = 0
    while (id := steps.decoded_ahead(row, generation.ask())) is not None:
        generation.answer(id)
        count += 1
    return count


def decode_all(steps: DecodeGraphs, turns: dict[int, DecodeTurn]) -> int:
    """Decode to the end; returns the number of steps."""
    count = 0
    while chosen := steps.choose(turns):
        count += 1
        for row, id in chosen.items():
            turns[row].generation.answer(id)
            take_decoded_ahead(steps, row, turns[row].generation)
    return count


@cache
def decode_plainly(lm: SpeechLm, seed: int, text: range = TEXT) -> list[int]:
    turn, state = turn_of(lm, seed, text), lm.init_state(1, CAPACITY)
    while not turn.generation.finished:
        state = advance(lm, state, [turn])
    return decoded(turn)


def test_captured_steps_sample_the_ids_of_plain_ones_alone_and_in_a_batch(lm: SpeechLm) -> None:
    expected = [decode_plainly(lm, seed) for seed in range(3)]
    assert all(len(ids) > 40 for ids in expected)
    for row, seed in ((0, 0), (5, 1)):  # among padding rows
        steps, state = graphs(lm, 6)
        turn = turn_of(lm, seed)
        decode_all(steps, {row: turn})
        assert decoded(turn) == expected[seed]
        assert [n for n, length in enumerate(state.lengths.tolist()) if length] == [row]
    steps, _ = graphs(lm, 6)
    turns = {row: turn_of(lm, seed) for seed, row in enumerate((4, 0, 2))}
    decode_all(steps, turns)
    assert [decoded(turn) for turn in turns.values()] == expected


@pytest.mark.parametrize("ahead", [2, 7])
def test_ids_decoded_ahead_are_those_of_single_steps(lm: SpeechLm, ahead: int) -> None:
    expected = [decode_plainly(lm, seed) for seed in range(3)]
    steps, _ = graphs(lm, 6, ahead=ahead)
    turns = {row: turn_of(lm, seed) for seed, row in enumerate((4, 0, 2))}
    count = decode_all(steps, turns)
    assert [decoded(turn) for turn in turns.values()] == expected
    # Steps go on until the last session ends, and no id is decoded ahead across a block of text.
    assert count <= 1.5 * max(len(ids) for ids in expected) / ahead + 6


@pytest.mark.parametrize("ahead", [1, 3])
def test_sessions_start_and_end_at_any_step(lm: SpeechLm, ahead: int) -> None:
    texts = [range(10, 12 + 5 * row) for row in range(4)]
    expected = [decode_plainly(lm, row, text) for row, text in enumerate(texts)]
    steps, _ = graphs(lm, 4, ahead=ahead)
    turns = {row: turn_of(lm, row, text) for row, text in enumerate(texts)}
    for step in range(300):
        now = {row: turn for row, turn in turns.items() if step >= 9 * (3 - row)}
        for row, id in steps.choose(now).items():
            turns[row].generation.answer(id)
            if step % 3:  # otherwise the ids decoded ahead are sampled again
                take_decoded_ahead(steps, row, turns[row].generation)
    assert [decoded(turn) for turn in turns.values()] == expected


def test_ids_decoded_ahead_are_kept_without_a_request_and_dropped_for_another_one(lm: SpeechLm) -> None:
    steps, state = graphs(lm, 1, ahead=8)
    turn = turn_of(lm, 0)
    turn.generation.answer(steps.choose({0: turn})[0])
    first = int(state.lengths[0])
    assert steps.decoded_ahead(0, None) is None
    request = turn.generation.ask()
    assert request is not None and len(request.inputs) == 1
    assert steps.decoded_ahead(0, request) is not None
    assert int(state.lengths[0]) == first + 1
    assert steps.decoded_ahead(0, request) is None  # an answered request
    assert int(state.lengths[0]) == first + 1

    other = turn_of(lm, 0)
    steps, _ = graphs(lm, 1, ahead=8)
    other.generation.answer(steps.choose({0: other})[0])
    steps.discard_decoded_ahead(0)
    assert steps.decoded_ahead(0, other.generation.ask()) is None


def test_ids_decoded_ahead_survive_the_steps_of_other_rows(lm: SpeechLm) -> None:
    expected = [decode_plainly(lm, seed) for seed in range(2)]
    steps, _ = graphs(lm, 2, ahead=6)
    one, other = turn_of(lm, 0), turn_of(lm, 1)
    one.generation.answer(steps.choose({0: one})[0])
    for _ in range(12):
        for id in steps.choose({1: other}).values():
            other.generation.answer(id)
    assert take_decoded_ahead(steps, 0, one.generation) > 2
    decode_all(steps, {0: one, 1: other})
    assert [decoded(one), decoded(other)] == expected


def test_nothing_is_decoded_ahead_beyond_the_memory(lm: SpeechLm) -> None:
    turn = turn_of(lm, 0)
    request = turn.generation.ask()
    assert request is not None
    state = lm.init_state(1, len(request.inputs) + 2)
    steps = DecodeGraphs(lm, state, COLUMNS, 6)
    turn.generation.answer(steps.choose({0: turn})[0])
    assert take_decoded_ahead(steps, 0, turn.generation) == 2
    assert decoded(turn) == decode_plainly(lm, 0)[:3]
    with pytest.raises(ValueError, match="its memory was made for"):
        steps.choose({0: turn})


def test_the_common_steps_are_captured_in_advance(lm: SpeechLm) -> None:
    steps, state = graphs(lm, 3)
    CaptureQueue(steps.defer_captures()).capture_all()
    recorded = steps.recorded
    assert set(recorded) == {
        DecodeGraphKey(rows, columns, attended, 16)
        for rows in (1, 3)
        for columns in (1, COLUMNS)
        for attended in (256, 512, 600)
    }
    assert not state.kv[..., :CAPACITY, :].any()  # capturing leaves the memory unchanged
    turns = {row: turn_of(lm, row) for row in range(3)}
    decode_all(steps, turns)
    assert [decoded(turn) for turn in turns.values()] == [decode_plainly(lm, row) for row in range(3)]
    assert steps.recorded == recorded


def test_with_kernels_a_step_is_captured_for_rows_and_inputs_only(
    lm: SpeechLm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeechLm, "has_fused_kernels", True)
    steps = DecodeGraphs(lm, lm.init_state(36, 6144), COLUMNS)
    CaptureQueue(steps.defer_captures()).capture_all()
    assert len(steps.recorded) == 8  # 1, 4, 16 and 36 rows, of one input and of several
    assert {key.attended_positions for key in steps.recorded} == {6144}


@pytest.mark.parametrize("ahead", [1, 7])
def test_a_row_longer_than_a_bucket_of_attention_uses_the_next_bucket(lm: SpeechLm, ahead: int) -> None:
    text = range(10, 22)
    long = [DecodeTurn(long_generation(lm), seeded_uniforms(7)) for _ in range(2)]
    for turn in long:
        turn.generation.push_text(text)
        turn.generation.end_text()
    steps, state = graphs(lm, 1, columns=400, ahead=ahead)
    decode_all(steps, {0: long[0]})
    assert max(key.attended_positions for key in steps.recorded) == 512
    assert 256 < int(state.lengths[0]) <= 512
    plain = lm.init_state(1, CAPACITY)
    while not long[1].generation.finished:
        plain = advance(lm, plain, [long[1]])
    assert decoded(long[0]) == decoded(long[1])


@pytest.mark.parametrize(("ahead", "attended"), [(1, 256), (2, 256), (3, 512)])
def test_ids_decoded_ahead_count_for_the_bucket_of_attention(lm: SpeechLm, ahead: int, attended: int) -> None:
    steps, state = graphs(lm, 1, ahead=ahead)
    turn = turn_of(lm, 0)
    request = turn.generation.ask()
    assert request is not None
    state.lengths[0] = 255 - len(request.inputs)
    steps.choose({0: turn})
    assert [key.attended_positions for key in steps.recorded] == [attended]


def long_generation(lm: SpeechLm) -> Generation:
    ids = SpecialIds(lm.config.version, lm.config.codebook_size, END_OF_PROMPT)
    text_ids = (*(3 + n % 30 for n in range(30)), END_OF_PROMPT, *(3 + n % 30 for n in range(85)))
    return BistreamGeneration(
        ids, LmPrompt(text_ids, tuple(n % 40 for n in range(150))), SpeechLengthRule(2, 6)
    )


def test_a_refused_step_changes_nothing(lm: SpeechLm) -> None:
    for columns, state, sentence in (
        (3, lm.init_state(2, CAPACITY), r"a request has \d+ inputs; a step takes 3"),
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
    turn, expected = turn_of(lm, 2), decode_plainly(lm, 2)
    weight = lm.norm.weight.clone()
    lm.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="no id is left to choose from"):
        steps.choose({0: turn})
    lm.norm.weight.copy_(weight)
    assert state.lengths.tolist() == [0]
    decode_all(steps, {0: turn})
    assert decoded(turn) == expected


def test_without_a_request_nothing_is_captured(lm: SpeechLm) -> None:
    steps, _ = graphs(lm, 2)
    ids = SpecialIds(lm.config.version, lm.config.codebook_size, END_OF_PROMPT)
    assert (
        steps.choose({1: DecodeTurn(BistreamGeneration(ids, LmPrompt((END_OF_PROMPT,))), seeded_uniforms(0))})
        == {}
    )
    assert steps.recorded == ()
