"""Voices from recordings: limits are named, whole chunks are kept, and a saved prompt is the same one."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'")

from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from vivavoce.models.cosyvoice.checkpoint.random_bundle import BundleSize, write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end import features
from vivavoce.models.cosyvoice.front_end.lm_prompts import (
    cross_lingual_prompt,
    instruct_prompt,
    zero_shot_prompt,
)
from vivavoce.models.cosyvoice.front_end.voice_encoder import (
    VoiceEncoder,
    VoicePrompt,
    VoicePromptError,
    check_recording,
)


@pytest.fixture(scope="module", params=list(CosyVoiceVersion))
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CosyVoiceBundle:
    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    write_random_bundle(folder, request.param, BundleSize.TINY)
    return open_bundle(folder)


@pytest.fixture(scope="module")
def encoder(bundle: CosyVoiceBundle) -> VoiceEncoder:
    return VoiceEncoder.load(
        bundle.speaker_encoder, bundle.speech_tokenizer, bundle.version, bundle.yaml_config.mel_max_hz
    )


def voice(seconds: float, rate: int = 24_000) -> NDArray[np.float32]:
    """Harmonics that come and go, as speech does."""
    time = np.arange(round(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * time)) / rate
    tones = sum(np.sin(n * pitch) / n for n in range(1, 20))
    return (0.2 * tones * (1 + np.sin(2 * np.pi * 3 * time)) / 2).astype(np.float32)


def test_a_prompt_holds_ids_mel_and_embedding(encoder: VoiceEncoder, bundle: CosyVoiceBundle) -> None:
    prompt = encoder.enroll(voice(3.5), 24_000, " some words ")
    assert prompt.version is bundle.version
    assert prompt.transcript == "some words"
    assert prompt.speech_ids.shape == (87,)
    assert prompt.mel.shape == (80, 150)
    assert prompt.embedding.shape == (192,)
    assert prompt.duration_s == pytest.approx(3.5, abs=0.04)


def test_the_mel_is_that_of_the_last_whole_chunks(encoder: VoiceEncoder, bundle: CosyVoiceBundle) -> None:
    samples = voice(3.5)
    prompt = encoder.enroll(samples, 24_000)
    mel = features.mel_spectrogram(samples, bundle.yaml_config.mel_max_hz)
    assert len(prompt.flow_ids) == 75
    np.testing.assert_array_equal(prompt.flow_ids, prompt.speech_ids[12:])
    np.testing.assert_array_equal(prompt.mel, mel[:, 24:174])


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_any_usual_rate_and_int16_are_heard_alike(encoder: VoiceEncoder, rate: int) -> None:
    from_floats = encoder.enroll(voice(4, rate), rate)
    from_integers = encoder.enroll((voice(4, rate) * 32_767).astype(np.int16), rate)
    expected = encoder.enroll(voice(4), 24_000)
    first, second = from_floats.embedding, from_integers.embedding
    assert first @ second > 0.98 * np.linalg.norm(first) * np.linalg.norm(second)
    # The least rate has nothing above 8 kHz; compare below.
    np.testing.assert_allclose(from_floats.mel[:40].mean(), expected.mel[:40].mean(), atol=0.1)
    assert len(from_floats.speech_ids) == 100


def test_hearing_gives_the_ids_alone(encoder: VoiceEncoder) -> None:
    samples = voice(3)
    np.testing.assert_array_equal(
        encoder.tokenize_speech(samples, 24_000), encoder.enroll(samples, 24_000).speech_ids
    )


@pytest.mark.parametrize(
    ("samples", "rate", "told"),
    [
        (np.zeros(96_000, np.float32), 24_000, "silent: its loudest 20 ms are at -120 dBFS"),
        (voice(1), 24_000, "1.0 s long; 3 to 30 s"),
        (voice(40), 24_000, "40.0 s long; 3 to 30 s"),
        (voice(4, 8000), 8000, "8,000 Hz; 16,000 to 192,000 Hz"),
        (voice(4), 24_001, "whole multiple of 25 Hz"),
        (np.stack([voice(4), voice(4)]), 24_000, "one channel is allowed"),
        (np.full(96_000, np.nan, np.float32), 24_000, "NaN or infinite"),
        (voice(4) * 100, 24_000, "floats in [-1, 1]"),
        (np.ones(96_000, np.int64), 24_000, "int64; floats"),
        (np.zeros(0, np.float32), 24_000, "0.0 s long; 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_recording_over_a_limit_is_refused_with_the_limit(
    samples: NDArray[np.float32], rate: int, told: str
) -> None:
    with pytest.raises(VoicePromptError) as caught:
        check_recording(samples, rate)
    assert told in str(caught.value)


def test_a_transcript_has_a_limit(encoder: VoiceEncoder) -> None:
    with pytest.raises(VoicePromptError, match="at most 1,000"):
        encoder.enroll(voice(4), 24_000, "x" * 1001)


def test_one_channel_in_two_dimensions_is_one_channel() -> None:
    assert check_recording(voice(4)[:, None], 24_000).shape == (96_000,)


def test_a_codec_of_another_size_is_noticed(bundle: CosyVoiceBundle) -> None:
    small = VoiceEncoder.load(
        bundle.speaker_encoder, bundle.speech_tokenizer, bundle.version, None, codebook_size=2
    )
    with pytest.raises(VoicePromptError, match="same release"):
        small.tokenize_speech(voice(4), 24_000)


def test_a_saved_prompt_is_the_same_one(encoder: VoiceEncoder, tmp_path: Path) -> None:
    prompt = encoder.enroll(voice(3.5), 24_000, "grüße 你好")
    prompt.save(tmp_path / "voice.npz")
    loaded = VoicePrompt.load(tmp_path / "voice.npz")
    assert loaded.id == prompt.id
    assert (loaded.transcript, loaded.version) == (prompt.transcript, prompt.version)
    np.testing.assert_array_equal(loaded.mel, prompt.mel)
    assert [path.name for path in tmp_path.iterdir()] == ["voice.npz"]


def test_the_id_is_that_of_the_content(encoder: VoiceEncoder) -> None:
    first = encoder.enroll(voice(3.5), 24_000, "a")
    assert first.id == encoder.enroll(voice(3.5), 24_000, "a").id
    assert first.id != encoder.enroll(voice(3.5), 24_000, "b").id
    assert first.id != encoder.enroll(voice(3.6), 24_000, "a").id


def damage(path: Path, **arrays: NDArray[np.generic]) -> None:
    with np.load(path) as stored:
        held = dict(stored)
    np.savez(path, **(held | arrays))  # type: ignore[arg-type]


def test_a_damaged_prompt_is_refused(encoder: VoiceEncoder, tmp_path: Path) -> None:
    path = tmp_path / "voice.npz"
    encoder.enroll(voice(3.5), 24_000).save(path)
    whole = path.read_bytes()
    for kept in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(VoicePromptError, match="enrol again"):
            VoicePrompt.load(path)
    for name, array in (
        ("mel", np.zeros((80, 7), np.float32)),
        ("embedding", np.zeros(192, np.float64)),
        ("about", np.frombuffer(b'{"format": 9}', np.uint8)),
        ("about", np.frombuffer(b"{", np.uint8)),
        ("speech_ids", np.array([object()])),
    ):
        path.write_bytes(whole)
        damage(path, **{name: array})
        with pytest.raises(VoicePromptError):
            VoicePrompt.load(path)


class Malicious:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return (Path.touch, (self.path,))


def test_a_prompt_with_code_is_refused_and_not_run(encoder: VoiceEncoder, tmp_path: Path) -> None:
    path, witness = tmp_path / "voice.npz", tmp_path / "was here"
    encoder.enroll(voice(3.5), 24_000).save(path)
    damage(path, speech_ids=np.array([Malicious(witness)], dtype=object))
    witness.unlink(missing_ok=True)
    with pytest.raises(VoicePromptError):
        VoicePrompt.load(path)
    assert not witness.exists()


def test_a_prompt_that_would_unpack_to_gigabytes_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mel.npy", bytes(20_000_000))
    (tmp_path / "bomb.npz").write_bytes(packed.getvalue())
    with pytest.raises(VoicePromptError, match="at most 4,000,000"):
        VoicePrompt.load(tmp_path / "bomb.npz")


def test_what_stands_before_the_text(encoder: VoiceEncoder, bundle: CosyVoiceBundle) -> None:
    tokenizer = bundle.text_tokenizer()
    greeting = "" if bundle.version is CosyVoiceVersion.V2 else "You are a helpful assistant.<|endofprompt|>"
    prompt = encoder.enroll(voice(3.5), 24_000, "the words<|endofprompt|>")
    shot = zero_shot_prompt(tokenizer, prompt)
    assert tokenizer.decode(shot.text_ids) == f"{greeting}the words<|endofprompt|>"
    assert shot.text_ids.count(tokenizer.end_of_prompt) == bool(greeting)
    assert shot.speech_ids == tuple(prompt.speech_ids.tolist())
    plain = cross_lingual_prompt(tokenizer, bundle.version)
    assert (tokenizer.decode(plain.text_ids), plain.speech_ids) == (greeting, ())
    assert zero_shot_prompt(tokenizer, encoder.enroll(voice(3.5), 24_000)) == plain
    told = instruct_prompt(tokenizer, bundle.version, "Say it slowly.")
    assert tokenizer.decode(told.text_ids).endswith("Say it slowly.<|endofprompt|>")
    assert told.text_ids[-1] == tokenizer.end_of_prompt
