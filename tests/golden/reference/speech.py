"""Cases j_tts and v3_j_tts: speech ids to samples with upstream's hops, at once, and a quarter faster.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (tts): hops of 25 ids, doubled up to 100; the first one is
longer by what completes the prompt's last block.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from golden.reference import upstream_vocoder
from golden.reference.comparison import Arrays, Comparison, compare, read_arrays
from golden.reference.flow import FlowInputs, read_flow_inputs
from golden.reference.upstream_flow import AttentionMask, compute_whole
from golden.reference.upstream_vocoder import WITHHELD_FRAMES, render_whole, stretch_mel
from golden.reference.vocoder import WAVE_TOLERANCE, load_vocoder_v2, load_vocoder_v3, vocode_v3
from vivavoce.models.cosyvoice.config import (
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    CosyVoiceVersion,
    HiftConfig,
)
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2

_MAX_HOP = 100
_SPEED = 1.25


def check_speech_v2(folder: Path) -> Iterator[Comparison]:
    """Compare j_tts; chunks are vocoded with upstream's caches and fades."""
    arrays, vocoder = read_arrays(folder, "j_tts"), load_vocoder_v2(folder)
    mels, whole = _upstream_mels(folder, CosyVoiceVersion.V2)
    yield from _check_stream("j_tts", list(_vocode_as_upstream(vocoder, mels)), arrays)
    for name, mel in (("wav_offline", whole), ("wav_speed125", stretch_mel(whole, _SPEED))):
        _, wave = render_whole(vocoder, mel, _zero_noise(mel, vocoder.config))
        yield compare("j_tts", name, wave, arrays[name], WAVE_TOLERANCE)


def check_speech_v3(folder: Path) -> Iterator[Comparison]:
    """Compare v3_j_tts; the vocoder is stepped where upstream vocodes everything again for each chunk."""
    arrays, vocoder = read_arrays(folder, "v3_j_tts"), load_vocoder_v3(folder)
    mels, whole = _upstream_mels(folder, CosyVoiceVersion.V3)
    samples = torch.cat(list(vocode_v3(vocoder, mels)), 1)
    yield from _check_stream("v3_j_tts", list(_cut_as_upstream(samples, mels, vocoder.config)), arrays)
    for name, mel in (("wav_offline", whole), ("wav_speed125", stretch_mel(whole, _SPEED))):
        yield compare("v3_j_tts", name, next(vocode_v3(vocoder, (mel,))), arrays[name], WAVE_TOLERANCE)


def _check_stream(case: str, pieces: list[Tensor], arrays: Arrays) -> Iterator[Comparison]:
    lengths = torch.tensor([piece.shape[1] for piece in pieces])
    yield compare(case, "stream_lens", lengths, arrays["stream_lens"], 0.0)
    yield compare(case, "wav_stream", torch.cat(pieces, 1), arrays["wav_stream"], WAVE_TOLERANCE)


def _zero_noise(mel: Tensor, config: HiftConfig) -> Tensor:
    return mel.new_zeros(1, mel.shape[2] * config.samples_per_frame, config.sine_count)


def _upstream_mels(folder: Path, version: CosyVoiceVersion) -> tuple[tuple[Tensor, ...], Tensor]:
    """The mel of each chunk as upstream streams it, the last one unmasked, and the whole mel at once."""
    inputs, _ = read_flow_inputs(folder, version)
    prompt, text_ids = inputs.prompt_ids, inputs.ids.shape[1] - inputs.prompt_ids
    edges = list(_upstream_hop_ends(prompt, text_ids))
    state, mels = inputs.flow.init_state(inputs.speaker), []
    for begin, end in pairwise([-prompt, *edges]):
        mel, state = inputs.flow.step(inputs.chunk(begin + prompt, end + prompt), state)
        mels.append(mel if begin >= 0 else mel[..., FRAMES_PER_SPEECH_ID * prompt :])
    return (*mels, _unmasked_mel(inputs, edges[-1] if edges else 0)), _unmasked_mel(inputs, 0)


def _unmasked_mel(inputs: FlowInputs, begin: int) -> Tensor:
    """The mel from a text id on, everything attending to everything."""
    chunk = inputs.chunk(0, inputs.ids.shape[1], last=True)
    mel = compute_whole(inputs.flow, chunk, inputs.speaker, AttentionMask.NONE)
    return mel[..., FRAMES_PER_SPEECH_ID * (inputs.prompt_ids + begin) :]


def _upstream_hop_ends(prompt_ids: int, ids: int) -> Iterator[int]:
    """Ends of upstream's chunks except the last one, on a model that has just been loaded."""
    hop, end = BLOCK_IDS, 0
    completion = -prompt_ids % BLOCK_IDS
    while ids - end >= hop + completion + LOOKAHEAD_IDS:
        end += hop + completion
        yield end
        hop, completion = min(2 * hop, _MAX_HOP), 0


def _vocode_as_upstream(vocoder: HiftV2, mels: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Samples of each piece of mel as upstream streams them, without noise."""
    state = upstream_vocoder.init_state(vocoder, 1)
    for mel in mels[:-1]:
        noise = _zero_noise(torch.cat([state.mel, mel], 2), vocoder.config)
        samples, state = upstream_vocoder.step(vocoder, mel, noise, state)
        yield samples
    noise = _zero_noise(torch.cat([state.mel, mels[-1]], 2), vocoder.config)
    yield upstream_vocoder.finish(vocoder, mels[-1], noise, state)


def _cut_as_upstream(samples: Tensor, mels: tuple[Tensor, ...], config: HiftConfig) -> Iterator[Tensor]:
    """The samples cut into upstream's v3 chunks, which withhold eight frames."""
    frames, edges = 0, [0]
    for mel in mels[:-1]:
        frames += mel.shape[2]
        edges.append((frames - WITHHELD_FRAMES) * config.samples_per_frame)
    for begin, end in pairwise([*edges, samples.shape[1]]):
        yield samples[:, begin:end]
