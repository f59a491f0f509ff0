"""Tests of a CosyVoice bundle in every precision: by name, end to end, alone and in a batch."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.tiny_cosyvoice import BRIEF
from vivavoce.models.devices.execution import Precision
from vivavoce.tts_engine.backends.base import ProcessPolicy
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 300))


async def samples_of(engine: Engine, seed: int = 0) -> np.ndarray:
    async with engine.stream(seed=seed) as stream:
        stream.push_text("It is me.")
        stream.end_input()
        pcm = b"".join([chunk.pcm async for chunk in stream])
    return np.frombuffer(pcm, "<i2") / 32768


@pytest.mark.parametrize(
    "precision", [each for each in Precision if each is each.of_lm and each is not Precision.INT4]
)
def test_streams_render_in_every_precision(v3_folder: Path, precision: Precision) -> None:
    async def test() -> None:
        backend = CosyVoiceBackend.load(v3_folder, replace(BRIEF, precision=precision))
        async with await Engine.open(backend=backend) as engine:
            alone = [await samples_of(engine, seed) for seed in range(3)]
            together = await asyncio.gather(*(samples_of(engine, seed) for seed in range(3)))
        assert all(samples.any() for samples in (*alone, *together))
        if precision in (Precision.FP32, Precision.INT8):  # in 16 bits, rounding depends on the batch
            for separate, batched in zip(alone, together, strict=True):
                assert separate.shape == batched.shape
                assert np.abs(separate - batched).max() < 1e-4 + 1 / 32768

    run(test())


def test_a_precision_is_chosen_by_name_in_this_process_and_in_a_child(v3_folder: Path) -> None:
    async def render_with(**options: Any) -> np.ndarray:
        async with await Engine.open(str(v3_folder), **options) as engine:
            return await samples_of(engine)

    async def test() -> None:
        in_process = await render_with(precision="int8")
        assert np.array_equal(in_process, await render_with(precision="int8", process=ProcessPolicy()))
        assert not np.array_equal(in_process, await render_with())

    run(test())


@pytest.mark.parametrize(
    ("bundle", "precision", "sentence"),
    [
        ("default", "int8", "precision is 'int8'; only a CosyVoice bundle has others than fp32"),
        ("default", "half", "precision is 'half'; only a CosyVoice bundle has others than fp32"),
        (
            "COSYVOICE",
            "half",
            "precision is 'half'; it must be auto, fp32, fp32-fp16, bf16, fp16, int8, int4, int4-int8",
        ),
    ],
)
def test_an_unsupported_precision_is_refused(
    bundle: str, precision: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "cosyvoice2.yaml").write_bytes(b"")
    with pytest.raises(BadRequest) as error:
        asyncio.run(Engine.open(bundle.replace("COSYVOICE", str(tmp_path)), precision=precision))
    assert str(error.value) == sentence
