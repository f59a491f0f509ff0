"""Writes bundles with random weights in the released layout, for tests and benches.

Such a bundle speaks noise at the pace and size of a trained one. Its text tokenizer has a token for every
byte and a few English merges.

Source: FunAudioLLM/CosyVoice@ace7c47 (the layout: cosyvoice/cli/cosyvoice.py:138-240 and the example yaml
files).
"""

import contextlib
import errno
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from ...bundle_files import BundleSize, TensorShape, TensorShapes
from ...checkpoint.random_weights import ROTARY_KEY_SUFFIX, rotary_frequencies, scale_for_key, unit_noise
from ..config import (
    QWEN_FOLDER,
    SPEAKER_WIDTH,
    TEXT_EMBEDDING_KEY,
    TIED_HEAD_KEY,
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    HiftConfig,
    SpeechLmConfig,
    UnetConfig,
    released_config,
)
from ..front_end.text_tokenizer import byte_characters, special_tokens
from .bundle import SPEAKER_ENCODER_FILE, speech_tokenizer_name
from .random_settings import qwen_settings, yaml_settings
from .random_speech_encoders import (
    encoder_weight_bytes,
    random_speaker_encoder,
    random_speech_tokenizer,
)
from .speakers import SPEAKERS_FILE
from .tensor_shapes import file_shapes

# Without these factors f0 stays below any voice, the vocoder clips, and all ids are about equally likely.
_EXTRA_SCALES = {
    "f0_predictor.classifier.weight": 150.0,
    "conv_post.parametrizations.weight.original0": 0.1,
    "llm_decoder.weight": 6.0,
}
_BPE_PAIRS = "th he in er an re on at en nd ou ea ng ing the and ll or is it st".split()
_OTHER_FILES_BYTES = 20_000_000
# Ids below the special tokens.
_TINY_BASE_IDS = 320
_RELEASED_BASE_IDS = 151_643


def write_random_bundle(
    folder: Path,
    version: CosyVoiceVersion,
    size: BundleSize,
    seed: int = 0,
    on_bytes_written: Callable[[int], None] = lambda count: None,
) -> None:
    """Write a bundle into a folder that does not exist or is empty; after an error nothing is left.

    ``on_bytes_written`` is called with the size of each tensor; the sizes add up to ``weight_bytes``. Raises
    FileExistsError, and OSError if the disk is too small.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; give a new folder")
    config = _config_of_size(version, size)
    _require_disk_space(folder, weight_bytes(version, size))
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(shutil.rmtree, folder, ignore_errors=True)
        for name, shapes in file_shapes(config).items():
            torch.save(_random_weights(shapes, f"{seed}/{name}/", on_bytes_written), folder / name)
        _write_encoders(folder, config, size, seed)
        on_bytes_written(encoder_weight_bytes(version, size))
        _write_qwen(folder / QWEN_FOLDER, config, size)
        speakers = {"nobody": {"embedding": _random_tensor((1, SPEAKER_WIDTH), f"{seed}/nobody")}}
        torch.save(speakers, folder / SPEAKERS_FILE)
        # Written last: a folder without it is no bundle, so a killed run leaves none behind.
        (folder / f"cosyvoice{version.value}.yaml").write_text(yaml_settings(config), "utf-8")
        unfinished.pop_all()


def weight_bytes(version: CosyVoiceVersion, size: BundleSize) -> int:
    """Size of a random bundle's weights on the disk."""
    files = file_shapes(_config_of_size(version, size)).values()
    stored = (shape for shapes in files for key, shape in shapes.items() if key != TIED_HEAD_KEY)
    return 4 * sum(map(math.prod, stored)) + encoder_weight_bytes(version, size)


def _config_of_size(version: CosyVoiceVersion, size: BundleSize) -> CosyVoiceConfig:
    return released_config(version) if size is BundleSize.FULL else tiny_config(version)


def _require_disk_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + _OTHER_FILES_BYTES:
        raise OSError(
            errno.ENOSPC, f"{free / 1e9:.1f} GB are free, {needed / 1e9:.1f} GB are needed", str(folder)
        )


def tiny_config(version: CosyVoiceVersion) -> CosyVoiceConfig:
    """Sizes small enough for a test, with the codec, the rates and the chunks of a release."""
    text_vocab_size = _TINY_BASE_IDS + len(special_tokens(version))
    lm = SpeechLmConfig(
        version, hidden=64, layers=2, heads=4, kv_heads=2, intermediate=160, text_vocab_size=text_vocab_size
    )
    return CosyVoiceConfig(lm, _tiny_flow_config(version), HiftConfig(base_channels=32, f0_channels=24))


def _tiny_flow_config(version: CosyVoiceVersion) -> FlowConfig:
    if version is CosyVoiceVersion.V3:
        return FlowConfig(None, DitConfig(width=64, depth=2, heads=4, head_width=16), lookahead_width=48)
    return FlowConfig(
        EncoderConfig(width=64, heads=4, inner=128, layers=2, up_layers=2),
        UnetConfig(channels=32, head_width=16, heads=2, blocks=1, mid_blocks=2),
    )


def _random_weights(
    shapes: TensorShapes, salt: str, on_bytes_written: Callable[[int], None]
) -> dict[str, Tensor]:
    tensors = {}
    for key, shape in shapes.items():
        if key != TIED_HEAD_KEY:
            tensors[key] = _random_weight(key, shape, salt)
            on_bytes_written(tensors[key].nbytes)
    if TIED_HEAD_KEY in shapes:
        tensors[TIED_HEAD_KEY] = tensors[TEXT_EMBEDDING_KEY]
    return tensors


def _random_weight(key: str, shape: TensorShape, salt: str) -> Tensor:
    if key.endswith(ROTARY_KEY_SUFFIX):
        return torch.from_numpy(rotary_frequencies(shape))
    drawn = scale_for_key(key, unit_noise(shape, salt + key))
    for suffix, factor in _EXTRA_SCALES.items():
        if key.endswith(suffix):
            drawn *= np.float32(factor)
    return torch.from_numpy(drawn)


def _random_tensor(shape: TensorShape, salt: str) -> Tensor:
    return torch.from_numpy(unit_noise(shape, salt))


def _write_encoders(folder: Path, config: CosyVoiceConfig, size: BundleSize, seed: int) -> None:
    onnx.save(random_speaker_encoder(size, seed), folder / SPEAKER_ENCODER_FILE)
    onnx.save(random_speech_tokenizer(size, config, seed), folder / speech_tokenizer_name(config.version))


def _write_qwen(folder: Path, config: CosyVoiceConfig, size: BundleSize) -> None:
    folder.mkdir()
    base_ids = _RELEASED_BASE_IDS if size is BundleSize.FULL else _TINY_BASE_IDS
    vocabulary = [*byte_characters(), *sorted(_BPE_PAIRS, key=len)]
    # Unreachable tokens fill up the vocabulary, so that special tokens have their usual ids.
    vocabulary += [f"<unused {index}>" for index in range(len(vocabulary), base_ids)]
    files: dict[str, Any] = {
        "vocab.json": {token: index for index, token in enumerate(vocabulary)},
        "config.json": qwen_settings(config.lm),
        "generation_config.json": {"max_new_tokens": 2048},
        "tokenizer_config.json": {"model_max_length": 32_768, "tokenizer_class": "Qwen2Tokenizer"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
    merges = "".join(
        f"{pair[:-1]} {pair[-1]}\n" for pair in sorted(_BPE_PAIRS, key=len) if pair[:-1] in vocabulary
    )
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, "utf-8")
