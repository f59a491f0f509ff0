"""What a checkpoint must hold: every key and shape of llm.pt, flow.pt and hift.pt, from a geometry.

Keys are relative to the module that upstream saves; all tensors are float32. Nothing is read or allocated
here.

Source: the modules of FunAudioLLM/CosyVoice@ace7c47 (llm/llm.py, flow/flow.py, flow/decoder.py,
flow/DiT/dit.py, transformer/upsample_encoder.py, hifigan/generator.py, hifigan/f0_predictor.py); checked
against the state dicts of freshly built ones at the released sizes.
"""

from ..geometry import DitSizes, EncoderSizes, Geometry, HiftSizes, SpeechLmConfig, UnetSizes, Version

Shape = tuple[int, ...]
Shapes = dict[str, Shape]

FILES = ("llm.pt", "flow.pt", "hift.pt")

_MEL = 80
_LOOKAHEAD = 3
_UP_KERNEL = 5
_TIME_WIDTH = 256  # of version 3's sinusoidal time embedding
_POSITION_KERNEL = 31
_POSITION_GROUPS = 16
_F0_CONVOLUTIONS = (0, 2, 4, 6, 8)  # activations lie between them


def file_shapes(geometry: Geometry) -> dict[str, Shapes]:
    """The shapes of each weight file, by its name."""
    return {
        "llm.pt": llm_shapes(geometry.lm),
        "flow.pt": flow_shapes(geometry),
        "hift.pt": hift_shapes(geometry.hift, geometry.version),
    }


def llm_shapes(sizes: SpeechLmConfig) -> Shapes:
    """The language model."""
    embedding = (sizes.text_rows, sizes.hidden)
    speech = (sizes.speech_rows, sizes.hidden)
    shapes: Shapes = {"llm.model.model.embed_tokens.weight": embedding, "llm.model.lm_head.weight": embedding}
    for layer in range(sizes.layers):
        shapes |= _under(f"llm.model.model.layers.{layer}", _decoder_layer(sizes))
    shapes |= {"llm.model.model.norm.weight": (sizes.hidden,), "speech_embedding.weight": speech}
    if sizes.version is Version.V3:
        return shapes | {"llm_decoder.weight": speech}
    return shapes | _linear("llm_decoder", *speech) | {"llm_embedding.weight": (2, sizes.hidden)}


def flow_shapes(geometry: Geometry) -> Shapes:
    """Speech ids to mel."""
    flow, codes = geometry.flow, geometry.lm.speech_codes
    speaker = _linear("spk_embed_affine_layer", _MEL, flow.speaker)
    if geometry.version is Version.V3:
        return (
            {"input_embedding.weight": (codes, _MEL)}
            | speaker
            | _under("pre_lookahead_layer", _lookahead(_MEL, flow.lookahead_channels))
            | _under("decoder.estimator", _dit(flow.dit))
        )
    return (
        {"input_embedding.weight": (codes, flow.encoder.width)}
        | speaker
        | _under("encoder", _encoder(flow.encoder))
        | _linear("encoder_proj", _MEL, flow.encoder.width)
        | _under("decoder.estimator", _unet(flow.unet))
    )


def hift_shapes(sizes: HiftSizes, version: Version) -> Shapes:
    """Mel to samples."""
    shapes = _linear("m_source.l_linear", 1, sizes.harmonics + 1)
    before = 7 if version is Version.V2 else sizes.look_right + 1
    shapes |= _normed("conv_pre", (sizes.channels, _MEL, before), sizes.channels)
    shapes |= _upsampling(sizes, version)
    last = sizes.channels >> len(sizes.upsample_rates)
    shapes |= _normed("conv_post", (sizes.transform + 2, last, 7), sizes.transform + 2)
    return shapes | _under("f0_predictor", _f0(sizes, version))


def _under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{key}": shape for key, shape in shapes.items()}


def _linear(name: str, outputs: int, *inputs: int) -> Shapes:
    """A matrix or a convolution, with a bias."""
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _normed(name: str, weight: Shape, bias: int) -> Shapes:
    """A weight-normalised convolution: a gain for each first index, a direction, a bias."""
    return {
        f"{name}.bias": (bias,),
        f"{name}.parametrizations.weight.original0": (weight[0], 1, 1),
        f"{name}.parametrizations.weight.original1": weight,
    }


def _decoder_layer(sizes: SpeechLmConfig) -> Shapes:
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


def _lookahead(width: int, channels: int) -> Shapes:
    return _linear("conv1", channels, width, _LOOKAHEAD + 1) | _linear("conv2", width, channels, 3)


def _encoder(sizes: EncoderSizes) -> Shapes:
    width = sizes.width
    shapes = _norm("after_norm", width) | _linear("up_layer.conv", width, width, _UP_KERNEL)
    shapes |= _under("pre_lookahead_layer", _lookahead(width, width))
    for name in ("embed", "up_embed"):
        shapes |= _linear(f"{name}.out.0", width, width) | _norm(f"{name}.out.1", width)
    for stack, layers in (("encoders", sizes.layers), ("up_encoders", sizes.up_layers)):
        for layer in range(layers):
            shapes |= _under(f"{stack}.{layer}", _conformer_layer(sizes))
    return shapes


def _conformer_layer(sizes: EncoderSizes) -> Shapes:
    width, bias = sizes.width, (sizes.heads, sizes.width // sizes.heads)
    shapes: Shapes = {"self_attn.pos_bias_u": bias, "self_attn.pos_bias_v": bias}
    shapes["self_attn.linear_pos.weight"] = (width, width)
    for name in ("q", "k", "v", "out"):
        shapes |= _linear(f"self_attn.linear_{name}", width, width)
    shapes |= _linear("feed_forward.w_1", sizes.inner, width) | _linear(
        "feed_forward.w_2", width, sizes.inner
    )
    return shapes | _norm("norm_ff", width) | _norm("norm_mha", width)


def _unet(sizes: UnetSizes) -> Shapes:
    width, entry = sizes.channels, 4 * _MEL
    time = 4 * width
    shapes = _linear("time_mlp.linear_1", time, entry) | _linear("time_mlp.linear_2", time, time)
    shapes |= _under("down_blocks.0", _unet_block(sizes, entry) | _linear("2", width, width, 3))
    for block in range(sizes.mid_blocks):
        shapes |= _under(f"mid_blocks.{block}", _unet_block(sizes, width))
    shapes |= _under("up_blocks.0", _unet_block(sizes, 2 * width) | _linear("2", width, width, 3))
    shapes |= _under("final_block", _causal_block(width, width))
    return shapes | _linear("final_proj", _MEL, width, 1)


def _unet_block(sizes: UnetSizes, entry: int) -> Shapes:
    width = sizes.channels
    residual = _linear("mlp.1", width, 4 * width) | _linear("res_conv", width, entry, 1)
    residual |= _under("block1", _causal_block(width, entry)) | _under("block2", _causal_block(width, width))
    shapes = _under("0", residual)
    for block in range(sizes.blocks):
        shapes |= _under(f"1.{block}", _transformer_block(sizes))
    return shapes


def _causal_block(width: int, entry: int) -> Shapes:
    return _linear("block.0", width, entry, 3) | _norm("block.2", width)


def _transformer_block(sizes: UnetSizes) -> Shapes:
    width, inner = sizes.channels, sizes.heads * sizes.head_width
    attention: Shapes = {f"attn1.to_{name}.weight": (inner, width) for name in "qkv"}
    attention |= _linear("attn1.to_out.0", width, inner)
    feed_forward = _linear("ff.net.0.proj", 4 * width, width) | _linear("ff.net.2", width, 4 * width)
    return attention | feed_forward | _norm("norm1", width) | _norm("norm3", width)


def _dit(sizes: DitSizes) -> Shapes:
    width = sizes.width
    position = (width // _POSITION_GROUPS, _POSITION_KERNEL)
    shapes = _linear("time_embed.time_mlp.0", width, _TIME_WIDTH)
    shapes |= _linear("time_embed.time_mlp.2", width, width)
    shapes |= _linear("input_embed.proj", width, 4 * _MEL)
    for name in ("conv1", "conv2"):
        shapes |= _linear(f"input_embed.conv_pos_embed.{name}.0", width, *position)
    shapes["rotary_embed.inv_freq"] = (sizes.head_width // 2,)
    for block in range(sizes.depth):
        shapes |= _under(f"transformer_blocks.{block}", _dit_block(sizes))
    return shapes | _linear("norm_out.linear", 2 * width, width) | _linear("proj_out", _MEL, width)


def _dit_block(sizes: DitSizes) -> Shapes:
    width, inner = sizes.width, sizes.heads * sizes.head_width
    shapes = _linear("attn_norm.linear", 6 * width, width)
    for name in "qkv":
        shapes |= _linear(f"attn.to_{name}", inner, width)
    shapes |= _linear("attn.to_out.0", width, inner)
    hidden = sizes.factor * width
    return shapes | _linear("ff.ff.0.0", hidden, width) | _linear("ff.ff.2", width, hidden)


def _upsampling(sizes: HiftSizes, version: Version) -> Shapes:
    shapes: Shapes = {}
    steps = zip(sizes.upsample_kernels, sizes.source_kernels, _source_kernels(sizes), strict=True)
    for step, (kernel, source_kernel, entry) in enumerate(steps):
        entering, leaving = sizes.channels >> step, sizes.channels >> (step + 1)
        # Version 2 transposes its convolutions, and with them the order of channels.
        order = (entering, leaving) if version is Version.V2 else (leaving, entering)
        shapes |= _normed(f"ups.{step}", (*order, kernel), leaving)
        shapes |= _linear(f"source_downs.{step}", leaving, sizes.transform + 2, entry)
        dilations = len(sizes.dilations)
        shapes |= _under(f"source_resblocks.{step}", _resblock(leaving, source_kernel, dilations))
        for index, resblock_kernel in enumerate(sizes.resblock_kernels):
            number = step * len(sizes.resblock_kernels) + index
            shapes |= _under(f"resblocks.{number}", _resblock(leaving, resblock_kernel, dilations))
    return shapes


def _source_kernels(sizes: HiftSizes) -> list[int]:
    """Kernels that bring the source to each step's rate: twice the rates that are still to come."""
    kernels = []
    remaining = 1
    for rate in reversed(sizes.upsample_rates):
        kernels.append(1 if remaining == 1 else 2 * remaining)
        remaining *= rate
    return kernels[::-1]


def _resblock(width: int, kernel: int, dilations: int) -> Shapes:
    shapes: Shapes = {}
    for side in ("1", "2"):
        for index in range(dilations):
            shapes |= _normed(f"convs{side}.{index}", (width, width, kernel), width)
            shapes[f"activations{side}.{index}.alpha"] = (width,)
    return shapes


def _f0(sizes: HiftSizes, version: Version) -> Shapes:
    width = sizes.f0_channels
    shapes = _linear("classifier", 1, width)
    for place in _F0_CONVOLUTIONS:
        first = place == 0
        kernel = 4 if first and version is Version.V3 else 3
        shapes |= _normed(f"condnet.{place}", (width, _MEL if first else width, kernel), width)
    return shapes
