"""The configuration of a Piper voice, ``voice.onnx.json`` beside ``voice.onnx``.

Source: rhasspy/piper, the JSON that its export writes; keys that this engine does not use are ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MIN_RATE, MAX_RATE = 8_000, 48_000  # Hz

_PHONEME_TYPES = ("espeak", "text")
_SCALES = {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8}  # Piper's defaults


class PiperVoiceError(ValueError):
    """A file of a Piper voice is missing or damaged; the message names it."""


@dataclass(frozen=True, slots=True)
class PiperConfig:
    """What is needed to speak with a voice."""

    name: str  # of the file, without ".onnx"
    sample_rate: int  # Hz
    language: str  # BCP 47, such as "en-US"
    espeak_voice: str | None  # None: phonemes are the letters of the text
    phoneme_ids: Mapping[str, tuple[int, ...]]
    phoneme_map: Mapping[str, tuple[str, ...]]  # replaces phonemes
    speakers: Mapping[str, int]  # id of a speaker by name; empty for a voice with one
    noise_scale: float
    length_scale: float  # 1.0 is the voice's own pace; larger is slower
    noise_w: float  # of the durations


def read_config(model: Path) -> PiperConfig:
    """Read the configuration of a model file. Raises PiperVoiceError."""
    path = model.with_name(model.name + ".json")
    try:
        data = json.loads(path.read_text("utf-8"))
        return _config(model.name.removesuffix(".onnx"), data)
    except OSError as error:
        raise PiperVoiceError(f"{path}: cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        described = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise PiperVoiceError(f"{path}: is no configuration of a Piper voice: {described}") from error


def _config(name: str, data: Mapping[str, Mapping[str, object]]) -> PiperConfig:
    kind = data.get("phoneme_type", "espeak")
    if kind not in _PHONEME_TYPES:
        raise ValueError(f"phoneme_type is {kind!r}; it must be {' or '.join(_PHONEME_TYPES)}")
    rate = int(str(data["audio"]["sample_rate"]))
    if not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"sample_rate is {rate}; it must be {MIN_RATE} to {MAX_RATE}")
    espeak_voice = str(data["espeak"]["voice"]) if kind == "espeak" else None
    inference = data.get("inference") or {}
    scales = {key: float(str(inference.get(key, default))) for key, default in _SCALES.items()}
    return PiperConfig(
        name=name,
        sample_rate=rate,
        language=_language(name, data, espeak_voice),
        espeak_voice=espeak_voice,
        phoneme_ids={str(key): _ids(value) for key, value in data["phoneme_id_map"].items()},
        phoneme_map={
            str(key): tuple(map(str, value))  # type: ignore[call-overload]  # a list of strings
            for key, value in (data.get("phoneme_map") or {}).items()
        },
        speakers={str(key): int(str(value)) for key, value in (data.get("speaker_id_map") or {}).items()},
        **scales,
    )


def _ids(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (int(str(value)),)


def _language(name: str, data: Mapping[str, Mapping[str, object]], espeak_voice: str | None) -> str:
    """The language's code, from the key "language", the file's name (en_US-joe-medium) or espeak's voice."""
    language = data.get("language")
    if isinstance(language, Mapping) and language.get("code"):
        tag = str(language["code"])
    elif name[:2].isalpha() and name[2:3] == "_":
        tag = name.partition("-")[0]
    else:
        tag = espeak_voice or "mul"
    primary, _, region = tag.replace("_", "-").partition("-")
    return f"{primary.lower()}-{region.upper()}" if region else primary.lower()
