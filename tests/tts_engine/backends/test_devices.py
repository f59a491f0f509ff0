"""Voices that ONNX Runtime computes speak on every device that the installed package has."""

from pathlib import Path

import numpy as np
import pytest

from shared.tiny_piper import write_tiny_piper
from vivavoce.models.hibari.phonemizer import PhonemeLine, SpelledWord
from vivavoce.models.hibari.voice import HibariVoice
from vivavoce.models.onnx_providers import PROVIDERS, find_onnx_device, installed_devices
from vivavoce.models.onnx_sessions import OnnxSessions
from vivavoce.models.piper.voice import PhonemeIds, PiperRenderState, PiperVoice
from vivavoce.tts_engine.backends.loading import load_backend
from vivavoce.tts_engine.errors import BadRequest

LINE = "thank you for calling how can I help you today"
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
def test_a_piper_voice_renders_what_it_does_on_the_cpu(device: str, tmp_path: Path) -> None:
    model = write_tiny_piper(tmp_path)
    rendered = []
    for name in ("cpu", device):
        voice = PiperVoice.load(model, OnnxSessions(find_onnx_device(name)))
        ids = PhonemeIds(np.array([1, 0, 12, 0, 9, 0, 2], np.int64), ())
        clause = voice.encode(ids, np.random.default_rng(0))
        rendered.append(voice.step(clause, PiperRenderState(0), clause.frames)[0])
    assert len(rendered[0]) > 1000
    assert np.abs(rendered[0] - rendered[1]).max() < 1e-3


def test_a_folder_on_a_device_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    write_tiny_piper(tmp_path)
    for bundle in ("default", str(tmp_path)):
        with pytest.raises(BadRequest, match=f"device is '{MISSING}'; ONNX Runtime has cpu"):
            load_backend(bundle, device=MISSING)
