"""Case n_checkpoint: the forms of model.pth and of speakers_xtts.pth that are met on disk."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from golden.reference.comparison import Comparison, compare, compare_rows, read_rows
from golden.reference.xtts.networks import read_network_config
from vivavoce.models.xtts.checkpoint.tensor_shapes import model_tensors
from vivavoce.models.xtts.checkpoint.voices_file import VOICES_FILE, read_voices
from vivavoce.models.xtts.checkpoint.weight_file import current_key, describe_model, load_model
from vivavoce.models.xtts.config import XttsConfig

CASE = "n_checkpoint"
_MODELS = ("model_config_object", "model_config_dict", "model_finetune")


def check_checkpoint(folder: Path) -> Iterator[Comparison]:
    """Compare the tensors of every form, and the voices by name; nothing may be written."""
    with np.load(folder / CASE / "expected.npz", allow_pickle=False) as stored:
        expected = {name: torch.from_numpy(stored[name]) for name in stored.files}
    weights = {current_key(key): value for key, value in expected.items() if "|" not in key}
    before = {path.name: path.stat().st_mtime_ns for path in (folder / CASE).iterdir()}
    for name in _MODELS:
        path = folder / CASE / f"{name}.pth"
        loaded = load_model(path)
        yield compare_rows(CASE, f"{name} keys", sorted(loaded), sorted(filter(None, weights)))
        yield compare_rows(CASE, f"{name} described", sorted(describe_model(path)), sorted(loaded))
        for key, value in weights.items():
            yield compare(CASE, f"{name} {key}", loaded[str(key)], value, 0.0)
    voices = read_voices(folder / CASE / VOICES_FILE, read_network_config(folder))
    for name, voice in voices.items():
        latents, speaker = expected[f"{name}|gpt_cond_latent"], expected[f"{name}|speaker_embedding"]
        yield compare(CASE, f"{name} latents", voice.latents[None], latents, 0.0)
        yield compare(CASE, f"{name} speaker", voice.speaker[None, :, None], speaker, 0.0)
    after = {path.name: path.stat().st_mtime_ns for path in (folder / CASE).iterdir()}
    yield compare_rows(CASE, "files left as they are", sorted(after.items()), sorted(before.items()))


def check_manifest(folder: Path) -> Iterator[Comparison]:
    """Compare keys, shapes and types at the released size with the list of the release."""
    stated = read_rows(folder, "manifest_xtts_v2")["keys"]
    ours = {
        key: [list(shape), str(dtype).removeprefix("torch.")]
        for key, (shape, dtype) in model_tensors(XttsConfig()).items()
    }
    yield compare_rows("manifest_xtts_v2", "keys", sorted(ours.items()), sorted(stated.items()))
