"""Writes the trained networks as a CosyVoice 2 bundle, in 16 bits.

    cosyvoice2.yaml, CosyVoice-BlankEN/    sizes, sampling, text tokenizer
    llm, flow, hift .safetensors           weights
    speech_tokenizer_v2.onnx               trained
    campplus.onnx                          a stand-in: a fixed projection of the mean spectrum, not trained
    spk2info.pt                            the one speaker

A folder is a bundle when all of these are there.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor

from small_voice import speech_tokenizer
from small_voice.sizes import BUNDLE, LANGUAGE_MODEL
from small_voice.speech_tokenizer import SpeechTokenizer
from vivavoce.models.checkpoint.weight_files import write_safetensors
from vivavoce.models.cosyvoice.checkpoint.bundle import (
    SPEAKER_ENCODER_FILE,
    open_bundle,
    speech_tokenizer_name,
)
from vivavoce.models.cosyvoice.checkpoint.random_settings import qwen_settings, yaml_settings
from vivavoce.models.cosyvoice.checkpoint.random_speech_encoders import speaker_encoder
from vivavoce.models.cosyvoice.checkpoint.speakers import SPEAKERS_FILE
from vivavoce.models.cosyvoice.config import QWEN_FOLDER, SPEAKER_WIDTH
from vivavoce.models.cosyvoice.training.networks import lm_tensors

SPEAKER = "small"
MAX_PACKED_BYTES = 15_000_000
_LICENCE = Path(__file__).parents[2] / "LICENSE"
_NOTICE = """\
Small voice of vivavoce
Copyright 2026 The vivavoce authors, Apache-2.0.

Its networks were trained on speech of hibari-tts 0.2.1, Copyright 2026 Maureese Williams, Apache-2.0, whose
acoustic model was distilled from the voice af_heart of Kokoro-82M, by hexgrad, Apache-2.0. It has none of
their weights.
"""
_CARD = f"""\
# A small CosyVoice 2

A bundle with CosyVoice 2's networks at a hundredth of their size, for tests. It knows a small world of
English: digits, amounts, dates, times and some hundred phrases of call centres, in one voice, `{SPEAKER}`.
Weights are stored in 16 bits.

```sh
vivavoce serve --bundle . --voice {SPEAKER}
```

- Made by the recipe in `tests/small_voice` of vivavoce, `make train-small`; the recordings are what its
  packaged voice says.
- The speaker encoder is a stand-in that was not trained: recordings cannot be cloned with it.
- Licence: Apache-2.0; NOTICE names whose speech it was trained on.
"""
_BANDS = 80
# The ids of one voice repeat: upstream's rule against repetitions would end every long vowel and every pause.
_SAMPLING = {"top_p: 0.8": "top_p: 0.6", "tau_r: 0.1": "tau_r: 1.5"}


def write_settings(folder: Path) -> None:
    """Write the yaml and the config.json of the Qwen folder, which holds the text tokenizer already."""
    settings = yaml_settings(BUNDLE)
    for released, ours in _SAMPLING.items():
        assert settings.count(released) == 1, released
        settings = settings.replace(released, ours)
    (folder / "cosyvoice2.yaml").write_text(settings, "utf-8")
    qwen = {
        "config.json": qwen_settings(LANGUAGE_MODEL),
        "generation_config.json": {"max_new_tokens": 2048},
        "tokenizer_config.json": {"model_max_length": 32_768, "tokenizer_class": "Qwen2Tokenizer"},
    }
    for name, content in qwen.items():
        (folder / QWEN_FOLDER / name).write_text(json.dumps(content, indent=1), "utf-8")


def write_language_model(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write llm.safetensors of the network's weights."""
    _write(folder / "llm.safetensors", lm_tensors(LANGUAGE_MODEL, weights))


def write_flow(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write flow.safetensors."""
    _write(folder / "flow.safetensors", weights)


def write_vocoder(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write hift.safetensors."""
    _write(folder / "hift.safetensors", weights)


def write_speech_tokenizer(folder: Path, network: SpeechTokenizer) -> None:
    """Write the ONNX file of the speech tokenizer."""
    onnx.save(speech_tokenizer.to_onnx(network), folder / speech_tokenizer_name(LANGUAGE_MODEL.version))


def write_speaker(folder: Path) -> NDArray[np.float32]:
    """Write the speaker network's stand-in and the speaker; returns the speaker's embedding, (192,)."""
    draw = np.random.default_rng(7)
    projection = draw.standard_normal((_BANDS, SPEAKER_WIDTH)).astype(np.float32) / math.sqrt(_BANDS)
    onnx.save(speaker_encoder(projection), folder / SPEAKER_ENCODER_FILE)
    embedding = draw.standard_normal(SPEAKER_WIDTH).astype(np.float32)
    torch.save({SPEAKER: {"embedding": torch.from_numpy(embedding)[None]}}, folder / SPEAKERS_FILE)
    return embedding


@dataclass(frozen=True, slots=True)
class PackedPart:
    """How far a network was trained, and from what."""

    name: str
    step: int
    steps: int
    is_continued: bool  # from an earlier bundle, not from random weights


def pack(bundle: Path, target: Path, parts: Sequence[PackedPart], figures: str) -> int:
    """Copy a bundle as a folder to give away, with its card, notice and licence; returns its size in bytes.

    figures: what was heard, in Markdown. Raises ValueError, and leaves no folder, if the bundle is not whole
    or too large.
    """
    if target.exists():
        raise ValueError(f"{target}: exists already")
    with ExitStack() as unfinished:
        unfinished.callback(shutil.rmtree, target, ignore_errors=True)
        shutil.copytree(bundle, target, ignore=shutil.ignore_patterns("onnx", "*.partial"))
        (target / "README.md").write_text(_card(parts, figures), "utf-8")
        (target / "NOTICE").write_text(_NOTICE, "utf-8")
        shutil.copy2(_LICENCE, target / "LICENSE")
        open_bundle(target)
        size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
        if size > MAX_PACKED_BYTES:
            raise ValueError(
                f"{target}: {size / 1e6:.1f} MB; at most {MAX_PACKED_BYTES / 1e6:.0f} are allowed"
            )
        unfinished.pop_all()
    return size


def _card(parts: Sequence[PackedPart], figures: str) -> str:
    rows = [
        f"| {part.name} | {'an earlier bundle' if part.is_continued else 'random weights'} "
        f"| {part.step:,} of {part.steps:,} |"
        for part in parts
    ]
    head = ["| network | trained from | steps |", "|---|---|---|"]
    return "\n".join([_CARD, *head, *rows, "", figures.strip(), ""])


def _write(path: Path, weights: Mapping[str, Tensor]) -> None:
    write_safetensors(path, {key: tensor.detach().half().contiguous() for key, tensor in weights.items()})
