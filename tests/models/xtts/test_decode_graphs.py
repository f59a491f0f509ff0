"""Captured steps of the language model of XTTS give what plain steps give, among rows that take no part."""

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import torch

from vivavoce.models.xtts.decode_graphs import GptGraphKey, XttsDecodeGraphs
from vivavoce.models.xtts.gpt import XttsGpt, XttsPrompt
from vivavoce.models.xtts.networks import XttsNetworks

CAPACITY = 300
TEXTS = {0: 9, 2: 85}  # text ids by row; the second row outgrows a bucket of 128 positions


@pytest.fixture(scope="module")
def gpt(networks: XttsNetworks) -> XttsGpt:
    return networks.gpt


def column(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)[:, None]


@torch.inference_mode()
def test_captured_steps_give_the_latents_and_scores_of_plain_ones(gpt: XttsGpt) -> None:
    state = gpt.init_state(5, CAPACITY)
    graphs = XttsDecodeGraphs(gpt, state)
    graphs.record()
    recorded = graphs.recorded
    assert {key.rows for key in recorded} == {1, 2, 4, 5}
    assert GptGraphKey(4, 128) in recorded and GptGraphKey(4, 256) in recorded
    assert not state.kv[..., :CAPACITY, :].any()  # recording writes to the scratch position only
    plain = {}
    for row, length in TEXTS.items():
        generator = torch.Generator().manual_seed(length)
        conditioning = torch.randn(32, gpt.config.hidden, generator=generator)
        x, _ = gpt.embed_prompts([XttsPrompt(conditioning, list(range(4, 4 + length)))])
        _, plain[row] = gpt.step(x, gpt.init_state(1, CAPACITY))
        state.kv[row] = plain[row].kv[0]
        state.lengths[row] = plain[row].lengths[0]
    for place in range(12):
        ids = {0: 3 + place, 2: 90 - place}
        latents, logits = graphs.step(
            column(ids[0], 0, ids[2]), column(place, 0, place), torch.tensor([1, 0, 1])
        )
        state.lengths.add_(torch.tensor([1, 0, 1, 0, 0]))
        for row, id in ids.items():
            hidden, plain[row] = gpt.step(gpt.embed_speech(column(id), column(place)), plain[row])
            expected = gpt.latents(hidden[0, 0])
            assert torch.allclose(latents[row], expected, atol=1e-4)
            assert torch.allclose(logits[row], gpt.logits(expected), atol=1e-4)
    assert int(state.lengths[2]) > 128
    assert graphs.recorded == recorded  # no session waited for a capture
    assert not state.kv[[1, 3, 4], ..., :CAPACITY, :].any()


def test_a_row_that_would_outgrow_its_memory_is_refused(gpt: XttsGpt) -> None:
    state = gpt.init_state(2, 10)
    state.lengths[1] = 10
    graphs = XttsDecodeGraphs(gpt, state)
    with pytest.raises(ValueError, match="would hold 11 ids; its memory was made for 10"):
        graphs.step(column(1, 1), column(0, 0), torch.tensor([0, 1]))
    assert graphs.recorded == ()
