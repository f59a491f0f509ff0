"""Checks, reads and converts weight files, without executing anything that they contain.

A ``.pt`` file is a zip archive of a pickle and raw numbers. The pickle is read by torch's restricted reader,
which accepts tensors and plain containers only; keys and shapes are read without the numbers. A
``.safetensors`` file cannot contain code.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/model.py:67-75 (which file goes where, the ``generator.``
prefix).
"""

import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..bundle_files import TensorShape as TensorShape
from ..bundle_files import WeightFileError as WeightFileError
from ..bundle_files import is_web_page
from ..bundle_files import require_file as require_file
from ..bundle_files import weight_path as weight_path

TensorInfo = tuple[TensorShape, torch.dtype]

_GENERATOR_PREFIX = "generator."
_OLD_WEIGHT_NORM_KEYS = {
    ".weight_g": ".parametrizations.weight.original0",
    ".weight_v": ".parametrizations.weight.original1",
}
_MAX_KEYS_NAMED = 4
_TENSORS_PER_MAPPING = 12  # a layer of the language model
_MAX_PICKLE_BYTES = 16_000_000  # the pickle only names the tensors; a release has 0.1 MB
_GIT_LFS_POINTER = b"version https://git-lfs"
_SIXTEEN_BIT_TYPES = (torch.float16, torch.bfloat16)
_TRAINING_COUNTERS = {"epoch", "step"}  # that upstream's trainer stores beside the tensors
_TRAINER_FILES = "epoch_*_whole.pt"
_NESTED_WEIGHTS = ("state_dict", "model", "model_state_dict", "module")  # of other trainers
_PARALLEL_PREFIX = "module."  # that torch's data parallelism puts before every key


def check_weight_file(path: Path, expected: Mapping[str, TensorShape], tied: Collection[str] = ()) -> None:
    """Compare a file's keys, shapes and types with ``expected``. Reads headers only.

    Tensors of 16 bits may stand for float32 ones. tied: keys that share the numbers of another tensor, which
    a converted file may lack. Raises WeightFileError that lists every difference.
    """
    found = {
        key: (shape, torch.float32 if dtype in _SIXTEEN_BIT_TYPES else dtype)
        for key, (shape, dtype) in describe_tensors(path, tied).items()
    }
    lacking = set(tied) - found.keys() if path.suffix == ".safetensors" else set()
    wanted = {key: (shape, torch.float32) for key, shape in expected.items() if key not in lacking}
    if differences := list_differences(found, wanted):
        raise WeightFileError(f"{path.name}: {differences}; {_remedy(path, found, wanted)}")


def list_differences(found: Mapping[str, TensorInfo], wanted: Mapping[str, TensorInfo]) -> str:
    """Missing and unknown keys, and tensors of another shape or type, for a message; empty without any."""
    missing = [key for key in wanted if key not in found]
    unknown = [key for key in found if key not in wanted]
    other = [
        f"{key} is {_shape_and_type(*found[key])}, expected {_shape_and_type(*info)}"
        for key, info in wanted.items()
        if key in found and found[key] != info
    ]
    return "; ".join(_differences(missing, unknown, other))


def load_weight_file(path: Path, memory_mapped: Collection[str] = ()) -> dict[str, Tensor]:
    """Read every tensor to the CPU, under its current key; those of 16 bits become float32.

    ``memory_mapped`` lists keys whose tensors stay in the file: a page is read when it is first used. The
    file may be replaced meanwhile, but not overwritten. Raises WeightFileError.
    """
    read, mapping = (
        (_read_safetensors, _map_safetensors)
        if path.suffix == ".safetensors"
        else (_read_pickle, _map_pickle)
    )
    try:
        tensors = _with_current_keys(read(path))
        for key in memory_mapped:
            tensors.pop(key)  # frees the copy before the mapping is made
            tensors[key] = _with_current_keys(mapping(path))[key]
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    return {
        key: tensor.float() if tensor.dtype in _SIXTEEN_BIT_TYPES else tensor
        for key, tensor in tensors.items()
    }


def map_weight_file(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file under its current key, left in the file: a page is read when first used.

    Raises WeightFileError.
    """
    try:
        mapping = _map_safetensors if path.suffix == ".safetensors" else _map_pickle
        return _with_current_keys(mapping(path))
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    return _read_tensor_table(path, "cpu")


def _map_pickle(path: Path) -> dict[str, Tensor]:
    """Map the whole file. A tensor kept from it keeps the mapping; pages never read take no memory."""
    return {key: value for key, value in map_pickled_data(path).items() if isinstance(value, Tensor)}


def _map_safetensors(path: Path) -> dict[str, Tensor]:
    return load_file(path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Copy the tensors, mapping a few at a time: pages read through a mapping count as memory."""
    with safe_open(path, framework="pt") as file:
        keys = list(file.keys())
    tensors = {}
    for some in _batched(keys, _TENSORS_PER_MAPPING):
        with safe_open(path, framework="pt") as file:
            tensors.update({key: file.get_tensor(key).clone() for key in some})
    return tensors


def read_pickled_data(path: Path, device: str = "cpu") -> Any:
    """Read tensors and plain containers of a ``.pt`` file.

    ``device`` "meta" leaves the numbers on the disk. Raises WeightFileError.
    """
    return _unpickle(path, lambda: torch.load(path, map_location=device, weights_only=True))


def map_pickled_data(path: Path) -> Any:
    """As ``read_pickled_data``, with the tensors left in the file: a page is read when first used."""
    return _unpickle(path, lambda: torch.load(path, map_location="cpu", weights_only=True, mmap=True))


def _unpickle(path: Path, load: Callable[[], Any]) -> Any:
    _check_archive(path)
    try:
        return load()
    except pickle.UnpicklingError as error:
        raise WeightFileError(
            f"{path.name}: its pickle is damaged or asks for code to be run{_named_code(error)}; expected "
            "tensors only; do not load this file with anything else, get it from its publisher"
        ) from error
    except _DAMAGED_FILE_ERRORS as error:
        raise _unreadable(path, error) from error


# Reading a damaged pickle can raise any of these.
_DAMAGED_FILE_ERRORS = (
    OSError,
    RuntimeError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    MemoryError,
    struct.error,
)


def convert_to_safetensors(source: Path, tied: Collection[str] = ()) -> Path:
    """Write a ``.pt`` file as ``.safetensors`` beside it, without its tied tensors; return the new path.

    tied: keys that share the numbers of another tensor. The new file appears only after it was read back and
    compared bit by bit. Raises WeightFileError, and OSError if it cannot be written.
    """
    target = source.with_suffix(".safetensors")
    tensors = _with_current_keys(_read_tensor_table(source, "cpu"))
    write_safetensors(target, {key: tensor for key, tensor in tensors.items() if key not in tied})
    return target


def write_safetensors(target: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to ``target``, which appears only after it was read back and compared bit by bit.

    Raises WeightFileError, and OSError if it cannot be written.
    """
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; remove it")
    partial = target.with_suffix(".partial")
    try:
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, partial)
        _verify_conversion(partial, tensors)
        partial.replace(target)
    except SafetensorError as error:
        raise WeightFileError(f"{target.name}: {error}; is there room on the disk?") from error
    finally:
        partial.unlink(missing_ok=True)


def _verify_conversion(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with safe_open(path, framework="pt") as file:
        different = set(file.keys()) ^ set(tensors)
        # By bits, because a NaN does not equal itself.
        different |= {
            key
            for key, tensor in tensors.items()
            if not _same_bits(file.get_tensor(key), tensor.contiguous())
        }
    if different:
        raise WeightFileError(
            f"{path.name}: {', '.join(_abbreviate(sorted(different)))} differ after reading back; try again"
        )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and torch.equal(*map(_as_bytes, (one, other)))
    )


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def describe_tensors(path: Path, tied: Collection[str] = ()) -> dict[str, TensorInfo]:
    """Read the shape and type of every tensor, under its current key. Raises WeightFileError.

    tied: keys that share the numbers of another tensor, which are stored once.
    """
    if path.suffix == ".safetensors":
        return _describe_safetensors(path)
    tensors = _with_current_keys(_read_tensor_table(path, "meta"))
    _check_data_size(path, {key: tensor for key, tensor in tensors.items() if key not in tied})
    return {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in tensors.items()}


def _describe_safetensors(path: Path) -> dict[str, TensorInfo]:
    try:
        require_file(path)
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - safe_open is no mapping
            return {
                key: (tuple(part.get_shape()), _SAFETENSORS_TYPES.get(part.get_dtype(), torch.bool))
                for key, part in slices.items()
            }
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


_SAFETENSORS_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I64": torch.int64,
}


def _check_archive(path: Path) -> None:
    """Raise WeightFileError for a truncated file, a Git LFS pointer, a web page, or a foreign archive."""
    try:
        require_file(path)
        with path.open("rb") as file:
            start = file.read(len(_GIT_LFS_POINTER))
            size = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if start == _GIT_LFS_POINTER:
        raise WeightFileError(
            f"{path.name}: a Git LFS pointer of {size} bytes, not the file; run git lfs pull"
        )
    if is_web_page(path):
        raise WeightFileError(f"{path.name}: a web page, not the file; {_download_hint(path)}")
    entries = _entries(path)
    if entries is None:
        raise WeightFileError(
            f"{path.name}: {size:,} bytes that are not a complete PyTorch archive; {_download_hint(path)}"
        )
    packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    pickled = sum(entry.file_size for entry in entries if entry.filename.endswith(".pkl"))
    # A compressed archive could unpack to any size, so it is refused before reading.
    if packed or pickled > _MAX_PICKLE_BYTES or sum(entry.file_size for entry in entries) > size:
        raise WeightFileError(
            f"{path.name}: a zip archive that PyTorch does not write (a pickle of {pickled:,} bytes); "
            f"{_download_hint(path)}"
        )


def _entries(path: Path) -> list[zipfile.ZipInfo] | None:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError):
        return None


def _check_data_size(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise WeightFileError if fewer bytes are stored than the tensors need."""
    stored = sum(entry.file_size for entry in _entries(path) or () if "/data/" in entry.filename)
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if stored < needed:
        raise WeightFileError(
            f"{path.name}: holds {stored:,} bytes of numbers, expected {needed:,}; {_download_hint(path)}"
        )


def _read_tensor_table(path: Path, device: str) -> dict[str, Tensor]:
    read = read_pickled_data(path, device)
    if isinstance(read, dict):
        read = {
            key: value for key, value in read.items() if not (key in _TRAINING_COUNTERS and _is_number(value))
        }
    if not isinstance(read, dict) or not all(isinstance(value, Tensor) for value in read.values()):
        raise WeightFileError(
            f"{path.name}: not a table of tensors; expected the weights of one network{_nested_hint(read)}"
        )
    return read


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.ndim == 0)


def _nested_hint(read: object) -> str:
    """How to take the weights out of a checkpoint that holds more than them."""
    if isinstance(read, dict):
        for name in _NESTED_WEIGHTS:
            if isinstance(read.get(name), dict):
                return f", which this checkpoint of a trainer has under {name!r}: save that table alone"
    return ""


def _with_current_keys(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the prefix of a training checkpoint, and rename the old keys of weight norm."""
    return {_current_key(key): tensor for key, tensor in tensors.items()}


def _current_key(key: str) -> str:
    key = key.removeprefix(_GENERATOR_PREFIX)
    for old, new in _OLD_WEIGHT_NORM_KEYS.items():
        if key.endswith(old):
            return key.removesuffix(old) + new
    return key


def _differences(missing: list[str], unknown: list[str], other: list[str]) -> Iterator[str]:
    for keys, what in ((missing, "missing"), (unknown, "unknown")):
        if keys:
            yield f"{len(keys)} keys {what} ({', '.join(_abbreviate(keys))})"
    if other:
        yield (
            f"{len(other)} tensors of another shape or type ({', '.join(_abbreviate(other))})"
            if other[1:]
            else other[0]
        )


def _batched(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


def _abbreviate(keys: list[str]) -> Iterator[str]:
    yield from keys[:_MAX_KEYS_NAMED]
    if len(keys) > _MAX_KEYS_NAMED:
        yield "..."


def _shape_and_type(shape: TensorShape, dtype: torch.dtype) -> str:
    return f"{list(shape)} {str(dtype).removeprefix('torch.')}"


def _unreadable(path: Path, error: BaseException) -> WeightFileError:
    """The error for a file that cannot be read, without the words of the library that tried."""
    trained = sorted(path.parent.glob(_TRAINER_FILES)) if isinstance(error, FileNotFoundError) else []
    if trained:
        return WeightFileError(
            f"{path.name}: missing; found {trained[-1].name}: if upstream's trainer made it of this network, "
            f"name it {path.name}"
        )
    if isinstance(error, OSError) and error.strerror:
        return WeightFileError(f"{path.name}: {error.strerror}; {_download_hint(path)}")
    if path.is_file() and is_web_page(path):
        return WeightFileError(f"{path.name}: a web page, not the file; {_download_hint(path)}")
    kind = "safetensors file" if path.suffix == ".safetensors" else "PyTorch archive"
    return WeightFileError(f"{path.name}: not a complete {kind}; {_download_hint(path)}")


def _named_code(error: pickle.UnpicklingError) -> str:
    """The name that a pickle asks for, as torch reports it; empty if it does not."""
    name = re.search(r"GLOBAL ([\w.]{1,100})", str(error))
    return f" ({name[1]})" if name else ""


def _remedy(path: Path, found: Mapping[str, TensorInfo], wanted: Mapping[str, TensorInfo]) -> str:
    if all(key.startswith(_PARALLEL_PREFIX) for key in found):
        return f"save it without the prefix {_PARALLEL_PREFIX!r} of its keys"
    if {key: shape for key, (shape, _) in found.items()} == {
        key: shape for key, (shape, _) in wanted.items()
    }:
        return "save it in float32, float16 or bfloat16"
    return f"is {path.name} of the same release as the yaml beside it?"


def _download_hint(path: Path) -> str:
    return f"download {path.name} again and compare its size with the publisher's"
