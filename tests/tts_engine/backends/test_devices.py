"""Voices that ONNX Runtime computes speak on every device that the installed package has."""

import asyncio
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.models.devices.onnx_providers import PROVIDERS, OnnxDevice, find_onnx_device, installed_devices
from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from vivavoce.models.hibari.phonemizer import PhonemeLine
from vivavoce.models.hibari.voice import HibariVoice
from vivavoce.models.phonemes.english_ipa import SpelledWord
from vivavoce.tts_engine.backends.base import Backend
from vivavoce.tts_engine.backends.loading import load_backend
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest
from vivavoce.tts_engine.piper import kind as piper_kind

LINE = "thank you for calling how can I help you today"
OPEN = OnnxSessions.open
MISSING = sorted(PROVIDERS.keys() - set(installed_devices()))[0]


@pytest.mark.parametrize("device", installed_devices())
def test_the_packaged_voice_encodes_a_line_as_on_the_cpu(device: str) -> None:
    (on_cpu,), (voice,) = HibariVoice.load(), HibariVoice.load(1, find_onnx_device(device))
    (line,) = on_cpu.phonemizer.phonemize([SpelledWord(word) for word in LINE.split()])
    assert isinstance(line, PhonemeLine)
    expected, found = on_cpu.encode(line), voice.encode(line)
    assert found.words == expected.words
    assert np.abs(found.hidden - expected.hidden).max() < 0.05  # rounded to 8 bits on the way
    assert np.abs(found.f0 - expected.f0).max() < 2  # Hz


@pytest.mark.parametrize("device", installed_devices())
def test_a_piper_voice_speaks_as_on_the_cpu(device: str, tmp_path: Path) -> None:
    write_tiny_piper(tmp_path)
    on_cpu, found = (speech(load_backend(str(tmp_path), device=name)) for name in ("cpu", device))
    assert len(on_cpu) > 1000
    assert np.abs(on_cpu - found).max() < 1e-3


def test_the_cpu_speaks_where_a_device_loads_a_voice_and_fails_to_compute_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_tiny_piper(tmp_path)
    monkeypatch.setattr(piper_kind, "require_onnx_device", lambda name: OnnxDevice("coreml"))
    monkeypatch.setattr(OnnxSessions, "open", open_and_fail_off_the_cpu)
    assert speech(load_backend(str(tmp_path), device="coreml")).any()
    assert [record.message for record in caplog.records] == [
        "the CPU computes what the device coreml cannot: shapes are incompatible"
    ]


def open_and_fail_off_the_cpu(sessions: OnnxSessions, model: bytes) -> onnxruntime.InferenceSession:
    session = OPEN(CPU_SESSIONS, model)
    return session if sessions.device.is_cpu else FailingSession(session)


class FailingSession:
    """A session that was loaded and does not run."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.get_outputs = session.get_outputs

    def run(self, names: object, feed: object) -> None:
        raise onnx_errors.Fail("while running\nshapes are incompatible\n")


def speech(backend: Backend) -> np.ndarray:
    async def test() -> bytes:
        async with await Engine.open(backend=backend) as engine, engine.stream(seed=1) as stream:
            stream.push_text("good morning")
            stream.end_input()
            return b"".join([chunk.pcm async for chunk in stream])

    return np.frombuffer(asyncio.run(test()), "<i2") / 32768


def test_a_folder_on_a_device_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    write_tiny_piper(tmp_path)
    for bundle in ("default", str(tmp_path)):
        with pytest.raises(BadRequest, match=f"device is '{MISSING}'; ONNX Runtime has cpu"):
            load_backend(bundle, device=MISSING)
