"""Checks and reads a released CosyVoice folder, called a bundle.

    bundle = open_bundle(folder)    compares every file, key, shape and type with what the release must hold
    bundle.load("llm.pt")           reads the tensors of one network; nothing large is allocated before

A folder of version 1 is recognised and refused. Nothing in the folder is executed: weights are read as
tensors, settings as data, and of an ONNX model only its inputs and outputs are read.

    cosyvoice2.yaml | cosyvoice3.yaml     settings (yaml_config)
    llm.pt flow.pt hift.pt                weights (weight_files, tensor_shapes), or the same as .safetensors
    campplus.onnx                         speaker encoder
    speech_tokenizer_v2.onnx | _v3.onnx   speech to speech ids
    CosyVoice-BlankEN/                    config.json, vocab.json, merges.txt
    spk2info.pt                           optional: speakers by name, embeddings or clones of recordings

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/cosyvoice.py:30-77, 138-240.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...bundle_files import TensorShape, WeightFileError, is_web_page, require_file, weight_path
from ...checkpoint.settings_file import BundleConfigError
from ...devices.execution import is_torch_installed
from ..config import QWEN_FOLDER, SPEAKER_WIDTH, TIED_KEYS, CosyVoiceConfig, CosyVoiceVersion
from ..front_end.text_tokenizer import TextTokenizer
from ..lm.sampling import SamplingParameters
from .onnx_signature import OnnxFileError, OnnxSignature, OnnxTensorInfo, read_onnx_signature
from .speakers import (
    EXPORTED_SPEAKERS,
    SPEAKERS_FILE,
    BundleSpeaker,
    check_ids,
    read_exported_speakers,
    read_speakers,
)
from .tensor_shapes import WEIGHT_FILES, file_shapes
from .yaml_config import BundleYamlConfig, read_bundle_config

if TYPE_CHECKING:
    from torch import Tensor

SPEAKER_ENCODER_FILE = "campplus.onnx"
SECOND_LM_FILE = "llm.rl.pt"  # another language model that a release of version 3 may hold; not used

_MAX_TOKENIZER_BYTES = 32_000_000  # a release has about 3 MB
_FILTER_BANK_BANDS, _WHISPER_BANDS = 80, 128

_LANGUAGES = {
    CosyVoiceVersion.V2: ("zh", "en", "ja", "ko"),
    CosyVoiceVersion.V3: ("zh", "en", "ja", "ko", "de", "es", "fr", "it", "ru"),
}


class InvalidBundleError(ValueError):
    """The folder is no usable bundle.

    The message has one line a fault: what was found, what is expected, and what to do about it.
    """


@dataclass(frozen=True, slots=True)
class CosyVoiceBundle:
    """A checked folder."""

    folder: Path
    yaml_config: BundleYamlConfig
    languages: tuple[str, ...]  # ISO 639-1, that the release was trained on

    @property
    def version(self) -> CosyVoiceVersion:
        """The release that the folder holds."""
        return self.yaml_config.network_config.version

    @property
    def network_config(self) -> CosyVoiceConfig:
        """Sizes of the networks."""
        return self.yaml_config.network_config

    @property
    def sampling(self) -> SamplingParameters:
        """Default sampling parameters of a session."""
        return self.yaml_config.sampling

    @property
    def speaker_encoder(self) -> Path:
        """Path of the ONNX model that computes speaker embeddings."""
        return self.folder / SPEAKER_ENCODER_FILE

    @property
    def speech_tokenizer(self) -> Path:
        """Path of the ONNX model that turns speech into speech ids."""
        return self.folder / speech_tokenizer_name(self.version)

    def load(self, name: str, memory_mapped: Collection[str] = ()) -> "dict[str, Tensor]":
        """Read the tensors of ``llm.pt``, ``flow.pt`` or ``hift.pt``.

        ``memory_mapped`` lists keys that stay in the file, see ``weight_files.load_weight_file``. Raises
        InvalidBundleError.
        """
        from ...checkpoint import weight_files

        try:
            return weight_files.load_weight_file(weight_path(self.folder, name), memory_mapped)
        except WeightFileError as error:
            raise InvalidBundleError(str(error)) from error

    @property
    def weight_bytes(self) -> int:
        """Size of the weight files of the three networks; 0 for those that an exported bundle leaves out."""
        paths = (weight_path(self.folder, name) for name in WEIGHT_FILES)
        return sum(path.stat().st_size for path in paths if path.exists())

    def text_tokenizer(self) -> TextTokenizer:
        """Load the tokenizer of the Qwen folder."""
        return TextTokenizer.load(self.folder / QWEN_FOLDER, self.version)

    def speakers(self) -> dict[str, BundleSpeaker]:
        """The speakers by name; empty without a spk2info.pt. Raises WeightFileError."""
        path = self.folder / SPEAKERS_FILE
        if path.exists() and is_torch_installed():
            return read_speakers(path)
        exported = self.folder / EXPORTED_SPEAKERS
        return read_exported_speakers(exported) if exported.exists() else {}


def open_bundle(folder: Path) -> CosyVoiceBundle:
    """Check a folder before any weight is allocated.

    Raises InvalidBundleError that lists every fault.
    """
    version = detect_version(folder)
    faults: list[str] = []
    yaml_config: BundleYamlConfig | None = None
    try:
        yaml_config = read_bundle_config(folder, version)
    except BundleConfigError as error:
        faults.append(f"{error}; is the folder one release, downloaded completely?")
    checks = _checks(folder, version, yaml_config.network_config if yaml_config else None)
    faults += [found for check in checks if (found := _error_of(check))]
    if yaml_config is None or faults:
        raise InvalidBundleError("\n".join(faults))
    return CosyVoiceBundle(folder, yaml_config, _LANGUAGES[version])


def detect_version(folder: Path) -> CosyVoiceVersion:
    """Return the release that a folder holds, by the name of its yaml. Raises InvalidBundleError."""
    if not folder.is_dir():
        raise InvalidBundleError(
            f"{folder}: no such folder; give the folder that holds cosyvoice2.yaml or cosyvoice3.yaml"
        )
    held = [version for version in CosyVoiceVersion if (folder / f"cosyvoice{version.value}.yaml").exists()]
    if len(held) == 1:
        return held[0]
    if held:
        raise InvalidBundleError(
            f"{folder}: found cosyvoice2.yaml and cosyvoice3.yaml; expected one, remove the other"
        )
    if (folder / "cosyvoice.yaml").exists():
        raise InvalidBundleError(
            f"{folder}: CosyVoice 1 (cosyvoice.yaml) is not supported; use CosyVoice 2 or 3"
        )
    raise InvalidBundleError(
        f"{folder}: no cosyvoice2.yaml or cosyvoice3.yaml in it; download the release again"
    )


def speech_tokenizer_name(version: CosyVoiceVersion) -> str:
    """Name of the speech tokenizer's file."""
    return f"speech_tokenizer_v{version.value}.onnx"


def _checks(
    folder: Path, version: CosyVoiceVersion, config: CosyVoiceConfig | None
) -> Iterator[Callable[[], object]]:
    """Yield the checks of each file; without a config, weights are only checked to be complete."""
    shapes = file_shapes(config) if config else {}
    for name in WEIGHT_FILES:
        yield functools.partial(_check_weights, folder, name, shapes.get(name))
    yield functools.partial(_check_onnx, folder / SPEAKER_ENCODER_FILE, _SPEAKER_ENCODER_SIGNATURE)
    yield functools.partial(_check_onnx, folder / speech_tokenizer_name(version), _SPEECH_TOKENIZER_SIGNATURE)
    yield functools.partial(_check_tokenizer, folder, version, config)
    yield functools.partial(_check_speakers, folder, version, config)


def _check_weights(folder: Path, name: str, shapes: Mapping[str, TensorShape] | None) -> None:
    if not is_torch_installed():
        return  # exported graphs are compared with each other instead
    from ...checkpoint import weight_files

    path = weight_path(folder, name)
    if shapes is None:
        weight_files.describe_tensors(path, TIED_KEYS)
    else:
        weight_files.check_weight_file(path, shapes, TIED_KEYS)


def _error_of(check: Callable[[], object]) -> str | None:
    try:
        check()
    except (WeightFileError, InvalidBundleError) as error:
        return str(error)
    return None


# Names are those of the published models. Upstream feeds by position, so names are not compared.
_SPEAKER_ENCODER_SIGNATURE = OnnxSignature(
    (OnnxTensorInfo("input", "float32", (None, None, _FILTER_BANK_BANDS)),),
    (OnnxTensorInfo("output", "float32", (None, SPEAKER_WIDTH)),),
)
_SPEECH_TOKENIZER_SIGNATURE = OnnxSignature(
    (
        OnnxTensorInfo("feats", "float32", (1, _WHISPER_BANDS, None)),
        OnnxTensorInfo("feats_length", "int32", (None,)),
    ),
    (OnnxTensorInfo("indices", "int32", (None, None)),),
)


def _check_onnx(path: Path, expected: OnnxSignature) -> None:
    try:
        require_file(path)
        if is_web_page(path):
            raise InvalidBundleError(f"{path.name}: a web page, not the file; download it again")
        found = read_onnx_signature(path)
    except OSError as error:
        raise InvalidBundleError(f"{path.name}: {error.strerror}; download it again") from error
    except OnnxFileError as error:
        raise InvalidBundleError(f"{path.name}: {error}; download it again") from error
    for what, got, wanted in (
        ("inputs", found.inputs, expected.inputs),
        ("outputs", found.outputs[: len(expected.outputs)], expected.outputs),
    ):
        if len(got) != len(wanted) or not all(_fits(*pair) for pair in zip(got, wanted, strict=True)):
            raise InvalidBundleError(
                f"{path.name}: {what} are {_list_tensors(got)}, expected {_list_tensors(wanted)}; "
                "is it the file of this release, and not the one for training in batches?"
            )


def _fits(found: OnnxTensorInfo, wanted: OnnxTensorInfo) -> bool:
    if found.type != wanted.type or len(found.dimensions) != len(wanted.dimensions):
        return False
    pairs = zip(found.dimensions, wanted.dimensions, strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _list_tensors(tensors: tuple[OnnxTensorInfo, ...]) -> str:
    return ", ".join(map(str, tensors)) or "none"


def _check_tokenizer(folder: Path, version: CosyVoiceVersion, config: CosyVoiceConfig | None) -> None:
    tokenizer = _read_tokenizer(folder, version)
    if config and tokenizer.vocab_size > config.lm.text_vocab_size:
        raise InvalidBundleError(
            f"{QWEN_FOLDER}: vocab.json and the special tokens make {tokenizer.vocab_size:,} ids, "
            f"expected at most {config.lm.text_vocab_size:,} (vocab_size of config.json); "
            "are both of the same release?"
        )


def _read_tokenizer(folder: Path, version: CosyVoiceVersion) -> TextTokenizer:
    for name in ("vocab.json", "merges.txt"):
        try:
            require_file(folder / QWEN_FOLDER / name)
            size = (folder / QWEN_FOLDER / name).stat().st_size
        except FileNotFoundError as error:
            raise InvalidBundleError(f"{QWEN_FOLDER}/{name}: missing; download it again") from error
        except OSError as error:
            raise InvalidBundleError(f"{QWEN_FOLDER}/{name}: {error.strerror}; download it again") from error
        if size > _MAX_TOKENIZER_BYTES:
            raise InvalidBundleError(
                f"{QWEN_FOLDER}/{name}: {size:,} bytes, expected at most {_MAX_TOKENIZER_BYTES:,}; "
                "download it again"
            )
    try:
        return TextTokenizer.load(folder / QWEN_FOLDER, version)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidBundleError(
            f"{QWEN_FOLDER}: vocab.json or merges.txt cannot be read ({str(error)[:200]}); expected a "
            "table of tokens and their ids, and pairs of them; download them again"
        ) from error


def _check_speakers(folder: Path, version: CosyVoiceVersion, config: CosyVoiceConfig | None) -> None:
    path = folder / SPEAKERS_FILE
    if not path.exists() or not is_torch_installed():
        return
    speakers = read_speakers(path)
    if config and any(speaker.recording for speaker in speakers.values()):
        vocab_size = _read_tokenizer(folder, version).vocab_size
        check_ids(speakers, vocab_size, config.lm.codebook_size)
