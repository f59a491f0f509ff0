"""What is in a checked bundle, file by file, for people who want to know."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import weight_files
from .bundle import SPEAKERS_FILE, CosyVoiceBundle
from .tensor_shapes import WEIGHT_FILES
from .yaml_config import QWEN_FOLDER


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file, relative to the bundle, and what its check has compared."""

    name: str
    size_bytes: int
    checked: str


def list_bundle_files(bundle: CosyVoiceBundle) -> Iterator[BundleFile]:
    """Every file that a bundle is used with. Reads headers only."""
    sizes = {
        f"cosyvoice{bundle.version.value}.yaml": "every setting that is used; none of its tags is run",
        f"{QWEN_FOLDER}/config.json": "the sizes of the language model",
        f"{QWEN_FOLDER}/vocab.json": f"with the marks {bundle.text_tokenizer().vocab_size:,} text ids",
        f"{QWEN_FOLDER}/merges.txt": "every pair is in vocab.json",
        bundle.speaker_encoder.name: "complete; inputs and outputs",
        bundle.speech_tokenizer.name: "complete; inputs and outputs",
    }
    for name in WEIGHT_FILES:
        path = weight_files.weight_path(bundle.folder, name)
        yield BundleFile(path.name, path.stat().st_size, _describe_weights(path))
    for name, checked in sizes.items():
        yield BundleFile(name, (bundle.folder / name).stat().st_size, checked)
    speakers = bundle.folder / SPEAKERS_FILE
    if speakers.exists():
        count = len(bundle.speakers())
        yield BundleFile(
            SPEAKERS_FILE, speakers.stat().st_size, f"{count} {'speaker' if count == 1 else 'speakers'}"
        )


def _describe_weights(path: Path) -> str:
    shapes = [
        shape
        for key, (shape, _) in weight_files.describe_tensors(path).items()
        if key != weight_files.TIED_KEY
    ]
    numbers = sum(math.prod(shape) for shape in shapes)
    return f"{len(shapes):,} tensors of {numbers / 1e6:,.1f} M numbers: every key, shape and type"
