"""Recordings become prompts of whole blocks, whatever their rate and number format."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.harmonic_voice import harmonic_voice
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.front_end import features
from vivavoce.models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePromptError


def test_a_prompt_holds_ids_mel_and_embedding(encoder: VoiceEncoder, bundle: CosyVoiceBundle) -> None:
    prompt = encoder.enroll(harmonic_voice(3.5), 24_000, " some words ")
    assert prompt.version is bundle.version
    assert prompt.transcript == "some words"
    assert prompt.speech_ids.shape == (87,)
    assert prompt.mel.shape == (80, 150)
    assert prompt.embedding.shape == (192,)
    assert prompt.duration_s == pytest.approx(3.5, abs=0.04)


def test_the_mel_belongs_to_the_last_whole_blocks(encoder: VoiceEncoder, bundle: CosyVoiceBundle) -> None:
    samples = harmonic_voice(3.5)
    prompt = encoder.enroll(samples, 24_000)
    mel = features.mel_spectrogram(samples, bundle.yaml_config.mel_max_hz)
    assert len(prompt.flow_ids) == 75
    np.testing.assert_array_equal(prompt.flow_ids, prompt.speech_ids[12:])
    np.testing.assert_array_equal(prompt.mel, mel[:, 24:174])


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_any_common_rate_and_int16_give_the_same_voice(encoder: VoiceEncoder, rate: int) -> None:
    from_floats = encoder.enroll(harmonic_voice(4, rate), rate)
    from_integers = encoder.enroll((harmonic_voice(4, rate) * 32_767).astype(np.int16), rate)
    expected = encoder.enroll(harmonic_voice(4), 24_000)
    first, second = from_floats.embedding, from_integers.embedding
    assert first @ second > 0.98 * np.linalg.norm(first) * np.linalg.norm(second)
    # The lowest rate has nothing above 8 kHz, so only lower bands are compared.
    np.testing.assert_allclose(from_floats.mel[:40].mean(), expected.mel[:40].mean(), atol=0.1)
    assert len(from_floats.speech_ids) == 100


def test_speech_is_tokenized_as_in_enrolment(encoder: VoiceEncoder) -> None:
    samples = harmonic_voice(3)
    np.testing.assert_array_equal(
        encoder.tokenize_speech(samples, 24_000), encoder.enroll(samples, 24_000).speech_ids
    )


def test_a_transcript_has_a_limit(encoder: VoiceEncoder) -> None:
    with pytest.raises(VoicePromptError, match="at most 1,000"):
        encoder.enroll(harmonic_voice(4), 24_000, "x" * 1001)


def test_ids_outside_the_codebook_are_refused(bundle: CosyVoiceBundle) -> None:
    small = VoiceEncoder.load(
        bundle.speaker_encoder, bundle.speech_tokenizer, bundle.version, None, codebook_size=2
    )
    with pytest.raises(VoicePromptError, match="same release"):
        small.tokenize_speech(harmonic_voice(4), 24_000)
