"""Settings files of a random bundle, in the words of a release.

Settings that only upstream reads are written too, so that upstream can load a random bundle.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from ..config import (
    MEL_BANDS,
    SAMPLE_RATE,
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitConfig,
    SpeechLmConfig,
)
from ..front_end.features import MEL_WINDOW
from ..lm.sampling import SamplingParameters
from . import setting_keys as keys

_MEL_MAX_HZ = {CosyVoiceVersion.V2: 8000, CosyVoiceVersion.V3: None}
_MAX_POSITION_EMBEDDINGS = 32_768  # not read here

# Tags of the nested mappings; those of llm, flow and hift are in setting_keys.
_TAGS = {
    "llm.sampling": "!name:cosyvoice.utils.common.ras_sampling",
    "flow.decoder": "!new:cosyvoice.flow.flow_matching.CausalConditionalCFM",
    "flow.decoder.cfm_params": "!new:omegaconf.DictConfig",
    "feat_extractor": "!name:matcha.utils.audio.mel_spectrogram",
}
_TAGS_OF_VERSION = {
    CosyVoiceVersion.V2: {
        "flow.encoder": "!new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder",
        keys.ESTIMATOR: "!new:cosyvoice.flow.decoder.CausalConditionalDecoder",
        "hift.f0_predictor": "!new:cosyvoice.hifigan.f0_predictor.ConvRNNF0Predictor",
    },
    CosyVoiceVersion.V3: {
        "flow.pre_lookahead_layer": "!new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer",
        keys.ESTIMATOR: "!new:cosyvoice.flow.DiT.dit.DiT",
        "hift.f0_predictor": "!new:cosyvoice.hifigan.f0_predictor.CausalConvRNNF0Predictor",
    },
}


def qwen_settings(config: SpeechLmConfig) -> dict[str, Any]:
    """Content of the config.json in the Qwen folder."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_act": "silu",
        "max_position_embeddings": _MAX_POSITION_EMBEDDINGS,
        "tie_word_embeddings": True,
        **_fields(config, keys.LM_KEYS),
        **_fields(config, keys.LM_FLOAT_KEYS),
    }


def yaml_settings(config: CosyVoiceConfig) -> str:
    """Text of cosyvoice2.yaml or cosyvoice3.yaml."""
    version = config.version
    settings = {
        **keys.required_settings(version),
        **_lm_settings(config.lm),
        **_flow_settings(config),
        **_hift_settings(config),
        **_feature_settings(version),
    }
    tags = _TAGS | _TAGS_OF_VERSION[version]
    tags |= {key: f"!new:cosyvoice.{path}" for key, path in keys.REQUIRED_CLASSES[version].items()}
    return str(yaml.dump(_nested(settings, tags), Dumper=_TagDumper, sort_keys=False))


def _lm_settings(config: SpeechLmConfig) -> dict[str, Any]:
    return {
        "llm_input_size": config.hidden,
        "llm_output_size": config.hidden,
        keys.CODEBOOK_KEY: config.codebook_size,
        keys.MIX_RATIO_KEY: [config.mix_ratio.text_ids, config.mix_ratio.speech_ids],
        **_fields(SamplingParameters(), keys.SAMPLING_KEYS),
    }


def _flow_settings(config: CosyVoiceConfig) -> dict[str, Any]:
    flow = config.flow
    settings: dict[str, Any] = {
        **keys.optional_settings(config.version),
        "flow.input_size": flow.encoder.width if flow.encoder else MEL_BANDS,
        "flow.vocab_size": flow.codebook_size,
        "flow.decoder.in_channels": 3 * MEL_BANDS,
        "flow.decoder.n_spks": 1,
        "flow.decoder.spk_emb_dim": MEL_BANDS,
        "flow.decoder.cfm_params.content.sigma_min": 1e-6,
        "flow.decoder.cfm_params.content.solver": "euler",
        "flow.decoder.cfm_params.content.t_scheduler": "cosine",
    }
    if flow.encoder:
        settings |= _fields(flow.encoder, keys.ENCODER_KEYS)
        settings[keys.UP_LAYERS_KEY] = flow.encoder.up_layers
    else:
        settings["flow.pre_lookahead_layer.in_channels"] = MEL_BANDS
        settings[keys.LOOKAHEAD_WIDTH_KEY] = flow.lookahead_width
    if isinstance(flow.estimator, DitConfig):
        return settings | _fields(flow.estimator, keys.DIT_KEYS)
    settings |= _fields(flow.estimator, keys.UNET_KEYS)
    settings[keys.UNET_CHANNELS_KEY] = [flow.estimator.channels]
    settings[f"{keys.ESTIMATOR}.out_channels"] = flow.estimator.out_channels
    settings[f"{keys.ESTIMATOR}.act_fn"] = "gelu"
    return settings


def _hift_settings(config: CosyVoiceConfig) -> dict[str, Any]:
    hift = config.hift
    lists = {key: list(getattr(hift, field)) for field, key in keys.HIFT_LIST_KEYS.items()}
    rows = {key: [list(row) for row in getattr(hift, field)] for field, key in keys.HIFT_ROW_KEYS.items()}
    return {
        **_fields(hift, keys.HIFT_KEYS),
        **lists,
        **rows,
        "hift.sampling_rate": hift.sample_rate,
        "hift.f0_predictor.num_class": 1,
        "hift.f0_predictor.in_channels": MEL_BANDS,
    }


def _feature_settings(version: CosyVoiceVersion) -> dict[str, Any]:
    return {
        "feat_extractor.sampling_rate": SAMPLE_RATE,
        "feat_extractor.win_size": MEL_WINDOW,
        "feat_extractor.fmin": 0,
        keys.MEL_MAX_HZ_KEY: _MEL_MAX_HZ[version],
        "feat_extractor.center": False,
    }


def _fields(config: object, names: Mapping[str, str]) -> dict[str, Any]:
    return {key: getattr(config, field) for field, key in names.items()}


class _TaggedMapping(dict[str, Any]):
    """A mapping under a yaml tag."""

    def __init__(self, tag: str, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.tag = tag


class _TagDumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes tagged mappings as a release does."""


_TagDumper.add_representer(
    _TaggedMapping, lambda dumper, data: dumper.represent_mapping(data.tag, dict(data))
)


def _nested(settings: Mapping[str, Any], tags: Mapping[str, str], parent: str = "") -> dict[str, Any]:
    """Turn dotted keys into nested mappings, tagged where ``tags`` names them."""
    nested: dict[str, Any] = {}
    for name in dict.fromkeys(_names_under(settings, parent)):
        key = f"{parent}{name}"
        if key in settings:
            nested[name] = settings[key]
            continue
        mapping = _nested(settings, tags, f"{key}.")
        nested[name] = _TaggedMapping(tags[key], mapping) if key in tags else mapping
    return nested


def _names_under(settings: Mapping[str, Any], parent: str) -> Iterator[str]:
    """First part of each key below ``parent``, in order, repeated."""
    return (key[len(parent) :].partition(".")[0] for key in settings if key.startswith(parent))
