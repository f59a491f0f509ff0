"""Keys and shapes of every tensor in llm.pt, flow.pt and hift.pt, computed from a config.

Keys are relative to the module that upstream saves; all tensors are float32. The shapes are written out here,
although the modules declare them too, so that a folder is checked without building a network and against a
second source: a test compares both with the released checkpoints.

Source: the modules of FunAudioLLM/CosyVoice@ace7c47 (llm/llm.py, flow/flow.py, flow/decoder.py,
flow/DiT/dit.py, transformer/upsample_encoder.py, hifigan/generator.py, hifigan/f0_predictor.py); compared
with the state dicts of freshly built ones at the released config.
"""

from ...bundle_files import TensorShape, TensorShapes
from ..config import (
    LOOKAHEAD_IDS,
    MEL_BANDS,
    TEXT_EMBEDDING_KEY,
    TIED_HEAD_KEY,
    VOCODER_LOOKAHEAD_FRAMES,
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    HiftConfig,
    SpeechLmConfig,
    UnetConfig,
)

WEIGHT_FILES = ("llm.pt", "flow.pt", "hift.pt")

_UP_KERNEL = 5  # of the convolution after the encoder doubles its frames
_TIME_WIDTH = 256  # of version 3's sinusoidal time embedding
_POSITION_KERNEL = 31  # of version 3's position convolutions
_POSITION_GROUPS = 16
_F0_CONVOLUTIONS = (0, 2, 4, 6, 8)  # indices; the odd ones are activations


def file_shapes(config: CosyVoiceConfig) -> dict[str, TensorShapes]:
    """Shapes of the tensors of each weight file, by file name."""
    return {
        "llm.pt": llm_shapes(config.lm),
        "flow.pt": flow_shapes(config.flow),
        "hift.pt": hift_shapes(config.hift, config.version),
    }


def llm_shapes(config: SpeechLmConfig) -> TensorShapes:
    """Shapes of llm.pt."""
    embedding = (config.text_vocab_size, config.hidden)
    speech = (config.speech_vocab_size, config.hidden)
    shapes: TensorShapes = {
        TEXT_EMBEDDING_KEY: embedding,
        TIED_HEAD_KEY: embedding,
    }
    for layer in range(config.layers):
        shapes |= _prefixed(f"llm.model.model.layers.{layer}", _decoder_layer(config))
    shapes |= {"llm.model.model.norm.weight": (config.hidden,), "speech_embedding.weight": speech}
    if config.version is CosyVoiceVersion.V3:
        return shapes | {"llm_decoder.weight": speech}
    return shapes | _linear("llm_decoder", *speech) | {"llm_embedding.weight": (2, config.hidden)}


def flow_shapes(config: FlowConfig) -> TensorShapes:
    """Shapes of flow.pt."""
    width = config.encoder.width if config.encoder else MEL_BANDS
    shapes: TensorShapes = {"input_embedding.weight": (config.codebook_size, width)}
    shapes |= _linear("spk_embed_affine_layer", MEL_BANDS, config.speaker_width)
    if config.encoder:
        shapes |= _prefixed("encoder", _encoder(config.encoder)) | _linear("encoder_proj", MEL_BANDS, width)
    else:
        shapes |= _prefixed("pre_lookahead_layer", _lookahead(width, config.lookahead_width))
    return shapes | _prefixed("decoder.estimator", _estimator(config.estimator))


def hift_shapes(config: HiftConfig, version: CosyVoiceVersion) -> TensorShapes:
    """Shapes of hift.pt."""
    shapes = _linear("m_source.l_linear", 1, config.harmonics + 1)
    before = 7 if version is CosyVoiceVersion.V2 else VOCODER_LOOKAHEAD_FRAMES + 1
    shapes |= _weight_norm("conv_pre", (config.base_channels, MEL_BANDS, before), config.base_channels)
    shapes |= _upsampling(config, version)
    last = config.channels(len(config.upsample_rates) - 1)
    shapes |= _weight_norm("conv_post", (config.n_fft + 2, last, 7), config.n_fft + 2)
    return shapes | _prefixed("f0_predictor", _f0(config, version))


def _prefixed(prefix: str, shapes: TensorShapes) -> TensorShapes:
    return {f"{prefix}.{key}": shape for key, shape in shapes.items()}


def _linear(name: str, outputs: int, *inputs: int) -> TensorShapes:
    """A matrix or a convolution with a bias."""
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> TensorShapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _weight_norm(name: str, weight: TensorShape, bias: int) -> TensorShapes:
    """A weight-normalised convolution: a gain for each first index, a direction, and a bias."""
    return {
        f"{name}.bias": (bias,),
        f"{name}.parametrizations.weight.original0": (weight[0], 1, 1),
        f"{name}.parametrizations.weight.original1": weight,
    }


def _decoder_layer(config: SpeechLmConfig) -> TensorShapes:
    hidden, inner = config.hidden, config.intermediate
    shared = config.kv_heads * config.head_width
    return {
        **_linear("self_attn.q_proj", hidden, hidden),
        **_linear("self_attn.k_proj", shared, hidden),
        **_linear("self_attn.v_proj", shared, hidden),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }


def _lookahead(width: int, channels: int) -> TensorShapes:
    return _linear("conv1", channels, width, LOOKAHEAD_IDS + 1) | _linear("conv2", width, channels, 3)


def _encoder(config: EncoderConfig) -> TensorShapes:
    width = config.width
    shapes = _norm("after_norm", width) | _linear("up_layer.conv", width, width, _UP_KERNEL)
    shapes |= _prefixed("pre_lookahead_layer", _lookahead(width, width))
    for name in ("embed", "up_embed"):
        shapes |= _linear(f"{name}.out.0", width, width) | _norm(f"{name}.out.1", width)
    for stack, layers in (("encoders", config.layers), ("up_encoders", config.up_layers)):
        for layer in range(layers):
            shapes |= _prefixed(f"{stack}.{layer}", _conformer_layer(config))
    return shapes


def _conformer_layer(config: EncoderConfig) -> TensorShapes:
    width, bias = config.width, (config.heads, config.width // config.heads)
    shapes: TensorShapes = {"self_attn.pos_bias_u": bias, "self_attn.pos_bias_v": bias}
    shapes["self_attn.linear_pos.weight"] = (width, width)
    for name in ("q", "k", "v", "out"):
        shapes |= _linear(f"self_attn.linear_{name}", width, width)
    shapes |= _linear("feed_forward.w_1", config.inner, width) | _linear(
        "feed_forward.w_2", width, config.inner
    )
    return shapes | _norm("norm_ff", width) | _norm("norm_mha", width)


def _estimator(config: UnetConfig | DitConfig) -> TensorShapes:
    return _unet(config) if isinstance(config, UnetConfig) else _dit(config)


def _unet(config: UnetConfig) -> TensorShapes:
    width, input_width = config.channels, config.in_channels
    time = 4 * width
    shapes = _linear("time_mlp.linear_1", time, input_width) | _linear("time_mlp.linear_2", time, time)
    shapes |= _prefixed("down_blocks.0", _unet_block(config, input_width) | _linear("2", width, width, 3))
    for block in range(config.mid_blocks):
        shapes |= _prefixed(f"mid_blocks.{block}", _unet_block(config, width))
    shapes |= _prefixed("up_blocks.0", _unet_block(config, 2 * width) | _linear("2", width, width, 3))
    shapes |= _prefixed("final_block", _causal_block(width, width))
    return shapes | _linear("final_proj", MEL_BANDS, width, 1)


def _unet_block(config: UnetConfig, input_width: int) -> TensorShapes:
    width = config.channels
    residual = _linear("mlp.1", width, 4 * width) | _linear("res_conv", width, input_width, 1)
    residual |= _prefixed("block1", _causal_block(width, input_width)) | _prefixed(
        "block2", _causal_block(width, width)
    )
    shapes = _prefixed("0", residual)
    for block in range(config.blocks):
        shapes |= _prefixed(f"1.{block}", _transformer_block(config))
    return shapes


def _causal_block(width: int, input_width: int) -> TensorShapes:
    return _linear("block.0", width, input_width, 3) | _norm("block.2", width)


def _transformer_block(config: UnetConfig) -> TensorShapes:
    width, inner = config.channels, config.inner
    attention: TensorShapes = {f"attn1.to_{name}.weight": (inner, width) for name in "qkv"}
    attention |= _linear("attn1.to_out.0", width, inner)
    feed_forward = _linear("ff.net.0.proj", 4 * width, width) | _linear("ff.net.2", width, 4 * width)
    return attention | feed_forward | _norm("norm1", width) | _norm("norm3", width)


def _dit(config: DitConfig) -> TensorShapes:
    width = config.width
    position = (width // _POSITION_GROUPS, _POSITION_KERNEL)
    shapes = _linear("time_embed.time_mlp.0", width, _TIME_WIDTH)
    shapes |= _linear("time_embed.time_mlp.2", width, width)
    shapes |= _linear("input_embed.proj", width, config.in_channels)
    for name in ("conv1", "conv2"):
        shapes |= _linear(f"input_embed.conv_pos_embed.{name}.0", width, *position)
    shapes["rotary_embed.inv_freq"] = (config.head_width // 2,)
    for block in range(config.depth):
        shapes |= _prefixed(f"transformer_blocks.{block}", _dit_block(config))
    return shapes | _linear("norm_out.linear", 2 * width, width) | _linear("proj_out", MEL_BANDS, width)


def _dit_block(config: DitConfig) -> TensorShapes:
    width, inner = config.width, config.inner
    shapes = _linear("attn_norm.linear", 6 * width, width)
    for name in "qkv":
        shapes |= _linear(f"attn.to_{name}", inner, width)
    shapes |= _linear("attn.to_out.0", width, inner)
    hidden = config.feed_forward_factor * width
    return shapes | _linear("ff.ff.0.0", hidden, width) | _linear("ff.ff.2", width, hidden)


def _upsampling(config: HiftConfig, version: CosyVoiceVersion) -> TensorShapes:
    shapes: TensorShapes = {}
    blocks = list(zip(config.kernels, config.dilations, strict=True))
    for stage, kernel in enumerate(config.upsample_kernels):
        entering, leaving = config.base_channels >> stage, config.channels(stage)
        # Version 2 uses transposed convolutions, whose weights have inputs first.
        order = (entering, leaving) if version is CosyVoiceVersion.V2 else (leaving, entering)
        shapes |= _weight_norm(f"ups.{stage}", (*order, kernel), leaving)
        down_kernel = _source_down_kernel(config.source_strides[stage])
        shapes |= _linear(f"source_downs.{stage}", leaving, config.n_fft + 2, down_kernel)
        source_block = _resblock(leaving, config.source_kernels[stage], config.source_dilations[stage])
        shapes |= _prefixed(f"source_resblocks.{stage}", source_block)
        for index, (block_kernel, dilations) in enumerate(blocks, stage * len(blocks)):
            shapes |= _prefixed(f"resblocks.{index}", _resblock(leaving, block_kernel, dilations))
    return shapes


def _source_down_kernel(stride: int) -> int:
    """Kernel of the convolution that brings the source spectrum to a stage's rate."""
    return 2 * stride if stride > 1 else 1


def _resblock(width: int, kernel: int, dilations: tuple[int, ...]) -> TensorShapes:
    shapes: TensorShapes = {}
    for side in ("1", "2"):
        for index in range(len(dilations)):
            shapes |= _weight_norm(f"convs{side}.{index}", (width, width, kernel), width)
            shapes[f"activations{side}.{index}.alpha"] = (width,)
    return shapes


def _f0(config: HiftConfig, version: CosyVoiceVersion) -> TensorShapes:
    width = config.f0_channels
    shapes = _linear("classifier", 1, width)
    for place in _F0_CONVOLUTIONS:
        first = place == 0
        kernel = 4 if first and version is CosyVoiceVersion.V3 else 3
        shapes |= _weight_norm(f"condnet.{place}", (width, MEL_BANDS if first else width, kernel), width)
    return shapes
