"""The language model: outputs do not depend on the split of the inputs, the other rows, or the slot."""

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from torch import Tensor  # noqa: E402

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from shared.engine.session_states import scatter  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, SpeechLmConfig  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import START_INPUT, TURN_INPUT, LmInput, LmInputKind  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm, embed_inputs  # noqa: E402
from vivavoce.models.decoding.kv_memory import last_valid_hidden  # noqa: E402
from vivavoce.models.networks.state import gather  # noqa: E402


def tiny_lm_config(version: CosyVoiceVersion) -> SpeechLmConfig:
    return SpeechLmConfig(
        version,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=48,
        text_vocab_size=50,
        codebook_size=20,
    )


def rule_tensors(version: CosyVoiceVersion) -> dict[str, Tensor]:
    drawn = rule_weights(llm_shapes(tiny_lm_config(version)), WeightRule())
    return {key: torch.from_numpy(array) for key, array in drawn.items()}


@pytest.fixture(scope="module", params=list(CosyVoiceVersion))
def lm(request: pytest.FixtureRequest) -> SpeechLm:
    return SpeechLm.load(tiny_lm_config(request.param), rule_tensors(request.param))


def noise(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def test_a_prefix_gives_the_outputs_of_the_whole(lm: SpeechLm) -> None:
    x = noise(1, 12, 32)
    whole, _ = lm.step(x, lm.init_state(1, 12))
    prefix, _ = lm.step(x[:, :7], lm.init_state(1, 12))
    torch.testing.assert_close(whole[:, :7], prefix, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 6], [12], [3, 9]])
def test_any_split_gives_the_same(lm: SpeechLm, cuts: list[int]) -> None:
    x = noise(1, 12, 32)
    whole, _ = lm.step(x, lm.init_state(1, 12))
    state = lm.init_state(1, 12)
    parts = []
    for part in x.split(cuts, 1):
        hidden, state = lm.step(part, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=0)
    assert state.lengths.tolist() == [12]


def test_a_row_alone_equals_the_row_among_others(lm: SpeechLm) -> None:
    lengths = [[4, 1, 1, 3], [1, 0, 6, 1], [7, 2, 0, 1]]
    x = [noise(3, 8, 32), noise(3, 2, 32), noise(3, 6, 32), noise(3, 3, 32)]
    together = lm.init_state(3, 20)
    outputs = []
    for step, columns in enumerate(x):
        valid = torch.tensor([row[step] for row in lengths])
        hidden, together = lm.step(columns, together, valid)
        outputs.append(hidden)
    for row, valid_steps in enumerate(lengths):
        alone = lm.init_state(1, 20)
        for step, valid_now in enumerate(valid_steps):
            if valid_now:
                hidden, alone = lm.step(x[step][row : row + 1, :valid_now], alone)
                torch.testing.assert_close(outputs[step][row, :valid_now], hidden[0], atol=1e-5, rtol=0)
        assert together.lengths[row] == alone.lengths[0] == sum(valid_steps)


def test_a_row_without_inputs_keeps_its_memory_even_if_it_is_full(lm: SpeechLm) -> None:
    state = lm.init_state(2, 5)
    _, state = lm.step(noise(2, 5, 32), state, torch.tensor([5, 1]))
    assert not state.kv[1, ..., 1:5, :].any()  # padding leaves no trace
    before = state.kv[0, ..., :5, :].clone()
    _, state = lm.step(noise(2, 3, 32), state, torch.tensor([0, 3]))
    assert torch.equal(state.kv[0, ..., :5, :], before)
    assert state.lengths.tolist() == [5, 4]


def test_a_session_runs_in_any_slot(lm: SpeechLm) -> None:
    x = noise(1, 9, 32)
    whole, _ = lm.step(x, lm.init_state(1, 10))
    pool = lm.init_state(4, 10)
    for start in range(0, 9, 3):
        other = gather(pool, [1])
        scatter(pool, [1], lm.step(noise(1, 2, 32), other)[1])
        rows = gather(pool, [3])
        hidden, rows = lm.step(x[:, start : start + 3], rows)
        scatter(pool, [3], rows)
        torch.testing.assert_close(hidden, whole[:, start : start + 3], atol=1e-5, rtol=0)
    assert pool.lengths.tolist() == [0, 6, 0, 9]


def test_a_row_that_outgrows_its_memory_is_an_error(lm: SpeechLm) -> None:
    state = lm.init_state(1, 4)
    with pytest.raises(ValueError, match="would hold 5 ids; its memory was made for 4"):
        lm.step(noise(1, 5, 32), state)
    assert not state.kv.any()


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="reads Linux's account of the process's memory"
)
def test_unwritten_memory_is_not_resident(lm: SpeechLm) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    state = lm.init_state(4, 100_000)
    _, state = lm.step(noise(4, 2, 32), state)
    assert state.kv.numel() * 4 > 100e6
    assert resident() - before < 20e6
    assert not state.kv[..., 2:-1, :].any()


def test_rows_of_different_lengths_are_embedded_together(lm: SpeechLm) -> None:
    rows = [
        [START_INPUT, LmInput(LmInputKind.TEXT, 7), TURN_INPUT, LmInput(LmInputKind.SPEECH, 3)],
        [LmInput(LmInputKind.SPEECH, 5)],
        [],
    ]
    x, valid = embed_inputs(lm, rows)
    assert x.shape == (3, 4, 32)
    assert valid.tolist() == [4, 1, 0]
    for row, units in enumerate(rows):
        for column, unit in enumerate(units):
            alone, _ = embed_inputs(lm, [[unit]])
            assert torch.equal(x[row, column], alone[0, 0])
    hidden = noise(3, 4, 32)
    assert torch.equal(last_valid_hidden(hidden, valid)[:2], torch.stack((hidden[0, 3], hidden[1, 0])))


def test_version_3_keeps_its_controls_among_the_speech_ids() -> None:
    lm = SpeechLm.load(tiny_lm_config(CosyVoiceVersion.V3), rule_tensors(CosyVoiceVersion.V3))
    x, _ = embed_inputs(
        lm, [[START_INPUT, TURN_INPUT, LmInput(LmInputKind.SPEECH, 20), LmInput(LmInputKind.SPEECH, 22)]]
    )
    assert torch.equal(x[0, 0], x[0, 2])
    assert torch.equal(x[0, 1], x[0, 3])


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_every_tensor_is_used_and_a_missing_one_is_named(version: CosyVoiceVersion) -> None:
    complete = rule_tensors(version)
    SpeechLm.load(tiny_lm_config(version), complete)
    assert complete == {}
    incomplete = rule_tensors(version)
    del incomplete["llm.model.model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(KeyError, match=r"layers\.1\.mlp\.up_proj"):
        SpeechLm.load(tiny_lm_config(version), incomplete)
