"""Random speech encoders of a release's size: their inputs, outputs and weights."""

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint import random_speech_encoders
from vivavoce.models.cosyvoice.checkpoint.random_speech_encoders import (
    encoder_weight_bytes,
    random_speaker_encoder,
    random_speech_tokenizer,
)
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, released_config

V2 = CosyVoiceVersion.V2


@pytest.mark.slow
def test_encoders_of_a_release_s_size_have_its_inputs_outputs_and_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(random_speech_encoders._LAYERS, V2, 1)  # of six
    config = released_config(V2)
    tokenizer = random_speech_tokenizer(BundleSize.FULL, config, 1).SerializeToString()
    speaker = random_speaker_encoder(BundleSize.FULL, 1).SerializeToString()
    weights = encoder_weight_bytes(V2, BundleSize.FULL)
    assert len(tokenizer) + len(speaker) == pytest.approx(weights, rel=0.05)
    spectra = np.random.default_rng(1).standard_normal((1, 128, 403)).astype(np.float32)
    feed = {"feats": spectra, "feats_length": np.array([403], np.int32)}
    (ids,) = onnxruntime.InferenceSession(tokenizer).run(None, feed)
    assert ids.dtype == np.int32 and ids.shape == (1, 101)
    assert ids.min() >= 0 and ids.max() < config.lm.codebook_size and len(np.unique(ids)) > 50
    bank = spectra[:, :80].transpose(0, 2, 1)
    (embedding,) = onnxruntime.InferenceSession(speaker).run(None, {"input": bank})
    assert embedding.shape == (1, 192) and 0.01 < np.abs(embedding).mean() < 10
