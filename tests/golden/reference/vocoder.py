"""The vocoder cases of a golden folder, and the whole way from speech ids to samples. Only comparisons.

Source: the cases d_hift, v3_hift, j_tts, v3_j_tts of the golden set's README, from
FunAudioLLM/CosyVoice@ace7c47; the hops of cli/model.py (tts): 25 ids, the first one longer by what fills the
prompt's last block, doubled up to 100.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from golden.reference import upstream_vocoder
from golden.reference.flow import (
    Arrays,
    Comparison,
    FlowCase,
    compare,
    load_rule_weights,
    read_arrays,
    read_flow_case,
)
from golden.reference.upstream_flow import AttentionMask, compute_whole
from golden.reference.upstream_vocoder import (
    WITHHELD_FRAMES,
    interpolated_phase_sines,
    render_whole,
    stretch_mel,
)
from vivavoce.models.cosyvoice.flow.encoder import FRAMES_PER_SPEECH_ID, LOOKAHEAD_IDS
from vivavoce.models.cosyvoice.flow.state import BLOCK_IDS
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3, frame_phase_sines
from vivavoce.models.cosyvoice.vocoder.layers import HiftConfig

SOURCE_TOLERANCE = 1e-3
NETWORK_TOLERANCE = 1e-4
WAVE_TOLERANCE = 1e-3
MAX_HOP = 100


def stated_hift_config(folder: Path) -> HiftConfig:
    """The reduced vocoder that a golden folder states."""
    sizes = json.loads((folder / "config.json").read_text("utf-8"))["config"]
    stated = sizes["hift"]
    return HiftConfig(
        base_channels=stated["base_channels"],
        harmonics=stated["nb_harmonics"],
        sample_rate=stated["sampling_rate"],
        sine_amplitude=stated["nsf_alpha"],
        noise_sigma=stated["nsf_sigma"],
        voiced_above_hz=stated["nsf_voiced_threshold"],
        upsample_rates=tuple(stated["upsample_rates"]),
        upsample_kernels=tuple(stated["upsample_kernel_sizes"]),
        n_fft=stated["istft_params"]["n_fft"],
        hop=stated["istft_params"]["hop_len"],
        kernels=tuple(stated["resblock_kernel_sizes"]),
        dilations=tuple(tuple(dilations) for dilations in stated["resblock_dilation_sizes"]),
        source_kernels=tuple(stated["source_resblock_kernel_sizes"]),
        source_dilations=tuple(tuple(dilations) for dilations in stated["source_resblock_dilation_sizes"]),
        leaky_slope=stated["lrelu_slope"],
        max_amplitude=stated["audio_limit"],
        f0_channels=sizes["f0_cond_channels"],
    )


def reference_hift_v2(folder: Path) -> HiftV2:
    """The reduced v2 vocoder with its weights."""
    vocoder = HiftV2(stated_hift_config(folder))
    load_rule_weights(vocoder, folder)
    return vocoder


def reference_hift_v3(folder: Path) -> HiftV3:
    """The reduced v3 vocoder with its weights."""
    vocoder = HiftV3(stated_hift_config(folder))
    load_rule_weights(vocoder, folder)
    return vocoder


@torch.inference_mode()
def hift_case(folder: Path) -> Iterator[Comparison]:
    """d_hift: f0, source and samples without noise, with noise, and behind a kept source."""
    vocoder, arrays = reference_hift_v2(folder), read_arrays(folder, "d_hift")
    mel, noise = arrays["mel"], arrays["noise"]
    silent = torch.zeros_like(noise)
    yield compare("d_hift", "f0", vocoder.f0_predictor(mel), arrays["f0"], SOURCE_TOLERANCE)
    yield from _source_stages(vocoder, arrays)
    runs = {"zero": (silent, None), "noise": (noise, None), "cache": (silent, arrays["cache_source"])}
    for name, (drawn, kept) in runs.items():
        source, wave = render_whole(vocoder, mel, drawn, kept)
        yield compare("d_hift", f"source_{name}", source, arrays[f"source_{name}"], SOURCE_TOLERANCE)
        yield compare("d_hift", f"wav_{name}", wave, arrays[f"wav_{name}"], WAVE_TOLERANCE)
    carried = vocoder.finish(mel, silent, vocoder.init_state(1))
    yield compare("d_hift", "wav_zero, carried phase", carried, arrays["wav_zero"], WAVE_TOLERANCE)


def _source_stages(vocoder: HiftV2, arrays: Arrays) -> Iterator[Comparison]:
    config, f0, count = vocoder.config, arrays["f0"], arrays["sine_waves"].shape[1]
    sines = interpolated_phase_sines(f0, config)
    excitation = vocoder.m_source.excitation(sines, f0, torch.zeros_like(sines))[:, :count]
    voiced = (
        (f0 > config.voiced_above_hz).float().repeat_interleave(config.samples_per_frame, 1)[:, :count, None]
    )
    edge = config.n_fft // 2
    spectrum = vocoder.spectra.analyse(F.pad(arrays["source_zero"], (edge, edge), mode="reflect")[:, 0])
    theirs = torch.cat([arrays["stft_real"], arrays["stft_imag"]], 1)
    yield compare("d_hift", "sine_waves", excitation, arrays["sine_waves"], SOURCE_TOLERANCE)
    yield compare("d_hift", "uv", voiced, arrays["uv"], 0.0)
    yield compare("d_hift", "stft", spectrum[..., : theirs.shape[2]], theirs, NETWORK_TOLERANCE)


@torch.inference_mode()
def hift_v3_case(folder: Path) -> Iterator[Comparison]:
    """v3_hift: the whole mel, a part of it, and in steps."""
    vocoder, arrays = reference_hift_v3(folder), read_arrays(folder, "v3_hift")
    mel, noise = arrays["mel"], read_arrays(folder, "d_hift")["noise"].abs()
    silent, total = torch.zeros_like(noise), mel.shape[2]
    begin = vocoder.init_state(1)
    f0, _ = vocoder.predict_f0(mel, begin.f0, last=True)
    yield compare("v3_hift", "f0_final", f0, arrays["f0_final"], SOURCE_TOLERANCE)
    yield compare("v3_hift", "f0_part", f0[:, :-LOOKAHEAD_IDS], arrays["f0_part"], SOURCE_TOLERANCE)
    source = vocoder.m_source(_frame_phase_sines(f0, vocoder), f0, silent)
    part = arrays["source_part"].shape[2]
    yield compare("v3_hift", "source_final", source, arrays["source_final"], SOURCE_TOLERANCE)
    yield compare("v3_hift", "source_part", source[..., :part], arrays["source_part"], SOURCE_TOLERANCE)
    for name, drawn in (("wav_final", silent), ("wav_noise", noise)):
        yield compare("v3_hift", name, vocoder.finish(mel, drawn, begin), arrays[name], WAVE_TOLERANCE)
    pieces = vocode_v3(vocoder, torch.split(mel[..., : total - 10], 25, 2), noise=silent, last=False)
    given = torch.cat(list(pieces), 1)[:, : arrays["wav_part"].shape[1]]
    yield compare("v3_hift", "wav_part", given, arrays["wav_part"], WAVE_TOLERANCE)
    stepped = torch.cat(list(vocode_v3(vocoder, torch.split(mel, 25, 2), noise=noise)), 1)
    yield compare("v3_hift", "wav_noise, in steps", stepped, arrays["wav_noise"], WAVE_TOLERANCE)


def _frame_phase_sines(f0: Tensor, vocoder: HiftV3) -> Tensor:
    return frame_phase_sines(
        f0, torch.zeros(1, vocoder.config.sine_count, dtype=torch.float64), vocoder.config
    )[0]


def vocode_v3(
    vocoder: HiftV3, mels: tuple[Tensor, ...], *, noise: Tensor | None = None, last: bool = True
) -> Iterator[Tensor]:
    """Samples of each piece of mel, the last one finished if ``last``; without noise where none is given."""
    state, position = vocoder.init_state(1), 0
    for index, mel in enumerate(mels):
        ends = last and index == len(mels) - 1
        count = vocoder.noise_samples(mel.shape[2], state, last=ends)
        waves = vocoder.config.sine_count
        drawn = mel.new_zeros(1, count, waves) if noise is None else noise[:, position : position + count]
        position += count
        if ends:
            yield vocoder.finish(mel, drawn, state)
            return
        samples, state = vocoder.step(mel, drawn, state)
        yield samples


def speech_case(folder: Path) -> Iterator[Comparison]:
    """j_tts: ids to samples with upstream's hops, caches and fades; at once; and a quarter faster."""
    arrays, vocoder = read_arrays(folder, "j_tts"), reference_hift_v2(folder)
    mels, whole = upstream_mels(folder, 2)
    pieces = list(vocode_as_upstream(vocoder, mels))
    yield from _streamed("j_tts", pieces, arrays)
    for name, mel in (("wav_offline", whole), ("wav_speed125", stretch_mel(whole, 1.25))):
        yield compare(
            "j_tts",
            name,
            render_whole(vocoder, mel, _zero_noise(mel, vocoder.config))[1],
            arrays[name],
            WAVE_TOLERANCE,
        )


def speech_v3_case(folder: Path) -> Iterator[Comparison]:
    """v3_j_tts: the same, the vocoder stepped where upstream vocodes everything again for every chunk."""
    arrays, vocoder = read_arrays(folder, "v3_j_tts"), reference_hift_v3(folder)
    mels, whole = upstream_mels(folder, 3)
    samples = torch.cat(list(vocode_v3(vocoder, mels)), 1)
    yield from _streamed("v3_j_tts", list(cut_as_upstream(samples, mels, vocoder.config)), arrays)
    for name, mel in (("wav_offline", whole), ("wav_speed125", stretch_mel(whole, 1.25))):
        yield compare("v3_j_tts", name, next(vocode_v3(vocoder, (mel,))), arrays[name], WAVE_TOLERANCE)


def _streamed(case: str, pieces: list[Tensor], arrays: Arrays) -> Iterator[Comparison]:
    lengths = torch.tensor([piece.shape[1] for piece in pieces])
    yield compare(case, "stream_lens", lengths, arrays["stream_lens"], 0.0)
    yield compare(case, "wav_stream", torch.cat(pieces, 1), arrays["wav_stream"], WAVE_TOLERANCE)


def _zero_noise(mel: Tensor, config: HiftConfig) -> Tensor:
    return mel.new_zeros(1, mel.shape[2] * config.samples_per_frame, config.sine_count)


def upstream_mels(folder: Path, version: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """The mel of each chunk as upstream streams it, its last one unmasked, and the whole mel at once."""
    inputs, _ = read_flow_case(folder, version)
    whole = _upstream_last(inputs, 0)
    edges = list(upstream_hop_ends(inputs.prompt_ids, inputs.ids.shape[1] - inputs.prompt_ids))
    state, mels = inputs.flow.init_state(inputs.speaker), []
    for begin, end in pairwise([-inputs.prompt_ids, *edges]):
        chunk = inputs.chunk(begin + inputs.prompt_ids, end + inputs.prompt_ids)
        mel, state = inputs.flow.step(chunk, state)
        mels.append(mel if begin >= 0 else mel[..., FRAMES_PER_SPEECH_ID * inputs.prompt_ids :])
    return (*mels, _upstream_last(inputs, edges[-1] if edges else 0)), whole


def _upstream_last(inputs: FlowCase, begin: int) -> Tensor:
    chunk = inputs.chunk(0, inputs.ids.shape[1], last=True)
    return compute_whole(inputs.flow, chunk, inputs.speaker, AttentionMask.NONE)[
        ..., FRAMES_PER_SPEECH_ID * (inputs.prompt_ids + begin) :
    ]


def upstream_hop_ends(prompt_ids: int, ids: int) -> Iterator[int]:
    """Where upstream's chunks end, but for the last, on a model that has just been loaded."""
    hop, end = BLOCK_IDS, 0
    filling = -prompt_ids % BLOCK_IDS
    while ids - end >= hop + filling + LOOKAHEAD_IDS:
        end += hop + filling
        yield end
        hop, filling = min(2 * hop, MAX_HOP), 0


def vocode_as_upstream(vocoder: HiftV2, mels: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Samples of each piece of mel as upstream streams them, without noise."""
    state = upstream_vocoder.init_state(vocoder, 1)
    for mel in mels[:-1]:
        samples, state = upstream_vocoder.step(
            vocoder, mel, _zero_noise(torch.cat([state.mel, mel], 2), vocoder.config), state
        )
        yield samples
    last = _zero_noise(torch.cat([state.mel, mels[-1]], 2), vocoder.config)
    yield upstream_vocoder.finish(vocoder, mels[-1], last, state)


def cut_as_upstream(samples: Tensor, mels: tuple[Tensor, ...], config: HiftConfig) -> Iterator[Tensor]:
    """The same samples in upstream's v3 chunks, which withhold eight frames."""
    frames, edges = 0, [0]
    for mel in mels[:-1]:
        frames += mel.shape[2]
        edges.append((frames - WITHHELD_FRAMES) * config.samples_per_frame)
    for begin, end in pairwise([*edges, samples.shape[1]]):
        yield samples[:, begin:end]


CASES: Mapping[str, Callable[[Path], Iterator[Comparison]]] = {
    "d_hift": hift_case,
    "j_tts": speech_case,
    "v3_hift": hift_v3_case,
    "v3_j_tts": speech_v3_case,
}
