"""Networks to train: built of the tensors of a weight file and not prepared, and their tensors for a file.

Parameters are float32, whatever the file has. The tensors that ``lm_tensors`` and ``flow_tensors`` give have
upstream's keys, so that they make a weight file of a bundle.
"""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from ...networks.weight_norm import WeightNorm, WeightNormConv, WeightNormTransposedConv
from ..config import TEXT_EMBEDDING_KEY, CosyVoiceVersion, FlowConfig, HiftConfig, SpeechLmConfig
from ..flow.flow import Flow
from ..lm.speech_lm import SpeechLm, fuse_weights
from ..vocoder.hift_v2 import HiftV2
from ..vocoder.hift_v3 import HiftV3

Network = TypeVar("Network", bound=nn.Module)


def trainable_lm(config: SpeechLmConfig, weights: dict[str, Tensor]) -> SpeechLm:
    """Build the language model of the tensors of llm.pt, which are removed from ``weights``.

    Raises KeyError for a missing key and RuntimeError for a wrong shape.
    """
    with torch.device("meta"):
        lm = SpeechLm(config)
    return _with_parameters(lm, fuse_weights(config, weights))


def trainable_flow(config: FlowConfig, weights: dict[str, Tensor]) -> Flow:
    """Build the flow of the tensors of flow.pt. Raises RuntimeError that names missing and unknown keys."""
    with torch.device("meta"):
        flow = Flow(config)
    return _with_parameters(flow, weights)


def trainable_vocoder(
    config: HiftConfig, version: CosyVoiceVersion, weights: Mapping[str, Tensor]
) -> HiftV2 | HiftV3:
    """Build the vocoder of the tensors of hift.pt. Raises RuntimeError that names missing and unknown keys.

    Call ``fold_weights`` before each pass.
    """
    with torch.device("meta"):
        vocoder = HiftV2(config) if version is CosyVoiceVersion.V2 else HiftV3(config)
    vocoder.spectra.prepare()
    _with_parameters(vocoder, weights)
    vocoder.f0_predictor.condnet.double()  # it computes in double precision
    return vocoder


def fold_weights(vocoder: nn.Module) -> None:
    """Multiply out the weight-normed weights of a vocoder in training, with gradients."""
    for layer in vocoder.modules():
        if isinstance(layer, WeightNormConv | WeightNormTransposedConv):
            parts = layer.get_submodule("parametrizations.weight")
            assert isinstance(parts, WeightNorm)
            length, direction = parts.original0, parts.original1
            weight = direction * (length / direction.flatten(1).norm(dim=1).view_as(length))
            if isinstance(layer, WeightNormConv):
                layer.is_channels_last = layer.dtype is torch.float32 and weight.device.type == "cpu"
                weight = weight[:, :, None] if layer.is_channels_last else weight.to(layer.dtype)
            layer.weight = weight


def _with_parameters(network: Network, weights: Mapping[str, Tensor]) -> Network:
    # Copies: a tensor may be mapped from its file, which training must not write to.
    own = {key: tensor.to(torch.float32, copy=True) for key, tensor in weights.items()}
    network.load_state_dict(own, assign=True)
    network.requires_grad_(True)
    return network.train()


def lm_tensors(config: SpeechLmConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of llm.pt, of those of a network by its own names; the tied head is left out."""
    tensors = {
        TEXT_EMBEDDING_KEY: state["text_embedding.weight"],
        "speech_embedding.weight": state["speech_embedding.weight"],
        "llm.model.model.norm.weight": state["norm.weight"],
        "llm_decoder.weight": state["head.weight"],
    }
    if config.version is CosyVoiceVersion.V2:
        tensors |= {"llm_embedding.weight": state["control_embedding.weight"]}
        tensors |= {"llm_decoder.bias": state["head.bias"]}
    for layer in range(config.layers):
        for key, tensor in _layer_tensors(config, state, f"layers.{layer}.").items():
            tensors[f"llm.model.model.layers.{layer}.{key}"] = tensor
    return tensors


def _layer_tensors(config: SpeechLmConfig, state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    head_counts = (config.heads, config.kv_heads, config.kv_heads)
    widths = [count * config.head_width for count in head_counts]
    parts = {
        "input_layernorm.weight": state[f"{prefix}attention_norm.weight"],
        "self_attn.o_proj.weight": state[f"{prefix}output.weight"],
        "post_attention_layernorm.weight": state[f"{prefix}mlp_norm.weight"],
        "mlp.down_proj.weight": state[f"{prefix}down.weight"],
    }
    for kind in ("weight", "bias"):
        fused = torch.split(state[f"{prefix}qkv.{kind}"], widths)
        parts |= {f"self_attn.{name}_proj.{kind}": part for name, part in zip("qkv", fused, strict=True)}
    gate, up = state[f"{prefix}gate_up.weight"].chunk(2)
    return parts | {"mlp.gate_proj.weight": gate, "mlp.up_proj.weight": up}
