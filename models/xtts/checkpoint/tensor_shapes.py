"""Keys, shapes and types of every tensor of model.pth, computed from a config.

The shapes are written out here, although the modules declare them too, so that a folder is checked without
building a network and against a second source: a test compares both with the list of the release.

Source: the modules of idiap/coqui-ai-TTS 0.28.0 (tts/layers/xtts, tts/models/xtts.py, encoder/models/
resnet.py), as listed in manifest_xtts_v2.json of the golden vectors.
"""

import torch

from ...bundle_files import TensorShape, TensorShapes
from ...checkpoint.weight_files import TensorInfo
from ..config import (
    CONDITIONING_MEL_BANDS,
    ConditioningConfig,
    SpeakerEncoderConfig,
    XttsConfig,
    XttsGptConfig,
    XttsVocoderConfig,
)

MEL_NORMS_KEY = "mel_stats"
COUNTER_SUFFIX = "num_batches_tracked"  # of batch norm; the only whole numbers
# Windows and filters of the speaker encoder's front end, which a checkpoint holds beside its weights.
FRONT_END_SHAPES: TensorShapes = {
    "torch_spec.0.filter": (1, 1, 2),
    "torch_spec.1.spectrogram.window": (400,),
    "torch_spec.1.mel_scale.fb": (257, 64),
}


def model_tensors(config: XttsConfig) -> dict[str, TensorInfo]:
    """Shape and type of every tensor."""
    shapes: TensorShapes = {MEL_NORMS_KEY: (CONDITIONING_MEL_BANDS,)}
    shapes |= _prefixed("gpt", _gpt(config.gpt))
    shapes |= _prefixed("gpt.conditioning_encoder", _frame_encoder(config.conditioning))
    shapes |= _prefixed("gpt.conditioning_perceiver", _perceiver(config.conditioning))
    shapes |= _prefixed("hifigan_decoder.waveform_decoder", _vocoder(config.vocoder))
    shapes |= _prefixed("hifigan_decoder.speaker_encoder", _speaker_encoder(config.speaker_encoder))
    return {key: (shape, tensor_type(key)) for key, shape in shapes.items()}


def tensor_type(key: str) -> torch.dtype:
    """The type of the tensor with this key."""
    return torch.int64 if key.endswith(COUNTER_SUFFIX) else torch.float32


def _prefixed(prefix: str, shapes: TensorShapes) -> TensorShapes:
    return {f"{prefix}.{key}": shape for key, shape in shapes.items()}


def _pair(name: str, weight: TensorShape, bias: int) -> TensorShapes:
    return {f"{name}.weight": weight, f"{name}.bias": (bias,)}


def _norm(name: str, width: int) -> TensorShapes:
    return _pair(name, (width,), width)


def _batch_norm(name: str, width: int) -> TensorShapes:
    running = {f"{name}.running_mean": (width,), f"{name}.running_var": (width,)}
    return _norm(name, width) | running | {f"{name}.{COUNTER_SUFFIX}": ()}


def _weight_norm(name: str, weight: TensorShape, bias: int) -> TensorShapes:
    return {
        f"{name}.bias": (bias,),
        f"{name}.parametrizations.weight.original0": (weight[0], 1, 1),
        f"{name}.parametrizations.weight.original1": weight,
    }


def _gpt(config: XttsGptConfig) -> TensorShapes:
    width = config.hidden
    shapes: TensorShapes = {
        "text_embedding.weight": (config.text_vocab_size, width),
        "mel_embedding.weight": (config.speech_vocab_size, width),
        "mel_pos_embedding.emb.weight": (config.speech_positions, width),
        "text_pos_embedding.emb.weight": (config.text_positions, width),
    }
    shapes |= _norm("final_norm", width) | _norm("gpt.ln_f", width)
    for name, count in (("text_head", config.text_vocab_size), ("mel_head", config.speech_vocab_size)):
        shapes |= _pair(name, (count, width), count)
    for layer in range(config.layers):
        shapes |= _prefixed(f"gpt.h.{layer}", _gpt_block(width))
    return shapes


def _gpt_block(width: int) -> TensorShapes:
    """Matrices of GPT-2 are stored (inputs, outputs)."""
    shapes = _norm("ln_1", width) | _norm("ln_2", width)
    for name, inputs, outputs in (
        ("attn.c_attn", width, 3 * width),
        ("attn.c_proj", width, width),
        ("mlp.c_fc", width, 4 * width),
        ("mlp.c_proj", 4 * width, width),
    ):
        shapes |= _pair(name, (inputs, outputs), outputs)
    return shapes


def _frame_encoder(config: ConditioningConfig) -> TensorShapes:
    width = config.width
    shapes = _pair("init", (width, CONDITIONING_MEL_BANDS, 1), width)
    for block in range(config.blocks):
        attention = _norm("norm", width) | _pair("qkv", (3 * width, width, 1), 3 * width)
        shapes |= _prefixed(f"attn.{block}", attention | _pair("proj_out", (width, width, 1), width))
    return shapes


def _perceiver(config: ConditioningConfig) -> TensorShapes:
    width, inner = config.width, config.perceiver_inner
    heads = config.perceiver_heads * config.perceiver_head_width
    shapes: TensorShapes = {"latents": (config.latents, width), "norm.gamma": (width,)}
    for layer in range(config.perceiver_layers):
        block: TensorShapes = {
            "0.to_q.weight": (heads, width),
            "0.to_kv.weight": (2 * heads, width),
            "0.to_out.weight": (width, heads),
        }
        block |= _pair("1.0", (2 * inner, width), 2 * inner) | _pair("1.2", (width, inner), width)
        shapes |= _prefixed(f"layers.{layer}", block)
    return shapes


def _vocoder(config: XttsVocoderConfig) -> TensorShapes:
    base, speaker = config.base_channels, config.speaker_width
    shapes = _pair("conv_pre", (base, config.input_width, 7), base)
    shapes |= _pair("cond_layer", (base, speaker, 1), base)
    blocks = list(zip(config.kernels, config.dilations, strict=True))
    for stage, kernel in enumerate(config.upsample_kernels):
        channels = config.channels(stage)
        # The weight of a transposed convolution has its inputs first.
        shapes |= _weight_norm(f"ups.{stage}", (2 * channels, channels, kernel), channels)
        shapes |= _pair(f"conds.{stage}", (channels, speaker, 1), channels)
        for index, (block_kernel, dilations) in enumerate(blocks, stage * len(blocks)):
            for name in (f"convs{side}.{pair}" for side in (1, 2) for pair in range(len(dilations))):
                weight = (channels, channels, block_kernel)
                shapes |= _weight_norm(f"resblocks.{index}.{name}", weight, channels)
    return shapes | {"conv_post.weight": (1, channels, 7)}


def _speaker_encoder(config: SpeakerEncoderConfig) -> TensorShapes:
    entering = config.channels[0]
    shapes = _pair("conv1", (entering, 1, 3, 3), entering) | _batch_norm("bn1", entering)
    for stage, (channels, blocks) in enumerate(zip(config.channels, config.blocks, strict=True)):
        for block in range(blocks):
            residual = _residual_block(entering, channels, config.squeeze)
            if block == stage == 0 or entering == channels:
                residual = {key: shape for key, shape in residual.items() if "downsample" not in key}
            shapes |= _prefixed(f"layer{stage + 1}.{block}", residual)
            entering = channels
    width, inner = entering * config.pooled_bands, config.attention_channels
    shapes |= _pair("attention.0", (inner, width, 1), inner) | _batch_norm("attention.2", inner)
    shapes |= _pair("attention.3", (width, inner, 1), width)
    return (
        shapes | _pair("fc", (config.embedding_width, 2 * width), config.embedding_width) | FRONT_END_SHAPES
    )


def _residual_block(entering: int, channels: int, squeeze: int) -> TensorShapes:
    shapes: TensorShapes = {
        "conv1.weight": (channels, entering, 3, 3),
        "conv2.weight": (channels, channels, 3, 3),
        "downsample.0.weight": (channels, entering, 1, 1),
    }
    shapes |= (
        _batch_norm("bn1", channels) | _batch_norm("bn2", channels) | _batch_norm("downsample.1", channels)
    )
    inner = channels // squeeze
    return shapes | _pair("se.fc.0", (inner, channels), inner) | _pair("se.fc.2", (channels, inner), channels)
