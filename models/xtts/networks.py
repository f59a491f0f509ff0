"""Loads the networks of a checked XTTS bundle.

Each network is built at the sizes that the bundle states and takes its tensors of model.pth; a missing tensor
is an error. Nothing is downloaded, and no file is written. The encoders of voices are needed while a voice is
made only, so they are loaded apart, and their weights stay in the file.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..devices.execution import Precision
from ..devices.host_memory import release_free_heap
from ..devices.torch_devices import CPU
from ..networks.kernel_cache import keep_compiled_kernels
from .checkpoint.bundle import XttsBundle
from .checkpoint.tensor_shapes import MEL_NORMS_KEY
from .checkpoint.weight_file import load_model, map_model, model_path
from .conditioning import CONDITIONING_PREFIXES, ConditioningEncoder
from .config import XttsConfig, XttsGptConfig
from .gpt import TEXT_EMBEDDING_KEY, TorchXttsGpt, XttsGpt
from .onnx_gpt import OnnxXttsGpt
from .speaker_encoder import SPEAKER_ENCODER_PREFIX, XttsSpeakerEncoder
from .vocoder import XttsVocoder
from .voice import XttsVoiceEncoder

_VOICE_ENCODER_KEYS = (*CONDITIONING_PREFIXES, SPEAKER_ENCODER_PREFIX, MEL_NORMS_KEY)


@dataclass(frozen=True, slots=True)
class XttsNetworks:
    """Text ids to speech ids and latents, latents to samples."""

    gpt: XttsGpt
    vocoder: XttsVocoder


def load_networks(
    bundle: XttsBundle, device: torch.device = CPU, precision: Precision = Precision.FP32
) -> XttsNetworks:
    """Load what speaks onto ``device``. precision: of the language model's matrices.

    On a CPU the text embedding stays in its file: only rows that are read occupy memory. Raises
    WeightFileError.
    """
    keep_compiled_kernels(bundle.folder, device)
    tokenizer = bundle.tokenizer()
    weights = _read_weights(bundle, device)
    networks = build_networks(
        bundle.settings.config, weights, tokenizer.start_id, tokenizer.stop_id, precision
    )
    release_free_heap()  # matrices are packed one by one, which leaves half a gigabyte in pieces
    return networks


def load_voice_encoder(bundle: XttsBundle) -> XttsVoiceEncoder:
    """What makes voices of recordings, on the CPU.

    Its weights stay in the file: a page is read when it is first used, and leaves memory with the encoder.
    Raises WeightFileError.
    """
    return build_voice_encoder(bundle.settings.config, map_model(model_path(bundle.folder)))


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
    gpt = _load_gpt(config.gpt, weights, (start_text_id, stop_text_id), precision)
    return XttsNetworks(gpt, XttsVocoder.load(config.vocoder, weights))


def _load_gpt(
    config: XttsGptConfig, weights: dict[str, Tensor], text_ends: tuple[int, int], precision: Precision
) -> XttsGpt:
    if precision is Precision.INT8:
        return OnnxXttsGpt.load(config, weights, *text_ends)
    return TorchXttsGpt.load(config, weights, *text_ends, precision)


def build_voice_encoder(config: XttsConfig, weights: dict[str, Tensor]) -> XttsVoiceEncoder:
    """Build the encoders of voices as ``build_networks``."""
    return XttsVoiceEncoder(
        ConditioningEncoder.load(config.conditioning, weights),
        XttsSpeakerEncoder.load(config.speaker_encoder, weights),
        weights.pop(MEL_NORMS_KEY),
    )


def _read_weights(bundle: XttsBundle, device: torch.device) -> dict[str, Tensor]:
    """The tensors of what speaks."""
    path = model_path(bundle.folder)
    weights = load_model(path)
    for key in [key for key in weights if key.startswith(_VOICE_ENCODER_KEYS)]:
        del weights[key]
    if device.type == "cpu":
        weights[TEXT_EMBEDDING_KEY] = map_model(path)[TEXT_EMBEDDING_KEY]
    return {key: tensor.to(device) for key, tensor in weights.items()}
