"""Lists the files of a checked bundle with sizes and checks, for ``vivavoce bundle check``."""

import math
from collections.abc import Iterator
from pathlib import Path

from ...bundle_files import BundleFile
from ...checkpoint import weight_files
from ..config import QWEN_FOLDER, TIED_KEYS
from .bundle import SECOND_LM_FILE, CosyVoiceBundle
from .speakers import SPEAKERS_FILE
from .tensor_shapes import WEIGHT_FILES


def list_bundle_files(bundle: CosyVoiceBundle) -> Iterator[BundleFile]:
    """Yield every file that a bundle uses. Reads headers only."""
    descriptions = {
        f"cosyvoice{bundle.version.value}.yaml": "every setting that is used; tags are not executed",
        f"{QWEN_FOLDER}/config.json": "the sizes of the language model",
        f"{QWEN_FOLDER}/vocab.json": f"with special tokens {bundle.text_tokenizer().vocab_size:,} text ids",
        f"{QWEN_FOLDER}/merges.txt": "every pair is in vocab.json",
        bundle.speaker_encoder.name: "complete; inputs and outputs",
        bundle.speech_tokenizer.name: "complete; inputs and outputs",
    }
    for name in WEIGHT_FILES:
        path = weight_files.weight_path(bundle.folder, name)
        yield BundleFile(path.name, path.stat().st_size, _describe_weights(path))
    for name, checked in descriptions.items():
        yield BundleFile(name, (bundle.folder / name).stat().st_size, checked)
    speakers = bundle.folder / SPEAKERS_FILE
    if speakers.exists():
        held = bundle.speakers().values()
        clones = sum(speaker.recording is not None for speaker in held)
        checked = f"{len(held)} {'speaker' if len(held) == 1 else 'speakers'}"
        checked += f", {clones} with a recording" if clones else ""
        yield BundleFile(SPEAKERS_FILE, speakers.stat().st_size, checked)
    second_lm = bundle.folder / SECOND_LM_FILE
    if second_lm.exists():
        size = second_lm.stat().st_size
        yield BundleFile(SECOND_LM_FILE, size, "not used: llm.pt speaks; to use it, put it in llm.pt's place")


def _describe_weights(path: Path) -> str:
    tensors = weight_files.describe_tensors(path, TIED_KEYS)
    shapes = [shape for key, (shape, _) in tensors.items() if key not in TIED_KEYS]
    numbers = sum(math.prod(shape) for shape in shapes)
    return f"{len(shapes):,} tensors of {numbers / 1e6:,.1f} M numbers: every key, shape and type"
