"""Names of the settings in cosyvoice{2,3}.yaml and config.json, for reading and for writing.

A table maps the field of a config to its dotted key. ``required_settings`` lists the settings for which the
networks here support a single value; a bundle that states another one is refused, because it would load and
speak wrongly.

Source: FunAudioLLM/CosyVoice@ace7c47 examples/libritts/cosyvoice{2,3}/conf/cosyvoice{2,3}.yaml.
"""

from collections.abc import Mapping
from typing import Any

from ..config import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    MEL_BANDS,
    SAMPLE_RATE,
    SPEAKER_WIDTH,
    SPEECH_IDS_PER_S,
    VOCODER_LOOKAHEAD_FRAMES,
    CosyVoiceVersion,
    UnetConfig,
    released_config,
)
from ..front_end.features import MEL_HOP, MEL_WINDOW

ESTIMATOR = "flow.decoder.estimator"
UP_LAYERS_KEY = "flow.encoder.num_up_blocks"  # fixed in upstream's code; only reduced bundles state it
UNET_CHANNELS_KEY = f"{ESTIMATOR}.channels"  # a list with one level
MEL_MAX_HZ_KEY = "feat_extractor.fmax"

# Of config.json; rope_base and norm_epsilon are fractions.
LM_KEYS = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "text_vocab_size": "vocab_size",
}
LM_FLOAT_KEYS = {"rope_base": "rope_theta", "norm_epsilon": "rms_norm_eps"}

# Of the yaml.
MIX_RATIO_KEY = "llm.mix_ratio"  # text ids, speech ids
CODEBOOK_KEY = "llm.speech_token_size"
ENCODER_KEYS = {
    "width": "flow.encoder.output_size",
    "heads": "flow.encoder.attention_heads",
    "inner": "flow.encoder.linear_units",
    "layers": "flow.encoder.num_blocks",
}
UNET_KEYS = {
    "head_width": f"{ESTIMATOR}.attention_head_dim",
    "heads": f"{ESTIMATOR}.num_heads",
    "blocks": f"{ESTIMATOR}.n_blocks",
    "mid_blocks": f"{ESTIMATOR}.num_mid_blocks",
}
DIT_KEYS = {
    "width": f"{ESTIMATOR}.dim",
    "depth": f"{ESTIMATOR}.depth",
    "heads": f"{ESTIMATOR}.heads",
    "head_width": f"{ESTIMATOR}.dim_head",
    "feed_forward_factor": f"{ESTIMATOR}.ff_mult",
}
LOOKAHEAD_WIDTH_KEY = "flow.pre_lookahead_layer.channels"
HIFT_KEYS = {
    "base_channels": "hift.base_channels",
    "harmonics": "hift.nb_harmonics",
    "n_fft": "hift.istft_params.n_fft",
    "hop": "hift.istft_params.hop_len",
    "f0_channels": "hift.f0_predictor.cond_channels",
}
HIFT_LIST_KEYS = {
    "upsample_rates": "hift.upsample_rates",
    "upsample_kernels": "hift.upsample_kernel_sizes",
    "kernels": "hift.resblock_kernel_sizes",
    "source_kernels": "hift.source_resblock_kernel_sizes",
}
HIFT_ROW_KEYS = {
    "dilations": "hift.resblock_dilation_sizes",
    "source_dilations": "hift.source_resblock_dilation_sizes",
}
SAMPLING_KEYS = {
    "top_p": "llm.sampling.top_p",
    "top_k": "llm.sampling.top_k",
    "repetition_window": "llm.sampling.win_size",
    "repetition_threshold": "llm.sampling.tau_r",
}

# Classes of the tagged mappings whose names decide the architecture.
REQUIRED_CLASSES = {
    CosyVoiceVersion.V2: {
        "llm": "llm.llm.Qwen2LM",
        "flow": "flow.flow.CausalMaskedDiffWithXvec",
        "hift": "hifigan.generator.HiFTGenerator",
    },
    CosyVoiceVersion.V3: {
        "llm": "llm.llm.CosyVoice3LM",
        "flow": "flow.flow.CausalMaskedDiffWithDiT",
        "hift": "hifigan.generator.CausalHiFTGenerator",
    },
}


def required_settings(version: CosyVoiceVersion) -> Mapping[str, Any]:
    """Values that a bundle of this version must state, by dotted key of the yaml."""
    released = released_config(version)
    hift = released.hift
    required: dict[str, Any] = {
        "sample_rate": SAMPLE_RATE,
        "spk_embed_dim": SPEAKER_WIDTH,
        "token_frame_rate": SPEECH_IDS_PER_S,
        "token_mel_ratio": FRAMES_PER_SPEECH_ID,
        "flow.output_size": MEL_BANDS,
        "flow.pre_lookahead_len": LOOKAHEAD_IDS,
        "flow.decoder.cfm_params.content.inference_cfg_rate": released.flow.guidance,
        f"{ESTIMATOR}.static_chunk_size": BLOCK_FRAMES,
        "hift.in_channels": MEL_BANDS,
        "hift.nsf_alpha": hift.sine_amplitude,
        "hift.nsf_sigma": hift.noise_sigma,
        "hift.nsf_voiced_threshold": hift.voiced_above_hz,
        "hift.lrelu_slope": hift.leaky_slope,
        "hift.audio_limit": hift.max_amplitude,
        "feat_extractor.n_fft": MEL_WINDOW,
        "feat_extractor.hop_size": MEL_HOP,
        "feat_extractor.num_mels": MEL_BANDS,
    }
    if version is CosyVoiceVersion.V2:
        return required | {f"{ESTIMATOR}.in_channels": UnetConfig().in_channels}
    return required | {"hift.conv_pre_look_right": VOCODER_LOOKAHEAD_FRAMES}


def optional_settings(version: CosyVoiceVersion) -> Mapping[str, Any]:
    """Values that a bundle of this version may leave out, but must not state otherwise.

    The flow attends in blocks of 25 ids to everything before them, and looks 3 ids ahead.
    """
    optional: dict[str, Any] = {
        "chunk_size": BLOCK_IDS,
        "num_decoding_left_chunks": -1,
        f"{ESTIMATOR}.num_decoding_left_chunks": -1,
    }
    if version is CosyVoiceVersion.V2:
        return optional | {"flow.encoder.static_chunk_size": BLOCK_IDS}
    return optional | {"flow.pre_lookahead_layer.pre_lookahead_len": LOOKAHEAD_IDS}
