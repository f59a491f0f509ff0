"""Loads the networks of a checked XTTS bundle.

Each network is built at the sizes that the bundle states and takes its tensors of model.pth; a missing tensor
is an error. Nothing is downloaded, and no file is written.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..cosyvoice.devices import CPU
from ..cosyvoice.execution import Precision
from ..cosyvoice.host_memory import return_freed_memory
from .checkpoint.bundle import XttsBundle
from .checkpoint.tensor_shapes import MEL_NORMS_KEY
from .checkpoint.weight_file import load_model, model_path
from .conditioning import ConditioningEncoder
from .config import XttsConfig
from .gpt import XttsGpt
from .speaker_encoder import XttsSpeakerEncoder
from .vocoder import XttsVocoder
from .voice import XttsVoiceEncoder


@dataclass(frozen=True, slots=True)
class XttsNetworks:
    """Recordings to a voice, text ids to speech ids and latents, latents to samples."""

    voice_encoder: XttsVoiceEncoder
    gpt: XttsGpt
    vocoder: XttsVocoder


def load_networks(
    bundle: XttsBundle, device: torch.device = CPU, precision: Precision = Precision.FP32
) -> XttsNetworks:
    """Load all networks of a bundle onto ``device``. precision: of the language model's matrices.

    Raises WeightFileError.
    """
    tokenizer = bundle.tokenizer()
    weights = {key: tensor.to(device) for key, tensor in load_model(model_path(bundle.folder)).items()}
    networks = build_networks(
        bundle.settings.config, weights, tokenizer.start_id, tokenizer.stop_id, precision
    )
    return_freed_memory()  # matrices are packed one by one, which leaves half a gigabyte in pieces
    return networks


def load_voice_encoder(bundle: XttsBundle) -> XttsVoiceEncoder:
    """Load what makes voices of recordings, on the CPU. Raises WeightFileError."""
    return _voice_encoder(bundle.settings.config, load_model(model_path(bundle.folder)))


def build_networks(
    config: XttsConfig,
    weights: dict[str, Tensor],
    start_text_id: int,
    stop_text_id: int,
    precision: Precision = Precision.FP32,
) -> XttsNetworks:
    """Build the networks from the tensors of model.pth, which are removed from ``weights``.

    Raises KeyError or RuntimeError that names missing keys.
    """
    voice_encoder = _voice_encoder(config, weights)
    gpt = XttsGpt.load(config.gpt, weights, start_text_id, stop_text_id, precision)
    return XttsNetworks(voice_encoder, gpt, XttsVocoder.load(config.vocoder, weights))


def _voice_encoder(config: XttsConfig, weights: dict[str, Tensor]) -> XttsVoiceEncoder:
    return XttsVoiceEncoder(
        ConditioningEncoder.load(config.conditioning, weights),
        XttsSpeakerEncoder.load(config.speaker_encoder, weights),
        weights.pop(MEL_NORMS_KEY),
    )
