"""Loads the three networks of a checked bundle in torch.

Each network is built at the sizes that the bundle states and takes every tensor of its weight file: a missing
or an unused tensor is an error.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/model.py:67-75.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..devices.execution import DeviceError, Precision
from ..devices.torch_devices import CPU, compute_exactly
from ..networks.kernel_cache import keep_compiled_kernels
from ..networks.layers import load_weights
from ..networks.precision import drop_low_halves
from .checkpoint.bundle import CosyVoiceBundle, InvalidBundleError
from .config import TEXT_EMBEDDING_KEY, CosyVoiceVersion
from .flow.flow import Flow
from .flow.policy import FlowPolicy
from .lm.speech_lm import SpeechLm
from .vocoder.hift_v2 import HiftV2
from .vocoder.hift_v3 import HiftV3
from .vocoder.layers import Vocoder


@dataclass(frozen=True, slots=True)
class RenderNetworks:
    """Speech ids to mel, mel to samples."""

    flow: Flow
    vocoder: Vocoder


@dataclass(frozen=True, slots=True)
class CosyVoiceNetworks(RenderNetworks):
    """All networks; the language model makes speech ids of text ids."""

    lm: SpeechLm


def load_networks(
    bundle: CosyVoiceBundle,
    policy: FlowPolicy | None = None,
    precision: Precision = Precision.FP32,
    device: torch.device = CPU,
) -> CosyVoiceNetworks:
    """Load all three networks onto ``device``, one weight file after the other.

    ``policy`` sets the attention memory of the flow; ``precision`` is the language model's. Raises
    InvalidBundleError and DeviceError.
    """
    lm = load_lm(bundle, precision, device)
    render = load_render_networks(bundle, policy, device)
    return CosyVoiceNetworks(flow=render.flow, vocoder=render.vocoder, lm=lm)


def load_render_networks(
    bundle: CosyVoiceBundle, policy: FlowPolicy | None, device: torch.device
) -> RenderNetworks:
    """Load the flow and the vocoder only, as ``load_networks`` does."""
    return RenderNetworks(load_flow(bundle, policy, device), load_vocoder(bundle, device))


def load_lm(
    bundle: CosyVoiceBundle, precision: Precision = Precision.FP32, device: torch.device = CPU
) -> SpeechLm:
    """Load the language model.

    On a CPU the text embedding (half a gigabyte) stays in its file: only rows that are read occupy memory.
    Raises InvalidBundleError, and DeviceError if the device does not support the precision.
    """
    _prepare_device(bundle, device)
    if precision is Precision.INT8 and device.type != "cpu":
        raise DeviceError(f"int8 is for a CPU, and the device is {device}; take bf16 or fp16")
    if precision is Precision.FP32_FP16 and device.type == "cpu":
        raise DeviceError(f"{precision} is for a card, and the device is {device}; take fp32")
    if precision.of_lm is Precision.INT4:
        raise DeviceError(f"{precision} needs the executor onnxruntime, and the executor is torch")
    weights = _read_weights(bundle, "llm.pt", device, memory_mapped=(TEXT_EMBEDDING_KEY,))
    lm = SpeechLm.load(bundle.network_config.lm, weights, precision.of_lm)
    if weights:
        raise InvalidBundleError(f"llm.pt: {len(weights)} tensors are not used, {next(iter(weights))} first")
    return lm


def load_flow(bundle: CosyVoiceBundle, policy: FlowPolicy | None = None, device: torch.device = CPU) -> Flow:
    """Load the flow of either version. Raises InvalidBundleError."""
    _prepare_device(bundle, device)
    with torch.device("meta"):
        flow = Flow(bundle.network_config.flow, policy)
    _load_network(flow, bundle, "flow.pt", device)
    if flow.policy.products is Precision.FP16:
        drop_low_halves(flow)
    return flow


def load_vocoder(bundle: CosyVoiceBundle, device: torch.device = CPU) -> HiftV2 | HiftV3:
    """Load the vocoder of the bundle's version. Raises InvalidBundleError."""
    _prepare_device(bundle, device)
    config = bundle.network_config.hift
    with torch.device("meta"):
        vocoder = HiftV2(config) if bundle.version is CosyVoiceVersion.V2 else HiftV3(config)
    _load_network(vocoder, bundle, "hift.pt", device)
    # The window is computed, not read from the weight file.
    vocoder.spectra.window = vocoder.spectra.window.to(device)
    return vocoder


def _prepare_device(bundle: CosyVoiceBundle, device: torch.device) -> None:
    compute_exactly(device)
    keep_compiled_kernels(bundle.folder, device)


def _load_network(network: nn.Module, bundle: CosyVoiceBundle, name: str, device: torch.device) -> None:
    weights = _read_weights(bundle, name, device)
    try:
        load_weights(network, weights)
    except RuntimeError as error:
        if not weights:  # the network has taken them, so that the device is at fault
            raise
        raise InvalidBundleError(f"{name}: {str(error).splitlines()[-1].strip()}") from error


def _read_weights(
    bundle: CosyVoiceBundle, name: str, device: torch.device, memory_mapped: Collection[str] = ()
) -> dict[str, Tensor]:
    weights = bundle.load(name, memory_mapped)
    for key in weights:  # one by one, so that no more than one tensor exists on both sides
        weights[key] = weights[key].to(device)
    return weights
