"""Case g_features: both mels, Whisper's and Kaldi's features, and the resampler."""

from collections.abc import Iterator
from pathlib import Path

import torch

from golden.reference.comparison import Comparison, compare, read_arrays
from vivavoce.models.cosyvoice.front_end import features
from vivavoce.models.signal.recording_resampler import resample

_FEATURE_TOLERANCE = 1e-4
_RESAMPLED_TOLERANCE = 1e-5
# Upstream computes in float32, where nearly empty bands lose three digits before the logarithm.
_FILTER_BANK_TOLERANCE = 5e-4
_SAMPLE_RATES = {16: 16_000, 24: 24_000, 44: 44_100}  # by their names in the case, in Hz


def check_features(folder: Path) -> Iterator[Comparison]:
    """Compare every feature of the case with those of its waveforms."""
    arrays = read_arrays(folder, "g_features")
    waves = {name: arrays[f"wav{name}"][0].numpy() for name in _SAMPLE_RATES}
    bank = features.kaldi_filter_bank(waves[16])
    ours = {
        "mel24_v2": (features.mel_spectrogram(waves[24], 8000)[None], _FEATURE_TOLERANCE),
        "mel24_v3": (features.mel_spectrogram(waves[24], None)[None], _FEATURE_TOLERANCE),
        "whisper128": (features.whisper_log_mel(waves[16])[None], _FEATURE_TOLERANCE),
        "fbank80": (bank, _FILTER_BANK_TOLERANCE),
        "fbank80_cmn": (bank - bank.mean(axis=0), _FILTER_BANK_TOLERANCE),
    }
    for source, target in ((24, 16), (16, 24), (44, 24), (44, 16)):
        resampled = resample(waves[source], _SAMPLE_RATES[source], _SAMPLE_RATES[target])
        ours[f"rs_{source}_{target}"] = (resampled[None], _RESAMPLED_TOLERANCE)
    for name, (array, tolerance) in ours.items():
        yield compare("g_features", name, torch.from_numpy(array), arrays[name], tolerance)
