"""Prompts of the language model for each mode of speaking."""

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.harmonic_voice import harmonic_voice
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.lm_prompts import (
    cross_lingual_prompt,
    instruct_prompt,
    zero_shot_prompt,
)
from vivavoce.models.cosyvoice.front_end.voice_encoder import VoiceEncoder


def test_a_mode_determines_the_text_and_speech_before_the_utterance(
    encoder: VoiceEncoder, bundle: CosyVoiceBundle
) -> None:
    tokenizer = bundle.text_tokenizer()
    greeting = "" if bundle.version is CosyVoiceVersion.V2 else "You are a helpful assistant.<|endofprompt|>"
    prompt = encoder.enroll(harmonic_voice(3.5), 24_000, "the words<|endofprompt|>")
    zero_shot = zero_shot_prompt(tokenizer, prompt)
    assert tokenizer.decode(zero_shot.text_ids) == f"{greeting}the words<|endofprompt|>"
    assert zero_shot.text_ids.count(tokenizer.end_of_prompt) == bool(greeting)
    assert zero_shot.speech_ids == tuple(prompt.speech_ids.tolist())
    cross_lingual = cross_lingual_prompt(tokenizer, bundle.version)
    assert (tokenizer.decode(cross_lingual.text_ids), cross_lingual.speech_ids) == (greeting, ())
    assert zero_shot_prompt(tokenizer, encoder.enroll(harmonic_voice(3.5), 24_000)) == cross_lingual
    instructed = instruct_prompt(tokenizer, bundle.version, "Say it slowly.")
    assert tokenizer.decode(instructed.text_ids).endswith("Say it slowly.<|endofprompt|>")
    assert instructed.text_ids[-1] == tokenizer.end_of_prompt
