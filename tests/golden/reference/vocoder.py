"""Cases d_hift and v3_hift: the vocoders of versions 2 and 3, from mel to samples."""

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from golden.reference.comparison import Arrays, Comparison, compare, read_arrays
from golden.reference.golden_config import load_rule_weights, read_network_config
from golden.reference.upstream_vocoder import interpolated_phase_sines, render_whole
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2
from vivavoce.models.cosyvoice.vocoder.hift_v3 import F0_LOOKAHEAD_FRAMES, HiftV3, frame_phase_sines

WAVE_TOLERANCE = 1e-3

# Upstream adds up phases in single precision and multiplies the sum by 480 * 2 pi.
_SOURCE_TOLERANCE = 1e-3
_NETWORK_TOLERANCE = 1e-4
_STEP_FRAMES = 25
_WITHHELD_FRAMES = 10  # that wav_part lacks at the end


def load_vocoder_v2(folder: Path) -> HiftV2:
    """The reduced v2 vocoder of a folder, with its weights."""
    vocoder = HiftV2(read_network_config(folder, CosyVoiceVersion.V2).hift)
    load_rule_weights(vocoder, folder)
    return vocoder


def load_vocoder_v3(folder: Path) -> HiftV3:
    """The reduced v3 vocoder of a folder, with its weights."""
    vocoder = HiftV3(read_network_config(folder, CosyVoiceVersion.V3).hift)
    load_rule_weights(vocoder, folder)
    return vocoder


@torch.inference_mode()
def check_vocoder_v2(folder: Path) -> Iterator[Comparison]:
    """Compare f0, source and samples without noise, with noise, and after a kept source."""
    vocoder, arrays = load_vocoder_v2(folder), read_arrays(folder, "d_hift")
    mel, noise = arrays["mel"], arrays["noise"]
    silent = torch.zeros_like(noise)
    yield compare("d_hift", "f0", vocoder.f0_predictor(mel), arrays["f0"], _SOURCE_TOLERANCE)
    yield from _check_source(vocoder, arrays)
    runs = {"zero": (silent, None), "noise": (noise, None), "cache": (silent, arrays["cache_source"])}
    for name, (drawn, kept) in runs.items():
        source, wave = render_whole(vocoder, mel, drawn, kept)
        yield compare("d_hift", f"source_{name}", source, arrays[f"source_{name}"], _SOURCE_TOLERANCE)
        yield compare("d_hift", f"wav_{name}", wave, arrays[f"wav_{name}"], WAVE_TOLERANCE)
    carried = vocoder.finish(mel, silent, vocoder.init_state(1))
    yield compare("d_hift", "wav_zero, carried phase", carried, arrays["wav_zero"], WAVE_TOLERANCE)


def _check_source(vocoder: HiftV2, arrays: Arrays) -> Iterator[Comparison]:
    config, f0, count = vocoder.config, arrays["f0"], arrays["sine_waves"].shape[1]
    sines = interpolated_phase_sines(f0, config)
    excitation = vocoder.m_source.excitation(sines, f0, torch.zeros_like(sines))[:, :count]
    is_voiced = (f0 > config.voiced_above_hz).float()
    voiced = is_voiced.repeat_interleave(config.samples_per_frame, 1)[:, :count, None]
    edge = config.n_fft // 2
    spectrum = vocoder.spectra.analyse(F.pad(arrays["source_zero"], (edge, edge), mode="reflect")[:, 0])
    theirs = torch.cat([arrays["stft_real"], arrays["stft_imag"]], 1)
    yield compare("d_hift", "sine_waves", excitation, arrays["sine_waves"], _SOURCE_TOLERANCE)
    yield compare("d_hift", "uv", voiced, arrays["uv"], 0.0)
    yield compare("d_hift", "stft", spectrum[..., : theirs.shape[2]], theirs, _NETWORK_TOLERANCE)


@torch.inference_mode()
def check_vocoder_v3(folder: Path) -> Iterator[Comparison]:
    """Compare f0, source and samples of the whole mel, of a part of it, and in steps."""
    vocoder, arrays = load_vocoder_v3(folder), read_arrays(folder, "v3_hift")
    mel, noise = arrays["mel"], read_arrays(folder, "d_hift")["noise"].abs()
    silent = torch.zeros_like(noise)
    begin = vocoder.init_state(1)
    f0, _ = vocoder.predict_f0(mel, begin.f0, last=True)
    yield compare("v3_hift", "f0_final", f0, arrays["f0_final"], _SOURCE_TOLERANCE)
    yield compare("v3_hift", "f0_part", f0[:, :-F0_LOOKAHEAD_FRAMES], arrays["f0_part"], _SOURCE_TOLERANCE)
    phase = torch.zeros(1, vocoder.config.sine_count, dtype=torch.float64)
    source = vocoder.m_source(frame_phase_sines(f0, phase, vocoder.config)[0], f0, silent)
    part = source[..., : arrays["source_part"].shape[2]]
    yield compare("v3_hift", "source_final", source, arrays["source_final"], _SOURCE_TOLERANCE)
    yield compare("v3_hift", "source_part", part, arrays["source_part"], _SOURCE_TOLERANCE)
    for name, drawn in (("wav_final", silent), ("wav_noise", noise)):
        yield compare("v3_hift", name, vocoder.finish(mel, drawn, begin), arrays[name], WAVE_TOLERANCE)
    beginning = torch.split(mel[..., :-_WITHHELD_FRAMES], _STEP_FRAMES, 2)
    wave = torch.cat(list(vocode_v3(vocoder, beginning, noise=silent, last=False)), 1)
    wave = wave[:, : arrays["wav_part"].shape[1]]
    yield compare("v3_hift", "wav_part", wave, arrays["wav_part"], WAVE_TOLERANCE)
    stepped = torch.cat(list(vocode_v3(vocoder, torch.split(mel, _STEP_FRAMES, 2), noise=noise)), 1)
    yield compare("v3_hift", "wav_noise, in steps", stepped, arrays["wav_noise"], WAVE_TOLERANCE)


def vocode_v3(
    vocoder: HiftV3, mels: tuple[Tensor, ...], *, noise: Tensor | None = None, last: bool = True
) -> Iterator[Tensor]:
    """Samples of each piece of mel, the last one finished if ``last``; without noise if none is given."""
    state, position = vocoder.init_state(1), 0
    for index, mel in enumerate(mels):
        ends = last and index == len(mels) - 1
        count = vocoder.noise_samples(mel.shape[2], state, last=ends)
        sines = vocoder.config.sine_count
        drawn = mel.new_zeros(1, count, sines) if noise is None else noise[:, position : position + count]
        position += count
        if ends:
            yield vocoder.finish(mel, drawn, state)
            return
        samples, state = vocoder.step(mel, drawn, state)
        yield samples
