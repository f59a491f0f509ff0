"""Streams of a bundle that runs in ONNX Runtime: same speech as torch, alone and together."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.cosyvoice_bundles import export_bundle
from shared.voices.tiny_cosyvoice import BRIEF, pcm, run, speak
from vivavoce.models.devices.execution import Executor, Precision
from vivavoce.models.devices.onnx_providers import installed_devices
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest

TEXTS = ("It is me.", "Thank you for calling. How are you?", "Yes.")


@pytest.fixture(scope="module", params=["v2_folder", "v3_folder"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("executors") / "bundle"
    shutil.copytree(request.getfixturevalue(request.param), folder)
    for precision in ("fp32", "int4", "int4-int8"):
        list(export_bundle(folder, precision))
    return folder


async def render(
    folder: Path, executor: Executor, precision: Precision, device: str = "cpu"
) -> list[np.ndarray]:
    """Each text alone, then all of them at once."""
    policy = replace(BRIEF, executor=executor, precision=precision, device=device)
    async with await Engine.open(backend=CosyVoiceBackend.load(folder, policy)) as engine:
        alone = [await speak(engine, [text], seed=seed) for seed, text in enumerate(TEXTS)]
        together = await asyncio.gather(
            *(speak(engine, [text], seed=seed) for seed, text in enumerate(TEXTS))
        )
    return [np.frombuffer(pcm(chunks), "<i2") / 32768 for chunks in [*alone, *together]]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.any() and one.shape == other.shape
        assert np.abs(one - other).max() < tolerance + 1 / 32768


@pytest.mark.parametrize("device", installed_devices())
def test_onnxruntime_speaks_as_torch_does(exported: Path, device: str) -> None:
    async def test() -> None:
        with_torch = await render(exported, Executor.TORCH, Precision.FP32)
        with_onnx = await render(exported, Executor.ONNXRUNTIME, Precision.FP32, device)
        # As the vectors' samples; other providers round otherwise than the networks of the vectors.
        assert_close(with_onnx, with_torch, 1e-3 if device == "cpu" else 0.05)

    run(test())


@pytest.mark.parametrize("precision", [Precision.INT4, Precision.INT4_INT8])
def test_four_bits_speak_the_same_alone_and_in_a_batch(exported: Path, precision: Precision) -> None:
    async def test() -> None:
        spoken = await render(exported, Executor.AUTO, precision)
        assert_close(spoken[: len(TEXTS)], spoken[len(TEXTS) :], 1e-4)

    run(test())


@pytest.mark.parametrize(
    ("bundle", "sentence"),
    [
        ("default", "executor is 'openvino'; only a CosyVoice bundle has others than auto"),
        ("COSYVOICE", "executor is 'openvino'; it must be auto, torch, onnxruntime"),
    ],
)
def test_an_unknown_executor_is_refused(bundle: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "cosyvoice2.yaml").write_bytes(b"")
    with pytest.raises(BadRequest, match=sentence):
        asyncio.run(Engine.open(bundle.replace("COSYVOICE", str(tmp_path)), executor="openvino"))
