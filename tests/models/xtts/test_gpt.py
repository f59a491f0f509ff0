"""The language model of XTTS: rows of a batch do not change each other, and its limits are errors."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import torch

from vivavoce.models.networks.state import gather
from vivavoce.models.xtts.gpt import XttsGpt, XttsPrompt
from vivavoce.models.xtts.networks import XttsNetworks
from vivavoce.models.xtts.sampling import XttsSampling, XttsSamplingInputs, sample_speech_ids

CAPACITY = 120


@pytest.fixture(scope="module")
def gpt(networks: XttsNetworks) -> XttsGpt:
    return networks.gpt


def prompt(gpt: XttsGpt, length: int) -> XttsPrompt:
    generator = torch.Generator().manual_seed(length)
    return XttsPrompt(torch.randn(32, gpt.config.hidden, generator=generator), list(range(4, 4 + length)))


@torch.inference_mode()
def decode(gpt: XttsGpt, prompts: list[XttsPrompt], watched: int) -> tuple[list[int], torch.Tensor]:
    """Eight ids of the watched row, in a batch, and their latents."""
    x, valid = gpt.embed_prompts(prompts)
    hidden, state = gpt.step(x, gpt.init_state(len(prompts), CAPACITY), valid)
    hidden = hidden[torch.arange(len(prompts)), valid - 1]
    uniforms = [np.random.default_rng(len(each.text_ids)) for each in prompts]
    seen: list[list[int]] = [[1, gpt.config.start_speech_id] for _ in prompts]
    latents = []
    for position in range(8):
        made = gpt.latents(hidden)
        latents.append(made[watched])
        inputs = [
            XttsSamplingInputs(ids, source, XttsSampling(temperature=0.5 + row / 4))
            for row, (ids, source) in enumerate(zip(seen, uniforms, strict=True))
        ]
        drawn = sample_speech_ids(gpt.logits(made).numpy(), inputs)
        for ids, new in zip(seen, drawn, strict=True):
            ids.append(new)
        x = gpt.embed_speech(torch.tensor(drawn)[:, None], torch.tensor([[position]]))
        hidden, state = gpt.step(x, state)
        hidden = hidden[:, 0]
    return seen[watched][2:], torch.stack(latents)


def test_a_row_is_the_same_alone_and_among_seven(gpt: XttsGpt) -> None:
    ids, latents = decode(gpt, [prompt(gpt, 9)], 0)
    batch_ids, batch_latents = decode(gpt, [prompt(gpt, length) for length in (9, 30, 1, 12, 5, 9, 20)], 0)
    assert batch_ids == ids
    assert torch.allclose(batch_latents, latents, atol=1e-4)


@torch.inference_mode()
def test_a_prompt_fed_in_parts_gives_the_same_memory(gpt: XttsGpt) -> None:
    x, _ = gpt.embed_prompts([prompt(gpt, 12)])
    hidden, _ = gpt.step(x, gpt.init_state(1, CAPACITY))
    state = gpt.init_state(1, CAPACITY)
    for part in x.split(7, 1):
        last, state = gpt.step(part, state)
    assert torch.allclose(last[:, -1], hidden[:, -1], atol=1e-5)
    assert gather(state, [0, 0]).lengths.tolist() == [x.shape[1]] * 2


def test_texts_and_memories_have_limits(gpt: XttsGpt) -> None:
    with pytest.raises(ValueError, match="may have 201"):
        gpt.embed_prompts([prompt(gpt, 202)])
    with pytest.raises(ValueError, match="memory was made for 10"):
        gpt.step(torch.zeros(1, 11, gpt.config.hidden), gpt.init_state(1, 10))


def test_speech_id_1_and_the_start_id_are_penalized_from_the_first_draw() -> None:
    logits = np.array([[0.0, 3.0, 2.0, 0.0]], np.float32)
    inputs = XttsSamplingInputs([1, 3], np.random.default_rng(0), XttsSampling(top_k=1))
    assert sample_speech_ids(logits, [inputs]) == [2]


def test_logits_that_are_not_numbers_are_refused() -> None:
    inputs = XttsSamplingInputs([], np.random.default_rng(0))
    with pytest.raises(ValueError, match="not numbers"):
        sample_speech_ids(np.full((1, 4), np.nan, np.float32), [inputs])
