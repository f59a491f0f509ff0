"""Checkpoint folders of CosyVoice: checks, exports and random weights, as on the command line."""

from collections.abc import Iterator
from pathlib import Path

from vivavoce.tts_engine.backends.voice_kind import CheckedFile
from vivavoce.tts_engine.cosyvoice.checkpoints import CosyVoiceCheckpoints

_CHECKPOINTS = CosyVoiceCheckpoints()
check_bundle = _CHECKPOINTS.check
write_random_bundle = _CHECKPOINTS.write_random


def export_bundle(folder: Path, precision: str) -> Iterator[CheckedFile]:
    """Write the graphs of a bundle to its folder ``onnx``; yields each."""
    return _CHECKPOINTS.export(folder, "onnx", precision, "cpu")
