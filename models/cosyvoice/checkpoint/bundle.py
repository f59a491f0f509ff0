"""A CosyVoice checkpoint folder: is it whole, of which release, and what is in it.

    bundle = open_bundle(folder)    every file, key, shape and type compared with what the release must hold
    bundle.load("llm.pt")           the tensors of one network; nothing is allocated before this

Version 1 is recognised and refused. Nothing that a file says is executed: weights are tensors, settings are
data, ONNX models are looked at by their inputs and outputs.

    cosyvoice2.yaml | cosyvoice3.yaml     settings (recipe)
    llm.pt flow.pt hift.pt                weights (checkpoint, manifest); or converted, .safetensors
    campplus.onnx                         speaker encoder
    speech_tokenizer_v2.onnx | _v3.onnx   speech to speech ids
    CosyVoice-BlankEN/                    config.json, vocab.json, merges.txt
    spk2info.pt                           optional: speakers known by name

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/cosyvoice.py:30-77, 138-240.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..config import CosyVoiceConfig, CosyVoiceVersion
from ..front_end.text_tokenizer import TextTokenizer
from ..lm.sampling import SamplingParameters
from . import weight_files
from .onnx_signature import OnnxFileError, OnnxSignature, OnnxTensorInfo, read_onnx_signature
from .tensor_shapes import WEIGHT_FILES, TensorShape, file_shapes
from .yaml_config import QWEN_FOLDER, BundleConfigError, BundleYamlConfig, read_bundle_config

SPEAKER_ENCODER_FILE = "campplus.onnx"
SPEAKERS_FILE = "spk2info.pt"
SPEAKER_WIDTH = 192

_MAX_TOKENIZER_BYTES = 32_000_000  # ten times the released ones

_LANGUAGES = {
    CosyVoiceVersion.V2: ("zh", "en", "ja", "ko"),
    CosyVoiceVersion.V3: ("zh", "en", "ja", "ko", "de", "es", "fr", "it", "ru"),
}


class InvalidBundleError(ValueError):
    """The folder is no usable bundle: a line a fault, with what was found, expected, and is to be done."""


@dataclass(frozen=True, slots=True)
class CosyVoiceBundle:
    """A checked folder. languages: that the release was trained to speak, ISO 639-1."""

    folder: Path
    yaml_config: BundleYamlConfig
    languages: tuple[str, ...]

    @property
    def version(self) -> CosyVoiceVersion:
        """Which release it is."""
        return self.yaml_config.network_config.version

    @property
    def network_config(self) -> CosyVoiceConfig:
        """The sizes of its networks."""
        return self.yaml_config.network_config

    @property
    def sampling(self) -> SamplingParameters:
        """How its speech ids are chosen unless a session says otherwise."""
        return self.yaml_config.sampling

    @property
    def speaker_encoder(self) -> Path:
        """The ONNX model that hears who speaks."""
        return self.folder / SPEAKER_ENCODER_FILE

    @property
    def speech_tokenizer(self) -> Path:
        """The ONNX model that hears what is said, as speech ids."""
        return self.folder / speech_tokenizer_name(self.version)

    def load(self, name: str, memory_mapped: Collection[str] = ()) -> dict[str, Tensor]:
        """The tensors of ``llm.pt``, ``flow.pt`` or ``hift.pt``; raises InvalidBundleError.

        mapped: keys of tensors that stay in the file, see ``checkpoint.load``.
        """
        try:
            return weight_files.load_weight_file(weight_files.weight_path(self.folder, name), memory_mapped)
        except weight_files.WeightFileError as fault:
            raise InvalidBundleError(str(fault)) from fault

    def text_tokenizer(self) -> TextTokenizer:
        """The tokenizer of its Qwen folder."""
        return TextTokenizer.load(self.folder / QWEN_FOLDER, self.version)

    def speakers(self) -> dict[str, Tensor]:
        """Speakers known by name and their embeddings, (192,) float32; empty without a spk2info.pt."""
        path = self.folder / SPEAKERS_FILE
        return _read_speakers(path, "cpu") if path.exists() else {}


def open_bundle(folder: Path) -> CosyVoiceBundle:
    """Check a folder; raises InvalidBundleError with every fault that was found, before anything is allocated."""
    version = detect_version(folder)
    faults: list[str] = []
    yaml_config: BundleYamlConfig | None = None
    try:
        yaml_config = read_bundle_config(folder, version)
    except BundleConfigError as fault:
        faults.append(f"{fault}; is the folder one release, downloaded completely?")
    checks = _checks(folder, version, yaml_config.network_config if yaml_config else None)
    faults += [found for check in checks if (found := _error_of(check))]
    if yaml_config is None or faults:
        raise InvalidBundleError("\n".join(faults))
    return CosyVoiceBundle(folder, yaml_config, _LANGUAGES[version])


def detect_version(folder: Path) -> CosyVoiceVersion:
    """Which release a folder holds, by its yaml; raises InvalidBundleError."""
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
            f"{folder}: CosyVoice 1 (cosyvoice.yaml), which is not spoken here; use CosyVoice 2 or 3"
        )
    raise InvalidBundleError(
        f"{folder}: no cosyvoice2.yaml or cosyvoice3.yaml in it; download the release again"
    )


def speech_tokenizer_name(version: CosyVoiceVersion) -> str:
    """The file that hears speech ids."""
    return f"speech_tokenizer_v{version.value}.onnx"


def _checks(
    folder: Path, version: CosyVoiceVersion, config: CosyVoiceConfig | None
) -> Iterator[Callable[[], object]]:
    """What to look at; without a geometry, because the settings are damaged, whether files are complete."""
    shapes = file_shapes(config) if config else {}
    for name in WEIGHT_FILES:
        yield functools.partial(_check_weights, folder, name, shapes.get(name))
    yield functools.partial(_check_onnx, folder / SPEAKER_ENCODER_FILE, _SPEAKER_ENCODER_SIGNATURE)
    yield functools.partial(_check_onnx, folder / speech_tokenizer_name(version), _SPEECH_TOKENIZER_SIGNATURE)
    yield functools.partial(_check_tokenizer, folder, version, config)
    yield functools.partial(_check_speakers, folder / SPEAKERS_FILE)


def _check_weights(folder: Path, name: str, shapes: Mapping[str, TensorShape] | None) -> None:
    path = weight_files.weight_path(folder, name)
    if shapes is None:
        weight_files.describe_tensors(path)
    else:
        weight_files.check_weight_file(path, shapes)


def _error_of(check: Callable[[], object]) -> str | None:
    try:
        check()
    except (weight_files.WeightFileError, InvalidBundleError) as fault:
        return str(fault)
    return None


# Named as published models name them; upstream goes by position, and so does the check.
_SPEAKER_ENCODER_SIGNATURE = OnnxSignature(
    (OnnxTensorInfo("input", "float32", (None, None, 80)),),
    (OnnxTensorInfo("output", "float32", (None, SPEAKER_WIDTH)),),
)
_SPEECH_TOKENIZER_SIGNATURE = OnnxSignature(
    (OnnxTensorInfo("feats", "float32", (1, 128, None)), OnnxTensorInfo("feats_length", "int32", (None,))),
    (OnnxTensorInfo("indices", "int32", (None, None)),),
)


def _check_onnx(path: Path, expected: OnnxSignature) -> None:
    try:
        weight_files.require_file(path)
        found = read_onnx_signature(path)
    except OSError as error:
        raise InvalidBundleError(f"{path.name}: {error.strerror}; download it again") from error
    except OnnxFileError as fault:
        raise InvalidBundleError(f"{path.name}: {fault}; download it again") from fault
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
            f"{QWEN_FOLDER}: vocab.json and the marks make {tokenizer.vocab_size:,} ids, expected at most "
            f"{config.lm.text_vocab_size:,} (vocab_size of config.json); are both of the same release?"
        )


def _read_tokenizer(folder: Path, version: CosyVoiceVersion) -> TextTokenizer:
    for name in ("vocab.json", "merges.txt"):
        try:
            weight_files.require_file(folder / QWEN_FOLDER / name)
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


def _check_speakers(path: Path) -> None:
    if path.exists():
        _read_speakers(path, "meta")


def _read_speakers(path: Path, device: str) -> dict[str, Tensor]:
    try:
        return {
            str(name): _embedding(entry)
            for name, entry in weight_files.read_pickled_data(path, device).items()
        }
    except weight_files.WeightFileError as fault:
        raise InvalidBundleError(str(fault)) from fault
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InvalidBundleError(
            f"{path.name}: {repr(error)[:200]}; expected speakers with an embedding each; remove it or get "
            "it again"
        ) from error


def _embedding(entry: dict[str, Tensor]) -> Tensor:
    embedding = entry["embedding"] if "embedding" in entry else entry["flow_embedding"]
    if embedding.numel() != SPEAKER_WIDTH:
        raise ValueError(f"an embedding has {embedding.numel()} numbers, expected {SPEAKER_WIDTH}")
    return embedding.reshape(SPEAKER_WIDTH).float()
