"""Cases g_hifigan and h_stream: latents to samples, whole and streamed; also upstream's way of streaming."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from golden.reference.comparison import Comparison, compare, compare_rows, read_arrays
from golden.reference.golden_config import read_config
from golden.reference.xtts.decoding import StoredUniforms, decode, sampled
from golden.reference.xtts.networks import load_rule_networks
from vivavoce.models.networks.weight_norm import WeightNormTransposedConv
from vivavoce.models.xtts.config import FRAMES_PER_LATENT
from vivavoce.models.xtts.gpt import XttsPrompt
from vivavoce.models.xtts.latent_resampler import LatentResampler, LinearInterpolator
from vivavoce.models.xtts.sampling import XttsSampling
from vivavoce.models.xtts.vocoder import LeakyResBlock, XttsVocoder

WAVE_TOLERANCE = 1e-4
_STEP_IDS = (1, 7, 3, 20, 2)  # ids of the steps of a stream, in turn


@torch.inference_mode()
def check_vocoder(folder: Path) -> Iterator[Comparison]:
    """Compare both interpolations, every stage of the generator, and the samples."""
    arrays, vocoder = read_arrays(folder, "g_hifigan"), load_rule_networks(folder).vocoder
    speaker = read_arrays(folder, "b_speaker")["emb_full"][:, :, 0]
    latents = read_arrays(folder, "f_latents")
    thirty = latents["lat_eos100"][0, :30]
    interpolator = LinearInterpolator(float(FRAMES_PER_LATENT))
    quadrupled = torch.cat([interpolator.push(thirty), interpolator.finish()])
    yield compare("g_hifigan", "i1", quadrupled.T[None], arrays["i1"], WAVE_TOLERANCE)
    for name, some in (("30", thirty), ("3", thirty[:3])):
        z = LatentResampler().finish(some).T
        yield compare("g_hifigan", f"z{name}", z, arrays[f"z{name}"], WAVE_TOLERANCE)
        wave = whole(vocoder, some, speaker)
        yield compare("g_hifigan", f"wav{name}", wave[None, None], arrays[f"wav{name}"], WAVE_TOLERANCE)
    z = arrays["z3"][None]
    yield compare("g_hifigan", "pre3", padded(vocoder.conv_pre, z)[0], arrays["pre3"], WAVE_TOLERANCE)
    for stage, upsampled in enumerate(upsampled_stages(vocoder, z, speaker)):
        yield compare("g_hifigan", f"up{stage}", upsampled, arrays[f"up{stage}"], WAVE_TOLERANCE)
    wave = whole(vocoder, latents["sp_1.25"][0, :20], speaker)
    yield compare("g_hifigan", "wav_sp", wave[None, None], arrays["wav_sp"], WAVE_TOLERANCE)


@torch.inference_mode()
def check_stream(folder: Path) -> Iterator[Comparison]:
    """Compare ids, streamed samples with upstream's whole ones, and upstream's chunks with our imitation."""
    arrays, networks = read_arrays(folder, "h_stream"), load_rule_networks(folder)
    given = read_arrays(folder, "d_gpt")
    speaker = read_arrays(folder, "b_speaker")["emb_full"][:, :, 0]
    prompt = XttsPrompt(given["cond"][0], given["text"][0].tolist())
    for name, stated in read_config(folder)["streams"].items():
        draw = sampled(StoredUniforms(arrays[f"u_{name}"]), XttsSampling())
        ids, latents, _ = decode(networks.gpt, prompt, draw)
        yield compare_rows("h_stream", f"tok_{name}", ids, arrays[f"tok_{name}"].tolist())
        speed, overlap = stated["params"].get("speed", 1.0), stated["params"]["overlap_wav_len"]
        wave = torch.cat(list(stream(networks.vocoder, latents, speaker, speed)))
        yield compare("h_stream", f"off_{name}", wave, arrays[f"off_{name}"], WAVE_TOLERANCE)
        sizes = range(
            stated["params"]["stream_chunk_size"], len(ids) + 1, stated["params"]["stream_chunk_size"]
        )
        waves = [whole(networks.vocoder, latents[:size], speaker, speed) for size in (*sizes, len(ids))]
        chunks = cross_faded(waves, overlap)
        yield compare_rows("h_stream", f"lengths_{name}", list(map(len, chunks)), stated["chunk_lens"])
        yield compare(
            "h_stream", f"chunks_{name}", torch.cat(chunks), arrays[f"chunks_{name}"], WAVE_TOLERANCE
        )
        last = cross_faded(waves, overlap, withhold_end=True)[-1]
        yield compare("h_stream", f"oldlast_{name}", last, arrays[f"oldlast_{name}"], WAVE_TOLERANCE)


def stream(vocoder: XttsVocoder, latents: Tensor, speaker: Tensor, speed: float = 1.0) -> Iterator[Tensor]:
    """Samples of one utterance, step by step, from latents (n, hidden)."""
    resampler, state = LatentResampler(speed), vocoder.init_state(speaker)
    start, turn = 0, 0
    while len(latents) - start > _STEP_IDS[turn % len(_STEP_IDS)]:
        count = _STEP_IDS[turn % len(_STEP_IDS)]
        z = resampler.push(latents[start : start + count]).T[None]
        start, turn = start + count, turn + 1
        if z.shape[2]:
            samples, following = vocoder.step(z, state)
            yield samples[0, vocoder.utterance_part(state, 0, samples.shape[1])]
            state = following
    yield vocoder.finish(resampler.finish(latents[start:]).T[None], state)[0]


def whole(vocoder: XttsVocoder, latents: Tensor, speaker: Tensor, speed: float = 1.0) -> Tensor:
    """Samples of latents (n, hidden) in one step."""
    z = LatentResampler(speed).finish(latents).T[None]
    return vocoder.finish(z, vocoder.init_state(speaker))[0]


def cross_faded(waves: Sequence[Tensor], overlap: int, *, withhold_end: bool = False) -> list[Tensor]:
    """Upstream's chunks, given the samples of all latents so far at each chunk.

    ``withhold_end``: as before version 0.28, which never sends the last ``overlap`` samples.
    """
    chunks: list[Tensor] = []
    rise = torch.linspace(0, 1, overlap)
    for index, wave in enumerate(waves):
        is_whole = index == len(waves) - 1 and not withhold_end
        start = len(waves[index - 1]) - overlap if index else 0
        chunk = wave[start : len(wave) if is_whole else len(wave) - overlap].clone()
        if index and len(chunk) < overlap:
            chunk = wave[-overlap:]
        elif index:
            chunk[:overlap] = chunk[:overlap] * rise + waves[index - 1][-overlap:] * rise.flip(0)
        chunks.append(chunk)
    return chunks


def padded(conv: torch.nn.Module, x: Tensor) -> Tensor:
    """A plain convolution with zeros beyond both ends."""
    weight, bias = conv.weight, conv.bias
    assert isinstance(weight, Tensor)
    return F.conv1d(x, weight, bias if isinstance(bias, Tensor) else None, padding=weight.shape[2] // 2)


def upsampled_stages(vocoder: XttsVocoder, z: Tensor, speaker: Tensor) -> Iterator[Tensor]:
    """Output of each transposed convolution for a whole utterance: z (1, width, T)."""
    x = padded(vocoder.conv_pre, z) + vocoder.cond_layer(speaker[:, :, None])
    for stage, up in enumerate(vocoder.ups):
        assert isinstance(up, WeightNormTransposedConv)
        x = up(F.leaky_relu(x, vocoder.config.leaky_slope))
        yield x
        x = x + vocoder.conds[stage](speaker[:, :, None])
        blocks = vocoder.stage_blocks(stage)
        x = torch.stack([_run_block(block, x) for block in blocks]).mean(0)


def _run_block(block: LeakyResBlock, x: Tensor) -> Tensor:
    for dilated, plain in block.pairs():
        y = dilated.same_padded(F.leaky_relu(x, block.leaky_slope))
        x = x + plain.same_padded(F.leaky_relu(y, block.leaky_slope))
    return x
