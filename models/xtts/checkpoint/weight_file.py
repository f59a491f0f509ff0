"""Reads model.pth of XTTS v2, without executing anything that it contains and without changing it.

The release pickles its settings as objects of the package TTS beside the tensors. Here such an object becomes
an inert one, which is then dropped; a pickle that asks for anything else is refused. Only the table "model"
is used, under the keys of the release:

    xtts.gpt...                              prefix of the trainer: removed
    dvae..., torch_mel_spectrogram...        parts for training: dropped
    gpt.gpt_inference..., gpt.gpt.wte...     second names of tensors that the table has: dropped
    weight_g, weight_v                       weight norm of older versions of torch: renamed

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/models/xtts.py (get_compatible_checkpoint_state_dict,
load_checkpoint).
"""

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...checkpoint import weight_files
from ...checkpoint.weight_files import TensorInfo, WeightFileError

MODEL_FILE = "model.pth"

_INERT_PACKAGES = ("TTS.", "coqpit.")
_TRAINER_PREFIX = "xtts."
_TRAINING_PARTS = ("torch_mel_spectrogram_style_encoder", "torch_mel_spectrogram_dvae", "dvae")
_ALIASES = ("gpt.gpt.wte.", "gpt.gpt_inference.")
_OLD_NAMES = {
    "weight_g": "parametrizations.weight.original0",
    "weight_v": "parametrizations.weight.original1",
}


def model_path(folder: Path) -> Path:
    """Path of the weights: the converted file if there is one."""
    return weight_files.weight_path(folder, MODEL_FILE)


def describe_model(path: Path) -> dict[str, TensorInfo]:
    """Shape and type of every tensor that is used, under its present key. Raises WeightFileError."""
    if path.suffix == ".safetensors":
        return weight_files.describe_tensors(path)
    tensors = _model_table(path, lambda: weight_files.read_pickled_data(path, "meta"))
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if stored > path.stat().st_size:
        raise WeightFileError(
            f"{path.name}: holds {path.stat().st_size:,} bytes, expected {stored:,}; download it again"
        )
    return {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in tensors.items()}


def load_model(path: Path) -> dict[str, Tensor]:
    """Read every tensor that is used to the CPU, under its present key. Raises WeightFileError."""
    if path.suffix == ".safetensors":
        return weight_files.load_weight_file(path)
    return _model_table(path, lambda: weight_files.read_pickled_data(path))


def map_model(path: Path) -> dict[str, Tensor]:
    """As ``load_model``, with the tensors left in the file: a page is read when it is first used.

    The file may be replaced meanwhile, but not overwritten. Raises WeightFileError.
    """
    if path.suffix == ".safetensors":
        return weight_files.map_weight_file(path)
    return _model_table(path, lambda: weight_files.map_pickled_data(path))


def convert_model(folder: Path) -> Path:
    """Write model.safetensors beside model.pth, read it back and compare both; returns its path.

    Raises WeightFileError, and OSError if it cannot be written.
    """
    target = (folder / MODEL_FILE).with_suffix(".safetensors")
    weight_files.write_safetensors(target, load_model(folder / MODEL_FILE))
    return target


def current_key(key: str) -> str | None:
    """The release's key of a tensor; None for one that is not used to speak."""
    key = key.removeprefix(_TRAINER_PREFIX)
    if key.partition(".")[0] in _TRAINING_PARTS or key.startswith(_ALIASES):
        return None
    module, _, name = key.rpartition(".")
    return f"{module}.{_OLD_NAMES[name]}" if name in _OLD_NAMES else key


def _model_table(path: Path, unpickle: Callable[[], Any]) -> dict[str, Tensor]:
    with _inert_settings(path):
        held = unpickle()
    table = held.get("model", held) if isinstance(held, Mapping) else held
    if not isinstance(table, Mapping) or not all(isinstance(value, Tensor) for value in table.values()):
        raise WeightFileError(f"{path.name}: no table of tensors under 'model'; is it a model.pth of XTTS?")
    renamed = ((current_key(str(key)), tensor) for key, tensor in table.items())
    return {key: tensor for key, tensor in renamed if key is not None}


class _InertObject:
    """Stands for an object of the package TTS; it keeps nothing and does nothing."""

    def __init__(self, *arguments: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


@contextlib.contextmanager
def _inert_settings(path: Path) -> Iterator[None]:
    """Let torch's restricted reader make inert objects of the names of TTS that the file asks for."""
    try:
        asked = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except (OSError, RuntimeError, ValueError, EOFError, LookupError, pickle.UnpicklingError):
        asked = []  # the reader that follows says what is wrong with the file
    inert: list[Any] = [(_InertObject, name) for name in asked if name.startswith(_INERT_PACKAGES)]
    with torch.serialization.safe_globals(inert):
        yield
