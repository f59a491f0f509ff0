"""Rows of the language model of XTTS: what a prefill in parts gives, and what is copied."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import numpy as np
import torch

from vivavoce.models.devices.execution import Precision
from vivavoce.models.xtts.checkpoint.bundle import open_bundle
from vivavoce.models.xtts.gpt import XttsGpt, XttsPrompt
from vivavoce.models.xtts.networks import load_networks
from vivavoce.models.xtts.voice import XttsVoice
from vivavoce.tts_engine.xtts.gpt_runner import DecodedColumn, XttsGptInput, XttsGptRunner, XttsGptTurn

TEXT_IDS = list(range(8, 40))


@pytest.fixture(scope="module", params=[Precision.FP32, Precision.INT8])
def gpt_and_voice(xtts_folder: Path, request: pytest.FixtureRequest) -> tuple[XttsGpt, XttsVoice]:
    bundle = open_bundle(xtts_folder)
    return load_networks(bundle, precision=request.param).gpt, next(iter(bundle.voices().values()))


def prefilled(runner: XttsGptRunner, row: int, voice: XttsVoice) -> tuple[DecodedColumn, int]:
    """The first column of a sentence, and the parts it took."""
    sentence, parts = XttsGptInput(voice, None, TEXT_IDS), 1
    while (column := runner.prefill_part(row, sentence)) is None:
        parts += 1
    assert sentence.is_prefilled
    return column, parts


@torch.inference_mode()
def test_the_last_part_of_a_text_gives_the_column_of_the_first_id(
    gpt_and_voice: tuple[XttsGpt, XttsVoice],
) -> None:
    gpt, voice = gpt_and_voice
    x, _ = gpt.embed_prompts([XttsPrompt(voice.latents, TEXT_IDS)])
    hidden, state = gpt.step(x, gpt.init_state(1, 200))
    expected = gpt.latents(hidden[:, -1])
    runner = XttsGptRunner(gpt, rows=2, max_voices=1, prefill_chunk=16)
    first, parts = prefilled(runner, 1, voice)
    assert parts == 1 + 3  # the voice, then 35 columns
    again, parts = prefilled(runner, 1, voice)
    assert parts == 3  # the voice is kept
    assert np.array_equal(again.logits, first.logits)
    assert torch.allclose(first.latent, expected[0], atol=1e-5)
    assert np.allclose(first.logits, gpt.logits(expected)[0].numpy(), atol=1e-5)
    hidden, _ = gpt.step(gpt.embed_speech(torch.tensor([[5]]), torch.tensor([[0]])), state)
    decoded = runner.decode({1: XttsGptTurn(last_id=5, decoded=1)})
    assert torch.allclose(decoded[1].latent, gpt.latents(hidden[0, 0]), atol=1e-5)
    assert runner.rows.state.lengths.tolist() == [0, x.shape[1] + 1]
