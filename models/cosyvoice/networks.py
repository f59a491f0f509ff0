"""The three networks of a checked bundle, built at its sizes and loaded: every tensor used, none left over.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/model.py:67-75.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .checkpoint.bundle import CosyVoiceBundle, InvalidBundleError
from .config import CosyVoiceConfig, CosyVoiceVersion
from .devices import CPU, DeviceError
from .flow.dit import DitConfig
from .flow.encoder import EncoderConfig
from .flow.flow import Flow, FlowConfig
from .flow.state import FlowPolicy
from .flow.unet import UnetConfig
from .layers import load_weights
from .lm.speech_lm import TEXT_EMBEDDING_KEY, SpeechLm
from .precision import Precision
from .vocoder.hift_v2 import HiftV2
from .vocoder.hift_v3 import HiftV3
from .vocoder.layers import HiftConfig


@dataclass(frozen=True, slots=True)
class CosyVoiceNetworks:
    """Text ids to speech ids, speech ids to mel, mel to samples."""

    lm: SpeechLm
    flow: Flow
    vocoder: HiftV2 | HiftV3


def load_networks(
    bundle: CosyVoiceBundle,
    policy: FlowPolicy | None = None,
    precision: Precision = Precision.FP32,
    device: torch.device = CPU,
) -> CosyVoiceNetworks:
    """Load all three, one file after the other; raises InvalidBundleError.

    policy: what the flow remembers. precision: of the language model. device: that they compute on.
    """
    return CosyVoiceNetworks(
        load_lm(bundle, precision, device), load_flow(bundle, policy, device), load_vocoder(bundle, device)
    )


def load_lm(
    bundle: CosyVoiceBundle, precision: Precision = Precision.FP32, device: torch.device = CPU
) -> SpeechLm:
    """The language model.

    Of its text embedding, half a gigabyte, only the rows that are used come to a CPU's memory. Raises
    InvalidBundleError, and DeviceError for a precision that the device has not.
    """
    if precision is Precision.INT8 and device.type != "cpu":
        raise DeviceError(f"int8 is for a CPU, and the device is {device}; take bf16 or fp16")
    weights = _read_weights(bundle, "llm.pt", device, memory_mapped=(TEXT_EMBEDDING_KEY,))
    lm = SpeechLm.load(bundle.network_config.lm, weights, precision)
    if weights:
        raise InvalidBundleError(
            f"llm.pt: {len(weights)} tensors are not used, {next(iter(weights))} among them"
        )
    return lm


def load_flow(bundle: CosyVoiceBundle, policy: FlowPolicy | None = None, device: torch.device = CPU) -> Flow:
    """The flow of either version."""
    with torch.device("meta"):
        flow = Flow(flow_config(bundle.network_config), policy)
    _load_network(flow, bundle, "flow.pt", device)
    return flow


def load_vocoder(bundle: CosyVoiceBundle, device: torch.device = CPU) -> HiftV2 | HiftV3:
    """The vocoder of the bundle's version."""
    config = hift_config(bundle.network_config)
    with torch.device("meta"):
        vocoder = HiftV2(config) if bundle.version is CosyVoiceVersion.V2 else HiftV3(config)
    _load_network(vocoder, bundle, "hift.pt", device)
    vocoder.spectra.window = vocoder.spectra.window.to(device)  # comes from no weight
    return vocoder


def flow_config(config: CosyVoiceConfig) -> FlowConfig:
    """The flow's sizes in its own words."""
    sizes = config.flow
    if config.version is CosyVoiceVersion.V3:
        dit = sizes.dit
        return FlowConfig(
            encoder=None,
            estimator=DitConfig(dit.width, dit.depth, dit.heads, dit.head_width, dit.factor),
            speech_ids=config.lm.codebook_size,
            speaker_width=sizes.speaker,
            lookahead_width=sizes.lookahead_channels,
        )
    encoder, unet = sizes.encoder, sizes.unet
    return FlowConfig(
        encoder=EncoderConfig(encoder.width, encoder.heads, encoder.inner, encoder.layers, encoder.up_layers),
        estimator=UnetConfig(
            channels=unet.channels,
            attention_head_dim=unet.head_width,
            blocks=unet.blocks,
            mid_blocks=unet.mid_blocks,
            heads=unet.heads,
        ),
        speech_ids=config.lm.codebook_size,
        speaker_width=sizes.speaker,
    )


def hift_config(config: CosyVoiceConfig) -> HiftConfig:
    """The vocoder's sizes in its own words."""
    sizes = config.hift
    return HiftConfig(
        base_channels=sizes.channels,
        harmonics=sizes.harmonics,
        upsample_rates=sizes.upsample_rates,
        upsample_kernels=sizes.upsample_kernels,
        n_fft=sizes.transform,
        hop=sizes.hop,
        kernels=sizes.resblock_kernels,
        dilations=(sizes.dilations,) * len(sizes.resblock_kernels),
        source_kernels=sizes.source_kernels,
        source_dilations=(sizes.dilations,) * len(sizes.source_kernels),
        f0_channels=sizes.f0_channels,
    )


def _load_network(network: nn.Module, bundle: CosyVoiceBundle, name: str, device: torch.device) -> None:
    try:
        load_weights(network, _read_weights(bundle, name, device))
    except RuntimeError as error:
        raise InvalidBundleError(f"{name}: {str(error).splitlines()[-1].strip()}") from error


def _read_weights(
    bundle: CosyVoiceBundle, name: str, device: torch.device, memory_mapped: Collection[str] = ()
) -> dict[str, Tensor]:
    weights = bundle.load(name, memory_mapped)
    for key in weights:  # one by one, so that none is held twice
        weights[key] = weights[key].to(device)
    return weights
