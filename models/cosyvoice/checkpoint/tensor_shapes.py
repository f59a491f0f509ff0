"""What a checkpoint must hold: every key and shape of llm.pt, flow.pt and hift.pt, from a geometry.

Keys are relative to the module that upstream saves; all tensors are float32. Nothing is read or allocated
here.

Source: the modules of FunAudioLLM/CosyVoice@ace7c47 (llm/llm.py, flow/flow.py, flow/decoder.py,
flow/DiT/dit.py, transformer/upsample_encoder.py, hifigan/generator.py, hifigan/f0_predictor.py); checked
against the state dicts of freshly built ones at the released sizes.
"""

from ..config import (
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitSizes,
    EncoderSizes,
    HiftSizes,
    SpeechLmConfig,
    UnetSizes,
)

TensorShape = tuple[int, ...]
TensorShapes = dict[str, TensorShape]

WEIGHT_FILES = ("llm.pt", "flow.pt", "hift.pt")

_MEL_BANDS = 80
_LOOKAHEAD_IDS = 3
_UP_KERNEL = 5
_TIME_WIDTH = 256  # of version 3's sinusoidal time embedding
_POSITION_KERNEL = 31
_POSITION_GROUPS = 16
_F0_CONVOLUTIONS = (0, 2, 4, 6, 8)  # activations lie between them


def file_shapes(config: CosyVoiceConfig) -> dict[str, TensorShapes]:
    """The shapes of each weight file, by its name."""
    return {
        "llm.pt": llm_shapes(config.lm),
        "flow.pt": flow_shapes(config),
        "hift.pt": hift_shapes(config.hift, config.version),
    }


def llm_shapes(sizes: SpeechLmConfig) -> TensorShapes:
    """The language model."""
    embedding = (sizes.text_vocab_size, sizes.hidden)
    speech = (sizes.speech_vocab_size, sizes.hidden)
    shapes: TensorShapes = {
        "llm.model.model.embed_tokens.weight": embedding,
        "llm.model.lm_head.weight": embedding,
    }
    for layer in range(sizes.layers):
        shapes |= _prefixed(f"llm.model.model.layers.{layer}", _decoder_layer(sizes))
    shapes |= {"llm.model.model.norm.weight": (sizes.hidden,), "speech_embedding.weight": speech}
    if sizes.version is CosyVoiceVersion.V3:
        return shapes | {"llm_decoder.weight": speech}
    return shapes | _linear("llm_decoder", *speech) | {"llm_embedding.weight": (2, sizes.hidden)}


def flow_shapes(config: CosyVoiceConfig) -> TensorShapes:
    """Speech ids to mel."""
    flow, codes = config.flow, config.lm.codebook_size
    speaker = _linear("spk_embed_affine_layer", _MEL_BANDS, flow.speaker)
    if config.version is CosyVoiceVersion.V3:
        return (
            {"input_embedding.weight": (codes, _MEL_BANDS)}
            | speaker
            | _prefixed("pre_lookahead_layer", _lookahead(_MEL_BANDS, flow.lookahead_channels))
            | _prefixed("decoder.estimator", _dit(flow.dit))
        )
    return (
        {"input_embedding.weight": (codes, flow.encoder.width)}
        | speaker
        | _prefixed("encoder", _encoder(flow.encoder))
        | _linear("encoder_proj", _MEL_BANDS, flow.encoder.width)
        | _prefixed("decoder.estimator", _unet(flow.unet))
    )


def hift_shapes(sizes: HiftSizes, version: CosyVoiceVersion) -> TensorShapes:
    """Mel to samples."""
    shapes = _linear("m_source.l_linear", 1, sizes.harmonics + 1)
    before = 7 if version is CosyVoiceVersion.V2 else sizes.look_right + 1
    shapes |= _weight_norm("conv_pre", (sizes.channels, _MEL_BANDS, before), sizes.channels)
    shapes |= _upsampling(sizes, version)
    last = sizes.channels >> len(sizes.upsample_rates)
    shapes |= _weight_norm("conv_post", (sizes.transform + 2, last, 7), sizes.transform + 2)
    return shapes | _prefixed("f0_predictor", _f0(sizes, version))


def _prefixed(prefix: str, shapes: TensorShapes) -> TensorShapes:
    return {f"{prefix}.{key}": shape for key, shape in shapes.items()}


def _linear(name: str, outputs: int, *inputs: int) -> TensorShapes:
    """A matrix or a convolution, with a bias."""
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> TensorShapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _weight_norm(name: str, weight: TensorShape, bias: int) -> TensorShapes:
    """A weight-normalised convolution: a gain for each first index, a direction, a bias."""
    return {
        f"{name}.bias": (bias,),
        f"{name}.parametrizations.weight.original0": (weight[0], 1, 1),
        f"{name}.parametrizations.weight.original1": weight,
    }


def _decoder_layer(sizes: SpeechLmConfig) -> TensorShapes:
    hidden, inner = sizes.hidden, sizes.intermediate
    shared = sizes.kv_heads * sizes.head_width
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
    return _linear("conv1", channels, width, _LOOKAHEAD_IDS + 1) | _linear("conv2", width, channels, 3)


def _encoder(sizes: EncoderSizes) -> TensorShapes:
    width = sizes.width
    shapes = _norm("after_norm", width) | _linear("up_layer.conv", width, width, _UP_KERNEL)
    shapes |= _prefixed("pre_lookahead_layer", _lookahead(width, width))
    for name in ("embed", "up_embed"):
        shapes |= _linear(f"{name}.out.0", width, width) | _norm(f"{name}.out.1", width)
    for stack, layers in (("encoders", sizes.layers), ("up_encoders", sizes.up_layers)):
        for layer in range(layers):
            shapes |= _prefixed(f"{stack}.{layer}", _conformer_layer(sizes))
    return shapes


def _conformer_layer(sizes: EncoderSizes) -> TensorShapes:
    width, bias = sizes.width, (sizes.heads, sizes.width // sizes.heads)
    shapes: TensorShapes = {"self_attn.pos_bias_u": bias, "self_attn.pos_bias_v": bias}
    shapes["self_attn.linear_pos.weight"] = (width, width)
    for name in ("q", "k", "v", "out"):
        shapes |= _linear(f"self_attn.linear_{name}", width, width)
    shapes |= _linear("feed_forward.w_1", sizes.inner, width) | _linear(
        "feed_forward.w_2", width, sizes.inner
    )
    return shapes | _norm("norm_ff", width) | _norm("norm_mha", width)


def _unet(sizes: UnetSizes) -> TensorShapes:
    width, input_width = sizes.channels, 4 * _MEL_BANDS
    time = 4 * width
    shapes = _linear("time_mlp.linear_1", time, input_width) | _linear("time_mlp.linear_2", time, time)
    shapes |= _prefixed("down_blocks.0", _unet_block(sizes, input_width) | _linear("2", width, width, 3))
    for block in range(sizes.mid_blocks):
        shapes |= _prefixed(f"mid_blocks.{block}", _unet_block(sizes, width))
    shapes |= _prefixed("up_blocks.0", _unet_block(sizes, 2 * width) | _linear("2", width, width, 3))
    shapes |= _prefixed("final_block", _causal_block(width, width))
    return shapes | _linear("final_proj", _MEL_BANDS, width, 1)


def _unet_block(sizes: UnetSizes, input_width: int) -> TensorShapes:
    width = sizes.channels
    residual = _linear("mlp.1", width, 4 * width) | _linear("res_conv", width, input_width, 1)
    residual |= _prefixed("block1", _causal_block(width, input_width)) | _prefixed(
        "block2", _causal_block(width, width)
    )
    shapes = _prefixed("0", residual)
    for block in range(sizes.blocks):
        shapes |= _prefixed(f"1.{block}", _transformer_block(sizes))
    return shapes


def _causal_block(width: int, input_width: int) -> TensorShapes:
    return _linear("block.0", width, input_width, 3) | _norm("block.2", width)


def _transformer_block(sizes: UnetSizes) -> TensorShapes:
    width, inner = sizes.channels, sizes.heads * sizes.head_width
    attention: TensorShapes = {f"attn1.to_{name}.weight": (inner, width) for name in "qkv"}
    attention |= _linear("attn1.to_out.0", width, inner)
    feed_forward = _linear("ff.net.0.proj", 4 * width, width) | _linear("ff.net.2", width, 4 * width)
    return attention | feed_forward | _norm("norm1", width) | _norm("norm3", width)


def _dit(sizes: DitSizes) -> TensorShapes:
    width = sizes.width
    position = (width // _POSITION_GROUPS, _POSITION_KERNEL)
    shapes = _linear("time_embed.time_mlp.0", width, _TIME_WIDTH)
    shapes |= _linear("time_embed.time_mlp.2", width, width)
    shapes |= _linear("input_embed.proj", width, 4 * _MEL_BANDS)
    for name in ("conv1", "conv2"):
        shapes |= _linear(f"input_embed.conv_pos_embed.{name}.0", width, *position)
    shapes["rotary_embed.inv_freq"] = (sizes.head_width // 2,)
    for block in range(sizes.depth):
        shapes |= _prefixed(f"transformer_blocks.{block}", _dit_block(sizes))
    return shapes | _linear("norm_out.linear", 2 * width, width) | _linear("proj_out", _MEL_BANDS, width)


def _dit_block(sizes: DitSizes) -> TensorShapes:
    width, inner = sizes.width, sizes.heads * sizes.head_width
    shapes = _linear("attn_norm.linear", 6 * width, width)
    for name in "qkv":
        shapes |= _linear(f"attn.to_{name}", inner, width)
    shapes |= _linear("attn.to_out.0", width, inner)
    hidden = sizes.factor * width
    return shapes | _linear("ff.ff.0.0", hidden, width) | _linear("ff.ff.2", width, hidden)


def _upsampling(sizes: HiftSizes, version: CosyVoiceVersion) -> TensorShapes:
    shapes: TensorShapes = {}
    steps = zip(sizes.upsample_kernels, sizes.source_kernels, _source_kernels(sizes), strict=True)
    for step, (kernel, source_kernel, input_width) in enumerate(steps):
        entering, leaving = sizes.channels >> step, sizes.channels >> (step + 1)
        # Version 2 transposes its convolutions, and with them the order of channels.
        order = (entering, leaving) if version is CosyVoiceVersion.V2 else (leaving, entering)
        shapes |= _weight_norm(f"ups.{step}", (*order, kernel), leaving)
        shapes |= _linear(f"source_downs.{step}", leaving, sizes.transform + 2, input_width)
        dilations = len(sizes.dilations)
        shapes |= _prefixed(f"source_resblocks.{step}", _resblock(leaving, source_kernel, dilations))
        for index, resblock_kernel in enumerate(sizes.resblock_kernels):
            number = step * len(sizes.resblock_kernels) + index
            shapes |= _prefixed(f"resblocks.{number}", _resblock(leaving, resblock_kernel, dilations))
    return shapes


def _source_kernels(sizes: HiftSizes) -> list[int]:
    """Kernels that bring the source to each step's rate: twice the rates that are still to come."""
    kernels = []
    remaining = 1
    for rate in reversed(sizes.upsample_rates):
        kernels.append(1 if remaining == 1 else 2 * remaining)
        remaining *= rate
    return kernels[::-1]


def _resblock(width: int, kernel: int, dilations: int) -> TensorShapes:
    shapes: TensorShapes = {}
    for side in ("1", "2"):
        for index in range(dilations):
            shapes |= _weight_norm(f"convs{side}.{index}", (width, width, kernel), width)
            shapes[f"activations{side}.{index}.alpha"] = (width,)
    return shapes


def _f0(sizes: HiftSizes, version: CosyVoiceVersion) -> TensorShapes:
    width = sizes.f0_channels
    shapes = _linear("classifier", 1, width)
    for place in _F0_CONVOLUTIONS:
        first = place == 0
        kernel = 4 if first and version is CosyVoiceVersion.V3 else 3
        shapes |= _weight_norm(f"condnet.{place}", (width, _MEL_BANDS if first else width, kernel), width)
    return shapes
