"""Reads the sizes and sampling parameters of a bundle from its yaml and its config.json.

Source: FunAudioLLM/CosyVoice@ace7c47 examples/libritts/cosyvoice{2,3}/conf/cosyvoice{2,3}.yaml.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...checkpoint.settings_file import BundleConfigError, SettingsFile
from ..config import (
    QWEN_FOLDER,
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    HiftConfig,
    MixRatio,
    SpeechLmConfig,
    UnetConfig,
)
from ..lm.sampling import SamplingParameters
from . import setting_keys as keys


@dataclass(frozen=True, slots=True)
class BundleYamlConfig:
    """Settings of a bundle."""

    network_config: CosyVoiceConfig
    sampling: SamplingParameters
    mel_max_hz: float | None  # upper edge of the prompt's mel; None is half the sample rate


def read_bundle_config(folder: Path, version: CosyVoiceVersion) -> BundleYamlConfig:
    """Read the settings of a bundle folder. Raises BundleConfigError."""
    settings = SettingsFile.read_yaml(folder / f"cosyvoice{version.value}.yaml")
    qwen = SettingsFile.read_json(folder / QWEN_FOLDER / "config.json", f"{QWEN_FOLDER}/config.json")
    for key, path in keys.REQUIRED_CLASSES[version].items():
        settings.require_class(key, path.rpartition(".")[2])
    for key, value in keys.required_settings(version).items():
        settings.require(key, value)
    for key, value in keys.optional_settings(version).items():
        if settings.has(key):
            settings.require(key, value)
    lm = _read_lm_config(settings, qwen, version)
    with _size_errors_of(settings):
        network_config = CosyVoiceConfig(
            lm, _read_flow_config(settings, version), _read_hift_config(settings)
        )
    return BundleYamlConfig(network_config, _read_sampling(settings), _read_mel_max_hz(settings))


def _read_lm_config(settings: SettingsFile, qwen: SettingsFile, version: CosyVoiceVersion) -> SpeechLmConfig:
    hidden = qwen.number(keys.LM_KEYS["hidden"])
    settings.require("llm_input_size", hidden)
    settings.require("llm_output_size", hidden)
    qwen.require("tie_word_embeddings", True)
    qwen.require("hidden_act", "silu")
    floats = {field: qwen.float_number(key) for field, key in keys.LM_FLOAT_KEYS.items()}
    mix_ratio = _read_mix_ratio(settings)
    with _size_errors_of(qwen):
        return SpeechLmConfig(
            version,
            **_numbers(qwen, keys.LM_KEYS),
            codebook_size=settings.number(keys.CODEBOOK_KEY),
            rope_base=floats["rope_base"],
            norm_epsilon=floats["norm_epsilon"],
            mix_ratio=mix_ratio,
        )


def _read_mix_ratio(settings: SettingsFile) -> MixRatio:
    numbers = settings.numbers(keys.MIX_RATIO_KEY)
    if len(numbers) != 2:
        raise BundleConfigError(
            f"{settings.name}: {keys.MIX_RATIO_KEY} is {list(numbers)}; expected two numbers, text and speech"
        )
    with _size_errors_of(settings):
        return MixRatio(*numbers)


def _read_flow_config(settings: SettingsFile, version: CosyVoiceVersion) -> FlowConfig:
    codebook_size = settings.number(keys.CODEBOOK_KEY)
    if version is CosyVoiceVersion.V2:
        return FlowConfig(_read_encoder_config(settings), _read_unet_config(settings), codebook_size)
    return FlowConfig(
        None,
        DitConfig(**_numbers(settings, keys.DIT_KEYS)),
        codebook_size,
        lookahead_width=settings.number(keys.LOOKAHEAD_WIDTH_KEY),
    )


def _read_encoder_config(settings: SettingsFile) -> EncoderConfig:
    sizes = _numbers(settings, keys.ENCODER_KEYS)
    if settings.has(keys.UP_LAYERS_KEY):
        sizes["up_layers"] = settings.number(keys.UP_LAYERS_KEY)
    return EncoderConfig(**sizes)


def _read_unet_config(settings: SettingsFile) -> UnetConfig:
    channels = settings.numbers(keys.UNET_CHANNELS_KEY)
    if len(channels) != 1:
        raise BundleConfigError(
            f"{settings.name}: {keys.UNET_CHANNELS_KEY} is {list(channels)}; expected a single level"
        )
    return UnetConfig(channels[0], **_numbers(settings, keys.UNET_KEYS))


def _read_hift_config(settings: SettingsFile) -> HiftConfig:
    numbers = _numbers(settings, keys.HIFT_KEYS)
    lists = {field: settings.numbers(key) for field, key in keys.HIFT_LIST_KEYS.items()}
    rows = {field: settings.number_rows(key) for field, key in keys.HIFT_ROW_KEYS.items()}
    return HiftConfig(
        base_channels=numbers["base_channels"],
        harmonics=numbers["harmonics"],
        upsample_rates=lists["upsample_rates"],
        upsample_kernels=lists["upsample_kernels"],
        n_fft=numbers["n_fft"],
        hop=numbers["hop"],
        kernels=lists["kernels"],
        dilations=rows["dilations"],
        source_kernels=lists["source_kernels"],
        source_dilations=rows["source_dilations"],
        f0_channels=numbers["f0_channels"],
    )


def _read_sampling(settings: SettingsFile) -> SamplingParameters:
    try:
        return SamplingParameters(
            top_p=settings.float_number(keys.SAMPLING_KEYS["top_p"]),
            top_k=settings.number(keys.SAMPLING_KEYS["top_k"]),
            repetition_window=settings.number(keys.SAMPLING_KEYS["repetition_window"]),
            repetition_threshold=settings.float_number(keys.SAMPLING_KEYS["repetition_threshold"]),
        )
    except ValueError as error:
        raise BundleConfigError(f"llm.sampling: {error}") from error


def _read_mel_max_hz(settings: SettingsFile) -> float | None:
    key = keys.MEL_MAX_HZ_KEY
    return None if settings.find(key) is None else settings.float_number(key)


def _numbers(settings: SettingsFile, fields: Mapping[str, str]) -> dict[str, int]:
    return {field: settings.number(key) for field, key in fields.items()}


@contextmanager
def _size_errors_of(settings: SettingsFile) -> Iterator[None]:
    """Turn the ValueError of a config into a BundleConfigError that names the file."""
    try:
        yield
    except BundleConfigError:
        raise
    except ValueError as error:
        raise BundleConfigError(f"{settings.name}: {error}") from error
