"""Weights made from their own names, so that networks can be checked without a checkpoint.

The rule behind the golden vectors: a tensor is drawn from a generator seeded by the CRC-32 of its key, scaled
so that activations stay of order one, and a few named tensors are multiplied afterwards. Nothing here knows a
network: keys and shapes come from the caller, keys as they stand in llm.pt, flow.pt and hift.pt.

Source: the weight rule of the golden set (its README and config.json); upstream's keys are
FunAudioLLM/CosyVoice@ace7c47.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vivavoce.models.cosyvoice.checkpoint.random_weights import (
    EMBEDDING_KEY,
    ROTARY_KEY_END,
    TIED_HEAD_KEY,
    Float,
    rotary_frequencies,
    scale_for_key,
)
from vivavoce.models.cosyvoice.config import (
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitSizes,
    EncoderSizes,
    FlowSizes,
    HiftSizes,
    SpeechLmConfig,
    UnetSizes,
)


@dataclass(frozen=True, slots=True)
class WeightRule:
    """How a golden set makes its weights. multipliers: (end of a key, factor)."""

    salt: str = ""
    multipliers: tuple[tuple[str, float], ...] = ()


def read_rule(folder: Path) -> WeightRule:
    """The rule that a golden folder's config.json states."""
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    return WeightRule(stated["salt"], tuple(stated["multipliers"].items()))


def read_stated_config(folder: Path, version: CosyVoiceVersion) -> CosyVoiceConfig:
    """The sizes of the reduced networks that a golden folder's config.json states."""
    stated = json.loads((folder / "config.json").read_text("utf-8"))["config"]
    return CosyVoiceConfig(_lm_config(stated, version), _flow_sizes(stated), _read_hift(stated))


def _lm_config(stated: dict[str, Any], version: CosyVoiceVersion) -> SpeechLmConfig:
    qwen = stated["qwen"]
    return SpeechLmConfig(
        version=version,
        hidden=qwen["hidden_size"],
        layers=qwen["num_hidden_layers"],
        heads=qwen["num_attention_heads"],
        kv_heads=qwen["num_key_value_heads"],
        intermediate=qwen["intermediate_size"],
        text_vocab_size=qwen["vocab_size"],
        codebook_size=stated["speech_token_size"],
        rope_base=qwen["rope_theta"],
        norm_epsilon=qwen["rms_norm_eps"],
    )


def _flow_sizes(stated: dict[str, Any]) -> FlowSizes:
    encoder, unet, dit = stated["encoder"], stated["estimator"], stated["dit"]
    return FlowSizes(
        speaker=stated["spk_embed_dim"],
        encoder=EncoderSizes(
            width=encoder["dim"],
            heads=encoder["attention_heads"],
            inner=encoder["linear_units"],
            layers=encoder["num_blocks"],
            up_layers=encoder["num_up_blocks"],
        ),
        unet=UnetSizes(
            channels=unet["channels"][0],
            head_width=unet["attention_head_dim"],
            heads=unet["num_heads"],
            blocks=unet["n_blocks"],
            mid_blocks=unet["num_mid_blocks"],
        ),
        lookahead_channels=stated["pre_lookahead_channels"],
        dit=DitSizes(dit["dim"], dit["depth"], dit["heads"], dit["dim_head"], dit["ff_mult"]),
    )


def _read_hift(stated: dict[str, Any]) -> HiftSizes:
    hift = stated["hift"]
    return HiftSizes(
        channels=hift["base_channels"],
        harmonics=hift["nb_harmonics"],
        upsample_rates=tuple(hift["upsample_rates"]),
        upsample_kernels=tuple(hift["upsample_kernel_sizes"]),
        resblock_kernels=tuple(hift["resblock_kernel_sizes"]),
        source_kernels=tuple(hift["source_resblock_kernel_sizes"]),
        dilations=tuple(hift["resblock_dilation_sizes"][0]),
        transform=hift["istft_params"]["n_fft"],
        hop=hift["istft_params"]["hop_len"],
        f0_channels=stated["f0_cond_channels"],
        look_right=stated["conv_pre_look_right"],
    )


def rule_weight(key: str, shape: Sequence[int], rule: WeightRule) -> Float:
    """One tensor; float32 of the shape given."""
    if key.endswith(ROTARY_KEY_END):
        return rotary_frequencies(shape)
    source = EMBEDDING_KEY if key == TIED_HEAD_KEY else key
    generator = np.random.Generator(np.random.PCG64(zlib.crc32((rule.salt + source).encode())))
    drawn = scale_for_key(source, generator.standard_normal(tuple(shape)).astype(np.float32))
    for end, factor in rule.multipliers:
        if source.endswith(end):
            drawn *= np.float32(factor)
    return drawn


def rule_weights(shapes: Mapping[str, Sequence[int]], rule: WeightRule) -> dict[str, Float]:
    """A tensor for every key, e.g. for ``load_state_dict`` by way of ``torch.from_numpy``."""
    return {key: rule_weight(key, shape, rule) for key, shape in shapes.items()}
