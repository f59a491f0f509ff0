"""Saved prompts: loaded equal, and refused if damaged, too large or with code."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.harmonic_voice import harmonic_voice
from vivavoce.models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt, VoicePromptError


def test_a_saved_prompt_is_loaded_equal(encoder: VoiceEncoder, tmp_path: Path) -> None:
    prompt = encoder.enroll(harmonic_voice(3.5), 24_000, "grüße 你好")
    prompt.save(tmp_path / "voice.npz")
    loaded = VoicePrompt.load(tmp_path / "voice.npz")
    assert loaded.id == prompt.id
    assert (loaded.transcript, loaded.version) == (prompt.transcript, prompt.version)
    np.testing.assert_array_equal(loaded.mel, prompt.mel)
    assert [path.name for path in tmp_path.iterdir()] == ["voice.npz"]


def test_the_id_depends_on_the_content(encoder: VoiceEncoder) -> None:
    first = encoder.enroll(harmonic_voice(3.5), 24_000, "a")
    assert first.id == encoder.enroll(harmonic_voice(3.5), 24_000, "a").id
    assert first.id != encoder.enroll(harmonic_voice(3.5), 24_000, "b").id
    assert first.id != encoder.enroll(harmonic_voice(3.6), 24_000, "a").id


def replace_arrays(path: Path, **arrays: NDArray[np.generic]) -> None:
    with np.load(path) as stored:
        others = dict(stored)
    np.savez(path, **(others | arrays))  # type: ignore[arg-type]


def test_a_damaged_prompt_is_refused(encoder: VoiceEncoder, tmp_path: Path) -> None:
    path = tmp_path / "voice.npz"
    encoder.enroll(harmonic_voice(3.5), 24_000).save(path)
    content = path.read_bytes()
    for kept in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:kept])
        with pytest.raises(VoicePromptError, match="enrol again"):
            VoicePrompt.load(path)
    for name, array in (
        ("mel", np.zeros((80, 7), np.float32)),
        ("embedding", np.zeros(192, np.float64)),
        ("about", np.frombuffer(b'{"format": 9}', np.uint8)),
        ("about", np.frombuffer(b"{", np.uint8)),
        ("speech_ids", np.array([object()])),
    ):
        path.write_bytes(content)
        replace_arrays(path, **{name: array})
        with pytest.raises(VoicePromptError):
            VoicePrompt.load(path)


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return (Path.touch, (self.path,))


def test_a_prompt_with_code_is_refused_and_not_run(encoder: VoiceEncoder, tmp_path: Path) -> None:
    path, created = tmp_path / "voice.npz", tmp_path / "created by the pickle"
    encoder.enroll(harmonic_voice(3.5), 24_000).save(path)
    replace_arrays(path, speech_ids=np.array([Malicious(created)], dtype=object))
    created.unlink(missing_ok=True)
    with pytest.raises(VoicePromptError):
        VoicePrompt.load(path)
    assert not created.exists()


def test_a_prompt_that_would_unpack_to_gigabytes_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mel.npy", bytes(20_000_000))
    (tmp_path / "bomb.npz").write_bytes(packed.getvalue())
    with pytest.raises(VoicePromptError, match="at most 4,000,000"):
        VoicePrompt.load(tmp_path / "bomb.npz")
