"""Batched decoding: a session samples the same ids alone and among others, for any split of its text."""

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from shared.engine.lm_decoding import advance  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, SpeechLmConfig  # noqa: E402
from vivavoce.models.cosyvoice.lm.decoding import DecodeTurn  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import (  # noqa: E402
    BistreamGeneration,
    Generation,
    LmPrompt,
    OneShotGeneration,
    SpecialIds,
)
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm  # noqa: E402
from vivavoce.models.decoding.uniforms import seeded_uniforms  # noqa: E402

CONFIG = SpeechLmConfig(
    CosyVoiceVersion.V2,
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    intermediate=48,
    text_vocab_size=50,
    codebook_size=40,
)
IDS = SpecialIds(CosyVoiceVersion.V2, 40)
PROMPT = LmPrompt((3, 4, 5, 6, 7, 8), tuple(range(18)))


@pytest.fixture(scope="module")
def lm() -> SpeechLm:
    rule = WeightRule("", (("llm_decoder.weight", 6.0),))
    drawn = rule_weights(llm_shapes(CONFIG), rule)
    return SpeechLm.load(CONFIG, {key: torch.from_numpy(array) for key, array in drawn.items()})


def generations() -> list[Generation]:
    return [OneShotGeneration(IDS, PROMPT), BistreamGeneration(IDS, PROMPT), BistreamGeneration(IDS)]


def decode_alone(lm: SpeechLm, generation: Generation, text: range, seed: int) -> list[int]:
    state = lm.init_state(1, 500)
    turn = DecodeTurn(generation, seeded_uniforms(seed))
    generation.push_text(text)
    generation.end_text()
    for _ in range(300):
        state = advance(lm, state, [turn])
    return generation.decoded


def test_sessions_sample_the_same_ids_in_a_batch(lm: SpeechLm) -> None:
    text = range(10, 21)
    expected = [decode_alone(lm, generation, text, seed) for seed, generation in enumerate(generations())]
    turns: list[DecodeTurn | None] = [
        None,
        *(DecodeTurn(g, seeded_uniforms(n)) for n, g in enumerate(generations())),
    ]
    state = lm.init_state(len(turns), 500)
    for step in range(400):
        for row, turn in enumerate(turns):
            if turn and step == 7 * row:  # sessions start one after another
                turn.generation.push_text(text)
                turn.generation.end_text()
        state = advance(lm, state, turns)
    decoded = [turn.generation.decoded for turn in turns if turn]
    assert decoded == expected
    assert all(turn.generation.finished for turn in turns if turn)
    assert state.lengths[0] == 0


def test_a_row_is_reused_by_the_next_session(lm: SpeechLm) -> None:
    expected = decode_alone(lm, BistreamGeneration(IDS, PROMPT), range(10, 21), seed=1)
    state = lm.init_state(2, 500)
    for first_text in (range(20, 40), range(10, 21)):
        turn = DecodeTurn(BistreamGeneration(IDS, PROMPT), seeded_uniforms(1))
        turn.generation.push_text(first_text)
        turn.generation.end_text()
        while not turn.generation.finished:
            state = advance(lm, state, [None, turn])
        with torch.inference_mode():
            state.lengths[1] = 0
    assert turn.generation.decoded == expected
    assert state.lengths.tolist() == [0, 0]


def test_any_split_of_the_text_gives_the_ids_of_the_whole_text(lm: SpeechLm) -> None:
    whole = decode_alone(lm, BistreamGeneration(IDS, PROMPT), range(10, 31), seed=5)
    generation = BistreamGeneration(IDS, PROMPT)
    turn = DecodeTurn(generation, seeded_uniforms(5))
    state = lm.init_state(1, 500)
    for id in range(10, 31):
        generation.push_text([id])
        for _ in range(id % 4):
            state = advance(lm, state, [turn])
    generation.end_text()
    for _ in range(300):
        state = advance(lm, state, [turn])
    assert generation.decoded == whole


def test_without_a_request_the_state_is_unchanged(lm: SpeechLm) -> None:
    state = lm.init_state(2, 10)
    assert advance(lm, state, [None, DecodeTurn(BistreamGeneration(IDS), seeded_uniforms(0))]) is state
