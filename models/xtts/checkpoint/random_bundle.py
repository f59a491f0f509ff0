"""Writes XTTS bundles with random weights in the released layout, for tests and benches.

Such a bundle speaks noise at the pace and size of a trained one. Its tokenizer has a token for every letter
of its vocabulary and a tag for each of the 17 languages. The rule of the weights is that of the golden
vectors, so that activations stay of order one.

Source: the layout of coqui/XTTS-v2; the weight rule of tests/golden/xtts_data/README.md.
"""

import contextlib
import json
import math
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...bundle_files import BundleSize
from ...checkpoint.random_weights import Float, scale_for_key
from ..config import (
    CONDITIONING_LATENTS,
    SPEAKER_EMBEDDING_WIDTH,
    ConditioningConfig,
    XttsConfig,
    XttsGptConfig,
    XttsVocoderConfig,
)
from ..features import PREEMPHASIS, hamming_window, speaker_filters
from ..sampling import XttsSampling
from ..text.tokenizer import VOCABULARY_FILE
from .settings import BASE_CHANNELS_KEY, CONFIG_FILE, GPT_KEYS, REQUIRED
from .tensor_shapes import COUNTER_SUFFIX, FRONT_END_SHAPES, MEL_NORMS_KEY, model_tensors
from .voices_file import VOICES_FILE
from .weight_file import MODEL_FILE

LANGUAGES = "en es fr de it pt pl tr ru nl cs ar zh-cn hu ko ja hi".split()
_LETTERS = "!'(),-.0123456789:;?abcdefghijklmnopqrstuvwxyzàáâãäçèéêëìíîïñòóôõöùúûüßąćęłńśźż"
_MERGES = ["th", "he", "in", "er", "an", "re", "on", "at", "en", "the", "ing"]
_SPECIALS = ["[STOP]", "[UNK]", "[SPACE]", "[START]", *(f"[{code}]" for code in LANGUAGES)]
_MEL_NORM, _MEL_NORM_SPREAD = 4.0, 0.5
# Without these factors the ids are about equally likely, voices sound alike and the vocoder clips.
_EXTRA_SCALES = {
    "mel_head.weight": 2.5,
    "cond_layer.weight": 8.0,
    "conv_post.weight": 0.3,
    "text_embedding.weight": 3.0,
    "mel_embedding.weight": 3.0,
}


def random_config(size: BundleSize) -> XttsConfig:
    """The released sizes, or small ones with the codec, the rates and the languages of the release."""
    if size is BundleSize.FULL:
        return XttsConfig()
    gpt = XttsGptConfig(
        layers=2,
        hidden=64,
        heads=4,
        max_speech_tokens=123,
        max_text_tokens=202,
        text_vocab_size=len(_vocabulary()),
        speech_vocab_size=130,
        start_speech_id=128,
        stop_speech_id=129,
    )
    vocoder = XttsVocoderConfig(input_width=gpt.hidden, base_channels=32)
    return XttsConfig(gpt, ConditioningConfig(width=gpt.hidden, heads=gpt.heads), vocoder=vocoder)


def weight_bytes(size: BundleSize) -> int:
    """Size of a random bundle's weights on the disk."""
    return sum(
        dtype.itemsize * math.prod(shape) for shape, dtype in model_tensors(random_config(size)).values()
    )


def write_random_bundle(
    folder: Path,
    size: BundleSize,
    seed: int = 0,
    on_bytes_written: Callable[[int], None] = lambda count: None,
) -> None:
    """Write a bundle into a folder that does not exist or is empty; after an error nothing is left.

    ``on_bytes_written`` is called with the size of each tensor; the sizes add up to ``weight_bytes``. Raises
    FileExistsError, and OSError or RuntimeError if the disk is too small.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; give a new folder")
    config = random_config(size)
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(shutil.rmtree, folder, ignore_errors=True)
        weights = {}
        for key, (shape, _) in model_tensors(config).items():
            weights[key] = random_tensor(key, shape, f"{seed}/")
            on_bytes_written(weights[key].nbytes)
        settings = _settings(config)
        torch.save({"config": settings, "model": weights}, folder / MODEL_FILE)
        torch.save({"Random": _voice(config, seed)}, folder / VOICES_FILE)
        for name, content in ((CONFIG_FILE, settings), (VOCABULARY_FILE, _tokenizer(config))):
            (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
        unfinished.pop_all()


def random_tensor(
    key: str, shape: Sequence[int], salt: str, scales: Mapping[str, float] = _EXTRA_SCALES
) -> Tensor:
    """The tensor of a key of model.pth by the weight rule; front ends have the numbers of their formulas."""
    if key.endswith(COUNTER_SUFFIX):
        return torch.zeros(tuple(shape), dtype=torch.int64)
    for name in FRONT_END_SHAPES:
        if key.endswith(name):
            return _front_end_tensor(name)
    generator = np.random.Generator(np.random.PCG64(zlib.crc32((salt + key).encode())))
    drawn = _scaled(key, generator.standard_normal(tuple(shape)).astype(np.float32))
    for suffix, factor in scales.items():
        if key.endswith(suffix):
            drawn *= np.float32(factor)
    return torch.from_numpy(drawn)


def _scaled(key: str, drawn: Float) -> Float:
    if key == MEL_NORMS_KEY:
        return np.float32(_MEL_NORM) + np.float32(_MEL_NORM_SPREAD) * drawn
    if key.endswith("running_var"):
        return np.float32(1) + np.float32(0.1) * np.abs(drawn)
    if key.endswith("gamma"):
        return np.float32(1) + np.float32(0.1) * drawn
    return scale_for_key(key, drawn)


def _front_end_tensor(name: str) -> Tensor:
    values = {
        "torch_spec.0.filter": np.array([[[-PREEMPHASIS, 1.0]]]),
        "torch_spec.1.spectrogram.window": hamming_window(),
        "torch_spec.1.mel_scale.fb": speaker_filters(),
    }
    return torch.from_numpy(values[name].astype(np.float32))


def _voice(config: XttsConfig, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    speaker = torch.randn(1, SPEAKER_EMBEDDING_WIDTH, 1, generator=generator)
    return {
        "gpt_cond_latent": torch.randn(1, CONDITIONING_LATENTS, config.gpt.hidden, generator=generator),
        "speaker_embedding": torch.nn.functional.normalize(speaker, dim=1),
    }


def _settings(config: XttsConfig) -> dict[str, Any]:
    sampling = XttsSampling()
    stated: dict[str, Any] = dict(REQUIRED) | {
        key: getattr(config.gpt, name) for name, key in GPT_KEYS.items()
    }
    stated["model_args.decoder_input_dim"] = config.vocoder.input_width
    if config.vocoder.base_channels != XttsVocoderConfig().base_channels:
        stated[BASE_CHANNELS_KEY] = config.vocoder.base_channels
    prefix = "model_args."
    arguments = {key.removeprefix(prefix): value for key, value in stated.items() if key.startswith(prefix)}
    return {
        "model": stated["model"],
        "model_args": arguments,
        "languages": LANGUAGES,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "repetition_penalty": sampling.repetition_penalty,
        "length_penalty": 1.0,
        "gpt_cond_len": 30,
        "gpt_cond_chunk_len": 4,
        "max_ref_len": 30,
        "sound_norm_refs": False,
    }


def _vocabulary() -> list[str]:
    return [*_SPECIALS, *_LETTERS, *_MERGES]


def _tokenizer(config: XttsConfig) -> dict[str, Any]:
    names = _vocabulary()
    # Unreachable tokens fill up the vocabulary of the released size.
    names += [f"<unused {index}>" for index in range(len(names), config.gpt.text_vocab_size)]
    added = [{"id": id, "content": name, "special": True} for id, name in enumerate(_SPECIALS)]
    merges = [[merge[:-1], merge[-1]] for merge in sorted(_MERGES, key=len) if merge[:-1] in names]
    vocabulary = {name: id for id, name in enumerate(names)}
    return {"added_tokens": added, "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}
