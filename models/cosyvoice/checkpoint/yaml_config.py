"""What a bundle's settings say: cosyvoice2.yaml or cosyvoice3.yaml, and the config.json of its Qwen folder.

The yaml is written for a loader that builds objects and calls functions while it reads. Here it is data: tags
are kept as names and never looked up, references are followed to numbers and no further.

Source: FunAudioLLM/CosyVoice@ace7c47 examples/libritts/cosyvoice{2,3}/conf/cosyvoice{2,3}.yaml.
"""

import json
import math
import re
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ..config import (
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitSizes,
    EncoderSizes,
    FlowSizes,
    HiftSizes,
    SpeechLmConfig,
    UnetSizes,
)
from ..lm.sampling import SamplingParameters
from .weight_files import require_file

MAX_CONFIG_BYTES = 1_000_000
MAX_LAYERS = 1000  # nothing is allocated for a network, and no list of its tensors written, beyond this
MAX_UPSAMPLING_STEPS = 16
QWEN_FOLDER = "CosyVoice-BlankEN"

# What the networks here are written for; a release that differs would be spoken wrongly, not slowly.
_REQUIRED_VALUES = {
    "sample_rate": 24_000,
    "token_frame_rate": 25,
    "token_mel_ratio": 2,
    "llm.mix_ratio": [5, 15],
    "flow.pre_lookahead_len": 3,
    "flow.output_size": 80,
    "flow.decoder.cfm_params.content.inference_cfg_rate": 0.7,
    "spk_embed_dim": 192,
    "hift.in_channels": 80,
    "hift.nsf_alpha": 0.1,
    "hift.nsf_sigma": 0.003,
    "hift.nsf_voiced_threshold": 10,
    "hift.lrelu_slope": 0.1,
    "hift.audio_limit": 0.99,
    "feat_extractor.n_fft": 1920,
    "feat_extractor.hop_size": 480,
    "feat_extractor.num_mels": 80,
}
_REQUIRED_CLASSES = {
    CosyVoiceVersion.V2: {"llm": "Qwen2LM", "flow": "CausalMaskedDiffWithXvec", "hift": "HiFTGenerator"},
    CosyVoiceVersion.V3: {
        "llm": "CosyVoice3LM",
        "flow": "CausalMaskedDiffWithDiT",
        "hift": "CausalHiFTGenerator",
    },
}
_REFERENCE = re.compile(r"<([A-Za-z_][A-Za-z_0-9]*)>")


class BundleConfigError(ValueError):
    """The settings cannot be read, or say what this engine is not written for; the message says where."""


@dataclass(frozen=True, slots=True)
class BundleYamlConfig:
    """Settings of a bundle. mel_max_hz: of the prompt's mel; None is half the rate."""

    network_config: CosyVoiceConfig
    sampling: SamplingParameters
    mel_max_hz: float | None


def read_bundle_config(folder: Path, version: CosyVoiceVersion) -> BundleYamlConfig:
    """Read the settings of a bundle folder; raises BundleConfigError."""
    name = f"cosyvoice{version.value}.yaml"
    settings = _SettingsFile(name, parse_yaml(_read_text(folder / name), name))
    qwen_name = f"{QWEN_FOLDER}/config.json"
    qwen = _SettingsFile(qwen_name, _parse_json(_read_text(folder / QWEN_FOLDER / "config.json"), qwen_name))
    for network, wanted in _REQUIRED_CLASSES[version].items():
        settings.require_class(network, wanted)
    for key_path, value in _REQUIRED_VALUES.items():
        settings.require(key_path, value)
    lm = _read_lm_config(settings, qwen, version)
    flow = _read_flow_v2(settings) if version is CosyVoiceVersion.V2 else _read_flow_v3(settings)
    return BundleYamlConfig(
        CosyVoiceConfig(lm, flow, _read_checked_hift(settings, version)),
        _read_sampling(settings),
        settings.max_hz(),
    )


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """The yaml as plain data: a mapping under a tag has it as ``!``; references stay text like ``<name>``."""
    try:
        data = yaml.load(text, Loader=_PlainLoader)  # a safe loader that builds nothing
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BundleConfigError(
            f"{name}: not readable as yaml: {' '.join(str(error).split())[:300]}"
        ) from error
    except RecursionError:
        raise BundleConfigError(f"{name}: not readable as yaml: nested too deeply") from None
    if not isinstance(data, dict):
        raise BundleConfigError(f"{name}: found {type(data).__name__}, expected named settings")
    return data


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Keeps tags as names."""


def _construct_plain(loader: Any, suffix: str, node: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {"!": suffix, **loader.construct_mapping(node, deep=True)}
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_PlainLoader.add_multi_constructor("!", _construct_plain)


class _SettingsFile:
    """Named settings of one file, by dotted places."""

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self._name, self._data = name, data

    def find(self, key_path: str) -> Any:
        found: Any = self._data
        for part in key_path.split("."):
            if not isinstance(found, dict) or part not in found:
                raise BundleConfigError(f"{self._name}: {key_path} is missing")
            found = found[part]
        return self._resolved(found)

    def _resolved(self, value: Any) -> Any:
        """A reference, or a product of references, as the number that it stands for."""
        if not isinstance(value, str) or not (names := _REFERENCE.findall(value)):
            return value
        factors = [self._data.get(name) for name in names]
        if _REFERENCE.sub("", value).strip(" *") or not all(isinstance(f, int) for f in factors):
            return value
        return math.prod(factors)

    def number(self, key_path: str, default: int | None = None, max_value: int = 2**24) -> int:
        if default is not None and not self._has(key_path):
            return default
        value = self.find(key_path)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= max_value:
            raise BundleConfigError(
                f"{self._name}: {key_path} is {_abbreviate(value)}; expected a whole number from 1 to {max_value:,}"
            )
        return value

    def layers(self, key_path: str, default: int | None = None) -> int:
        return self.number(key_path, default, MAX_LAYERS)

    def require_multiple(self, whole: str, parts: str) -> None:
        """That one number is a multiple of another."""
        if self.number(whole) % self.number(parts):
            raise BundleConfigError(
                f"{self._name}: {whole} is {self.number(whole)}; expected a multiple of {parts}, which is "
                f"{self.number(parts)}"
            )

    def float_number(self, key_path: str) -> float:
        value = self.find(key_path)
        if isinstance(value, str):  # yaml 1.1 reads 1e-06 as text
            value = _parse_float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise BundleConfigError(f"{self._name}: {key_path} is {_abbreviate(value)}; expected a number")
        return float(value)

    def numbers(self, key_path: str) -> tuple[int, ...]:
        return self._whole_numbers(key_path, self.find(key_path))

    def equal_rows(self, key_path: str) -> tuple[int, ...]:
        """Rows that must all be equal."""
        rows = self.find(key_path)
        if not isinstance(rows, list) or not rows or any(row != rows[0] for row in rows):
            raise BundleConfigError(
                f"{self._name}: {key_path} is {_abbreviate(rows)}; expected equal rows of numbers"
            )
        return self._whole_numbers(key_path, rows[0])

    def _whole_numbers(self, key_path: str, value: Any) -> tuple[int, ...]:
        wanted = isinstance(value, list) and 0 < len(value) <= MAX_UPSAMPLING_STEPS
        if not wanted or not all(type(n) is int and 0 < n <= 2**24 for n in value):
            raise BundleConfigError(
                f"{self._name}: {key_path} is {_abbreviate(value)}; expected up to {MAX_UPSAMPLING_STEPS} whole numbers above 0"
            )
        return tuple(value)

    def require(self, key_path: str, wanted: Any) -> None:
        found = self.find(key_path)
        if found != wanted:
            raise BundleConfigError(f"{self._name}: {key_path} is {_abbreviate(found)}; expected {wanted!r}")

    def require_class(self, key_path: str, wanted: str) -> None:
        found = self.find(key_path)
        tag = str(found.get("!", "nothing")) if isinstance(found, dict) else type(found).__name__
        if tag.rpartition(".")[2] != wanted:
            raise BundleConfigError(f"{self._name}: {key_path} is {tag[:100]}; expected a {wanted}")

    def max_hz(self) -> float | None:
        key_path = "feat_extractor.fmax"
        return None if self.find(key_path) is None else self.float_number(key_path)

    def _has(self, key_path: str) -> bool:
        parent, _, name = key_path.rpartition(".")
        return name in (self.find(parent) if parent else self._data)


def _read_text(path: Path) -> str:
    try:
        require_file(path)
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise BundleConfigError(
                f"{path.name}: {path.stat().st_size:,} bytes; settings have at most {MAX_CONFIG_BYTES:,}"
            )
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BundleConfigError(
            f"{path.name}: not text in UTF-8 ({error.reason} at byte {error.start})"
        ) from error
    except OSError as error:
        raise BundleConfigError(f"{_display_name(path)}: {error.strerror}") from error


def _display_name(path: Path) -> str:
    return f"{QWEN_FOLDER}/{path.name}" if path.parent.name == QWEN_FOLDER else path.name


def _abbreviate(value: Any) -> str:
    """Short, whatever it is: a few lines of yaml can say a value of gigabytes."""
    return reprlib.repr(value)


def _parse_json(text: str, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BundleConfigError(f"{name}: not readable as JSON: {error}") from error
    except RecursionError:
        raise BundleConfigError(f"{name}: not readable as JSON: nested too deeply") from None
    if not isinstance(data, dict):
        raise BundleConfigError(f"{name}: found {type(data).__name__}, expected named settings")
    return data


def _parse_float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _read_lm_config(
    settings: _SettingsFile, qwen: _SettingsFile, version: CosyVoiceVersion
) -> SpeechLmConfig:
    hidden = qwen.number("hidden_size")
    settings.require("llm_input_size", hidden)
    settings.require("llm_output_size", hidden)
    qwen.require("tie_word_embeddings", True)
    qwen.require("hidden_act", "silu")
    qwen.require_multiple("hidden_size", "num_attention_heads")
    qwen.require_multiple("num_attention_heads", "num_key_value_heads")
    if qwen.float_number("rope_theta") < 1 or qwen.float_number("rms_norm_eps") < 0:
        raise BundleConfigError(f"{QWEN_FOLDER}/config.json: rope_theta is below 1 or rms_norm_eps below 0")
    return SpeechLmConfig(
        version=version,
        hidden=hidden,
        layers=qwen.layers("num_hidden_layers"),
        heads=qwen.number("num_attention_heads"),
        kv_heads=qwen.number("num_key_value_heads"),
        intermediate=qwen.number("intermediate_size"),
        text_vocab_size=qwen.number("vocab_size"),
        codebook_size=settings.number("llm.speech_token_size"),
        rope_base=qwen.float_number("rope_theta"),
        norm_epsilon=qwen.float_number("rms_norm_eps"),
    )


def _read_flow_v2(settings: _SettingsFile) -> FlowSizes:
    encoder, unet = "flow.encoder", "flow.decoder.estimator"
    settings.require(f"{unet}.static_chunk_size", 50)
    settings.require(f"{unet}.in_channels", 320)
    settings.require_multiple(f"{encoder}.output_size", f"{encoder}.attention_heads")
    channels = settings.numbers(f"{unet}.channels")
    if len(channels) != 1:
        raise BundleConfigError(
            f"cosyvoice2.yaml: {unet}.channels is {list(channels)}; expected a single level"
        )
    return FlowSizes(
        speaker=settings.number("spk_embed_dim"),
        encoder=EncoderSizes(
            width=settings.number(f"{encoder}.output_size"),
            heads=settings.number(f"{encoder}.attention_heads"),
            inner=settings.number(f"{encoder}.linear_units"),
            layers=settings.layers(f"{encoder}.num_blocks"),
            # Fixed in upstream's code; reduced bundles say it.
            up_layers=settings.layers(f"{encoder}.num_up_blocks", EncoderSizes().up_layers),
        ),
        unet=UnetSizes(
            channels=channels[0],
            head_width=settings.number(f"{unet}.attention_head_dim"),
            heads=settings.number(f"{unet}.num_heads"),
            blocks=settings.layers(f"{unet}.n_blocks"),
            mid_blocks=settings.layers(f"{unet}.num_mid_blocks"),
        ),
    )


def _read_flow_v3(settings: _SettingsFile) -> FlowSizes:
    dit = "flow.decoder.estimator"
    settings.require(f"{dit}.static_chunk_size", 50)
    return FlowSizes(
        speaker=settings.number("spk_embed_dim"),
        lookahead_channels=settings.number("flow.pre_lookahead_layer.channels"),
        dit=DitSizes(
            width=settings.number(f"{dit}.dim"),
            depth=settings.layers(f"{dit}.depth"),
            heads=settings.number(f"{dit}.heads"),
            head_width=settings.number(f"{dit}.dim_head"),
            factor=settings.number(f"{dit}.ff_mult"),
        ),
    )


def _read_checked_hift(settings: _SettingsFile, version: CosyVoiceVersion) -> HiftSizes:
    if version is CosyVoiceVersion.V3:
        settings.require("hift.conv_pre_look_right", HiftSizes().look_right)
    sizes = _read_hift(settings)
    steps = [len(sizes.upsample_rates), len(sizes.upsample_kernels), len(sizes.source_kernels)]
    samples = math.prod(sizes.upsample_rates) * sizes.hop
    if len(set(steps)) > 1 or samples != settings.find("feat_extractor.hop_size"):
        raise BundleConfigError(
            f"cosyvoice{version.value}.yaml: hift has {steps} rates, kernels and source kernels, and makes "
            f"{samples:,} samples of a frame; expected equal numbers of them, and feat_extractor.hop_size"
        )
    return sizes


def _read_hift(settings: _SettingsFile) -> HiftSizes:
    return HiftSizes(
        channels=settings.number("hift.base_channels"),
        harmonics=settings.number("hift.nb_harmonics"),
        upsample_rates=settings.numbers("hift.upsample_rates"),
        upsample_kernels=settings.numbers("hift.upsample_kernel_sizes"),
        resblock_kernels=settings.numbers("hift.resblock_kernel_sizes"),
        source_kernels=settings.numbers("hift.source_resblock_kernel_sizes"),
        dilations=settings.equal_rows("hift.resblock_dilation_sizes"),
        transform=settings.number("hift.istft_params.n_fft"),
        hop=settings.number("hift.istft_params.hop_len"),
        f0_channels=settings.number("hift.f0_predictor.cond_channels"),
    )


def _read_sampling(settings: _SettingsFile) -> SamplingParameters:
    try:
        return SamplingParameters(
            top_p=settings.float_number("llm.sampling.top_p"),
            top_k=settings.number("llm.sampling.top_k"),
            repetition_window=settings.number("llm.sampling.win_size"),
            repetition_threshold=settings.float_number("llm.sampling.tau_r"),
        )
    except ValueError as error:
        raise BundleConfigError(f"llm.sampling: {error}") from error
