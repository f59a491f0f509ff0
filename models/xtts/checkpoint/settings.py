"""Reads config.json of XTTS v2: sizes of the networks, sampling, conditioning and languages.

A folder whose networks are of another kind (version 1, no perceiver, other rates) is refused in one sentence,
because it would load and speak wrongly.

Source: config.json of coqui/XTTS-v2; idiap/coqui-ai-TTS 0.28.0 TTS/tts/configs/xtts_config.py,
TTS/tts/models/xtts.py.
"""

from dataclasses import dataclass
from pathlib import Path

from ...checkpoint.settings_file import BundleConfigError, SettingsFile
from ..config import (
    CODEC_STRIDE,
    SPEAKER_EMBEDDING_WIDTH,
    VOCODER_HOP,
    XTTS_INPUT_RATE,
    XTTS_SAMPLE_RATE,
    ConditioningConfig,
    XttsConfig,
    XttsGptConfig,
    XttsVocoderConfig,
)
from ..sampling import XttsSampling
from ..voice import VoiceConditioningConfig

CONFIG_FILE = "config.json"
BASE_CHANNELS_KEY = "model_args.decoder_base_channels"  # fixed in upstream's code; reduced folders state it

GPT_KEYS = {
    "layers": "model_args.gpt_layers",
    "hidden": "model_args.gpt_n_model_channels",
    "heads": "model_args.gpt_n_heads",
    "max_speech_tokens": "model_args.gpt_max_audio_tokens",
    "max_text_tokens": "model_args.gpt_max_text_tokens",
    "text_vocab_size": "model_args.gpt_number_text_tokens",
    "speech_vocab_size": "model_args.gpt_num_audio_tokens",
    "start_speech_id": "model_args.gpt_start_audio_token",
    "stop_speech_id": "model_args.gpt_stop_audio_token",
}
# Settings for which the networks here support a single value.
REQUIRED = {
    "model": "xtts",
    "model_args.gpt_use_perceiver_resampler": True,
    "model_args.gpt_code_stride_len": CODEC_STRIDE,
    "model_args.input_sample_rate": XTTS_INPUT_RATE,
    "model_args.output_sample_rate": XTTS_SAMPLE_RATE,
    "model_args.output_hop_length": VOCODER_HOP,
    "model_args.d_vector_dim": SPEAKER_EMBEDDING_WIDTH,
    "model_args.cond_d_vector_in_each_upsampling_layer": True,
}


@dataclass(frozen=True, slots=True)
class XttsBundleSettings:
    """What config.json states."""

    config: XttsConfig
    sampling: XttsSampling  # defaults of a session
    conditioning: VoiceConditioningConfig  # of a new voice
    languages: tuple[str, ...]  # codes of the text, such as "en" and "zh-cn"


def read_settings(folder: Path) -> XttsBundleSettings:
    """Read and check config.json. Raises BundleConfigError."""
    file = SettingsFile.read_json(folder / CONFIG_FILE)
    if file.find("model") == "xtts" and not file.find("model_args.gpt_use_perceiver_resampler"):
        raise BundleConfigError(f"{file.name}: XTTS v1 (no perceiver) is not supported; use XTTS v2")
    for key, wanted in REQUIRED.items():
        file.require(key, wanted)
    try:
        config = _network_config(file)
        return XttsBundleSettings(config, _sampling(file), _conditioning(file), _languages(file))
    except ValueError as error:
        if isinstance(error, BundleConfigError):
            raise
        raise BundleConfigError(f"{file.name}: {error}") from error


def _network_config(file: SettingsFile) -> XttsConfig:
    gpt = XttsGptConfig(**{field: file.number(key) for field, key in GPT_KEYS.items()})
    width = file.number("model_args.decoder_input_dim")
    vocoder = (
        XttsVocoderConfig(input_width=width, base_channels=file.number(BASE_CHANNELS_KEY))
        if file.has(BASE_CHANNELS_KEY)
        else XttsVocoderConfig(input_width=width)
    )
    return XttsConfig(gpt, ConditioningConfig(width=gpt.hidden, heads=gpt.heads), vocoder=vocoder)


def _sampling(file: SettingsFile) -> XttsSampling:
    return XttsSampling(
        temperature=file.float_number("temperature"),
        top_k=int(file.float_number("top_k")),
        top_p=file.float_number("top_p"),
        repetition_penalty=file.float_number("repetition_penalty"),
    )


def _conditioning(file: SettingsFile) -> VoiceConditioningConfig:
    return VoiceConditioningConfig(
        max_reference_s=file.float_number("max_ref_len"),
        latents_s=file.float_number("gpt_cond_len"),
        piece_s=file.float_number("gpt_cond_chunk_len"),
        normalizes_level=bool(file.find("sound_norm_refs")),
    )


def _languages(file: SettingsFile) -> tuple[str, ...]:
    languages = file.find("languages")
    if not isinstance(languages, list) or not all(isinstance(code, str) for code in languages):
        raise BundleConfigError(f"{file.name}: languages is no list of codes")
    return tuple(languages)
