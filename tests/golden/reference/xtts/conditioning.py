"""Cases a_cond, b_speaker and c_features: recordings to the latents and the embedding of a voice."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from golden.reference.comparison import Comparison, compare, read_arrays
from golden.reference.xtts.networks import (
    Float,
    load_rule_voice_encoder,
    read_recordings,
    read_second_channel,
)
from vivavoce.models.signal.recording_resampler import resample
from vivavoce.models.xtts import features
from vivavoce.models.xtts.config import SPEAKER_RATE, XTTS_INPUT_RATE
from vivavoce.models.xtts.voice import VoiceConditioningConfig, XttsVoiceEncoder

NETWORK_TOLERANCE = 1e-4
EMBEDDING_TOLERANCE = 1e-5  # of numbers whose squares add up to 1
# Upstream computes spectra in single precision: bands of little power differ, as logarithms more so.
_POWER_TOLERANCE = 2e-4
_LOG_MEL_TOLERANCE = 1e-3
_PIECE_S = 4


@torch.inference_mode()
def check_conditioning(folder: Path) -> Iterator[Comparison]:
    """Compare mel, every stage of the encoder, and the latents of pieces and of whole recordings."""
    arrays, encoder = read_arrays(folder, "a_cond"), load_rule_voice_encoder(folder)
    first, _ = read_recordings(folder)
    size = _PIECE_S * XTTS_INPUT_RATE
    mels = [_mel(encoder, first[start : start + size]) for start in range(0, len(first), size)]
    frames = encoder.conditioning.encoder
    begin = frames.init(mels[-1])
    pieces = {
        "mel_first": mels[0][:, :, :40],
        "mel_last": mels[-1],
        "init_last": begin,
        "attn0_last": frames.attn[0](begin),
        "enc_last": frames(mels[-1]),
        "per_chunk": torch.cat([encoder.conditioning(mel) for mel in mels]),
    }
    for name, ours in pieces.items():
        yield compare("a_cond", name, ours, arrays[name], NETWORK_TOLERANCE)
    runs = {
        "c30_4": (first, 30.0, 4.0),
        "c6_6": (first, 6.0, 6.0),
        "skip": (first[: int(8.2 * XTTS_INPUT_RATE)], 30.0, 4.0),
        "c_all": (first, None, 7.0),
        "c_b": (read_second_channel(folder), 30.0, 4.0),
    }
    for name, (samples, latents_s, piece_s) in runs.items():
        config = VoiceConditioningConfig(latents_s=latents_s, piece_s=piece_s)
        yield compare("a_cond", name, encoder.latents(samples, config)[None], arrays[name], NETWORK_TOLERANCE)


def _mel(encoder: XttsVoiceEncoder, samples: Float) -> Tensor:
    return torch.from_numpy(features.conditioning_mel(samples, encoder.mel_norms.numpy()))[None]


@torch.inference_mode()
def check_speaker(folder: Path) -> Iterator[Comparison]:
    """Compare every stage of the speaker encoder, and the voices of one and of two recordings."""
    arrays, encoder = read_arrays(folder, "b_speaker"), load_rule_voice_encoder(folder)
    first, second = read_recordings(folder)
    network, two_seconds = encoder.speaker_encoder, first[: 2 * XTTS_INPUT_RATE]
    x16 = resample(two_seconds, XTTS_INPUT_RATE, SPEAKER_RATE)
    yield compare("b_speaker", "x16", torch.from_numpy(x16)[None], arrays["x16"], EMBEDDING_TOLERANCE)
    # The stages begin with the stored samples: small differences of samples are large ones of log-mel.
    stored = arrays["x16"][0].numpy()
    emphasized = torch.from_numpy(features.preemphasized(stored))[None, : arrays["pre"].shape[1]]
    yield compare("b_speaker", "pre", emphasized, arrays["pre"], EMBEDDING_TOLERANCE)
    mel = features.speaker_mel(stored)
    yield compare("b_speaker", "mel", torch.from_numpy(mel)[None], arrays["mel"], _POWER_TOLERANCE)
    log_mel = torch.from_numpy(features.normalized_log_mel(mel))[None]
    yield compare("b_speaker", "norm", log_mel, arrays["norm"], _LOG_MEL_TOLERANCE)
    stage = network.get_submodule("layer1")(network.bn1(torch.relu(network.conv1(log_mel[:, None]))))
    yield compare("b_speaker", "l1", stage[:, :4, :, :40], arrays["l1"], NETWORK_TOLERANCE)
    encoded = network.encode(log_mel)
    bands = encoded.view(1, -1, arrays["l4"].shape[2], encoded.shape[2])
    pooled = network.pool(encoded)
    for name, ours in (
        ("l4", bands[:, :64]),
        ("w", network.attention(encoded)[:, :64]),
        ("pool", pooled),
        ("raw", network.fc(pooled)),
    ):
        yield compare("b_speaker", name, ours, arrays[name], NETWORK_TOLERANCE)
    for name, samples in (("emb_2s", two_seconds), ("emb_full", first)):
        ours = encoder.speaker(samples)[None, :, None]
        yield compare("b_speaker", name, ours, arrays[name], EMBEDDING_TOLERANCE)
    runs = {
        "1": ([first], VoiceConditioningConfig(latents_s=6, piece_s=6)),
        "2": ([first, second], VoiceConditioningConfig(max_reference_s=4, latents_s=6, piece_s=3)),
        "3": ([first, second], VoiceConditioningConfig(max_reference_s=2, normalizes_level=True)),
    }
    for number, (recordings, config) in runs.items():
        voice = encoder.encode(recordings, config)
        latents, speaker = voice.latents[None], voice.speaker[None, :, None]
        yield compare("b_speaker", f"lat{number}", latents, arrays[f"lat{number}"], NETWORK_TOLERANCE)
        yield compare("b_speaker", f"se{number}", speaker, arrays[f"se{number}"], EMBEDDING_TOLERANCE)


def check_features(folder: Path) -> Iterator[Comparison]:
    """Compare filters, windows, power mel and resamplers."""
    arrays = read_arrays(folder, "c_features")
    samples = read_recordings(folder)[0][:4000]
    ours = {
        "fb_gpt": features.conditioning_filters(),
        "window_gpt": features.hann_window(),
        "fb_spk": features.speaker_filters(),
        "window_spk": features.hamming_window(),
        "preemph": np.array([[[-features.PREEMPHASIS, 1.0]]]),
        "pow_gpt": features.conditioning_power(samples)[None],
    }
    for name in arrays:
        if name.startswith("rs_"):
            source, target = map(int, name.removeprefix("rs_").split("_"))
            ours[name] = resample(samples, source, target)[None]
    for name, array in ours.items():
        yield compare("c_features", name, torch.from_numpy(array), arrays[name], NETWORK_TOLERANCE)
