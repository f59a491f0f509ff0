"""Opening CosyVoice bundles by the engine: missing speakers, damage, and a missing torch."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.tiny_cosyvoice import (  # noqa: E402
    BRIEF,
    recording,
    run,
    speak,
)
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402
from vivavoce.tts_engine.errors import (  # noqa: E402
    BundleError,
    MissingExtra,
    UnknownVoice,
)

SHORT = "Well, it is me."

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_bundle_is_opened_by_its_folder(folder: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            assert engine.voices.default.id == "nobody"
            assert engine.active_streams == 0

    run(test())


def test_a_bundle_without_speakers_renders_after_enrolment(v2_folder: Path, tmp_path: Path) -> None:
    for path in v2_folder.iterdir():
        if path.name != "spk2info.pt":
            (tmp_path / path.name).symlink_to(path)

    async def test() -> None:
        async with await Engine.open(backend=CosyVoiceBackend.load(tmp_path, BRIEF)) as engine:
            with pytest.raises(UnknownVoice, match="no voice is loaded; enrol one"):
                engine.stream()
            voice = engine.voices.enroll(recording(), 16_000)
            assert engine.voices.default == voice
            assert (await speak(engine, [SHORT]))[-1].final

    run(test())


def test_the_error_for_a_damaged_bundle_lists_its_faults(v2_folder: Path, tmp_path: Path) -> None:
    for path in v2_folder.iterdir():
        if path.name != "hift.pt":
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(BundleError, match=r"hift\.pt"):
        run(open_engine(tmp_path))


async def open_engine(folder: Path) -> None:
    await Engine.open(str(folder))


def test_without_torch_the_error_has_the_pip_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[cosyvoice\]"):
        run(open_engine(folder))
