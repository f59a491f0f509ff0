"""Reads the config.json of a folder of vectors: network sizes and weight rule, and builds weights from them.

Source: the README.md of tests/golden/data, which describes the layout of such a folder.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from golden.reference.rule_weights import WeightRule, rule_weights
from vivavoce.models.cosyvoice.config import (
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    HiftConfig,
    MixRatio,
    SpeechLmConfig,
    UnetConfig,
)
from vivavoce.models.devices.torch_devices import CPU
from vivavoce.models.networks.layers import load_weights


class UnsupportedGoldenConfigError(ValueError):
    """The vectors are of networks that are not built here; the message says how they differ."""


def read_config(folder: Path) -> dict[str, Any]:
    """The whole config.json."""
    stated: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    return stated


def require_supported(folder: Path) -> None:
    """Raise UnsupportedGoldenConfigError if the networks were run with blocks that are not built here."""
    stated = read_config(folder)["config"]
    supported = {
        "chunk_size": BLOCK_IDS,
        "pre_lookahead_len": LOOKAHEAD_IDS,
        "num_decoding_left_chunks": -1,  # a folder may leave it out
        "token_mel_ratio": FRAMES_PER_SPEECH_ID,
    }
    for name, value in supported.items():
        if stated.get(name, value) != value:
            raise UnsupportedGoldenConfigError(f"config.json: {name} is {stated[name]}; expected {value}")


def read_rule(folder: Path) -> WeightRule:
    """The rule by which the folder's weights are made."""
    stated = read_config(folder)
    return WeightRule(stated["salt"], tuple(stated["multipliers"].items()))


def read_network_config(folder: Path, version: CosyVoiceVersion) -> CosyVoiceConfig:
    """The sizes of the reduced networks."""
    stated = read_config(folder)
    sizes = stated["config"]
    flow = _flow_config(sizes, version, stated["n_timesteps"], stated["cfm"]["inference_cfg_rate"])
    return CosyVoiceConfig(_lm_config(sizes, version), flow, _hift_config(sizes))


def load_rule_weights(network: nn.Module, folder: Path, device: torch.device = CPU) -> None:
    """Load the weights that the folder's rule makes for the keys of a network, on a device."""
    shapes = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    weights = rule_weights(shapes, read_rule(folder))
    load_weights(network, {key: torch.from_numpy(value).to(device) for key, value in weights.items()})


def _lm_config(sizes: dict[str, Any], version: CosyVoiceVersion) -> SpeechLmConfig:
    qwen = sizes["qwen"]
    return SpeechLmConfig(
        version=version,
        hidden=qwen["hidden_size"],
        layers=qwen["num_hidden_layers"],
        heads=qwen["num_attention_heads"],
        kv_heads=qwen["num_key_value_heads"],
        intermediate=qwen["intermediate_size"],
        text_vocab_size=qwen["vocab_size"],
        codebook_size=sizes["speech_token_size"],
        rope_base=qwen["rope_theta"],
        norm_epsilon=qwen["rms_norm_eps"],
        mix_ratio=MixRatio(*sizes["mix_ratio"]),
    )


def _flow_config(
    sizes: dict[str, Any], version: CosyVoiceVersion, solver_steps: int, guidance: float
) -> FlowConfig:
    is_v2 = version is CosyVoiceVersion.V2
    return FlowConfig(
        _encoder_config(sizes["encoder"]) if is_v2 else None,
        _unet_config(sizes["estimator"]) if is_v2 else _dit_config(sizes["dit"]),
        codebook_size=sizes["speech_token_size"],
        speaker_width=sizes["spk_embed_dim"],
        lookahead_width=sizes["pre_lookahead_channels"],
        solver_steps=solver_steps,
        guidance=guidance,
    )


def _encoder_config(encoder: dict[str, Any]) -> EncoderConfig:
    return EncoderConfig(
        width=encoder["dim"],
        heads=encoder["attention_heads"],
        inner=encoder["linear_units"],
        layers=encoder["num_blocks"],
        up_layers=encoder["num_up_blocks"],
    )


def _unet_config(unet: dict[str, Any]) -> UnetConfig:
    return UnetConfig(
        channels=unet["channels"][0],
        head_width=unet["attention_head_dim"],
        heads=unet["num_heads"],
        blocks=unet["n_blocks"],
        mid_blocks=unet["num_mid_blocks"],
    )


def _dit_config(dit: dict[str, Any]) -> DitConfig:
    return DitConfig(
        width=dit["dim"],
        depth=dit["depth"],
        heads=dit["heads"],
        head_width=dit["dim_head"],
        feed_forward_factor=dit["ff_mult"],
    )


def _hift_config(sizes: dict[str, Any]) -> HiftConfig:
    hift = sizes["hift"]
    return HiftConfig(
        base_channels=hift["base_channels"],
        harmonics=hift["nb_harmonics"],
        sample_rate=hift["sampling_rate"],
        sine_amplitude=hift["nsf_alpha"],
        noise_sigma=hift["nsf_sigma"],
        voiced_above_hz=hift["nsf_voiced_threshold"],
        upsample_rates=tuple(hift["upsample_rates"]),
        upsample_kernels=tuple(hift["upsample_kernel_sizes"]),
        n_fft=hift["istft_params"]["n_fft"],
        hop=hift["istft_params"]["hop_len"],
        kernels=tuple(hift["resblock_kernel_sizes"]),
        dilations=tuple(tuple(row) for row in hift["resblock_dilation_sizes"]),
        source_kernels=tuple(hift["source_resblock_kernel_sizes"]),
        source_dilations=tuple(tuple(row) for row in hift["source_resblock_dilation_sizes"]),
        leaky_slope=hift["lrelu_slope"],
        max_amplitude=hift["audio_limit"],
        f0_channels=sizes["f0_cond_channels"],
    )
