"""A kind of voice that another package adds with an entry point."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.engine.engine_streams import speak
from shared.engine.standin_backend import StandInBackend
from vivavoce.tts_engine.backends.base import ProcessPolicy
from vivavoce.tts_engine.backends.kinds import find_kind
from vivavoce.tts_engine.backends.loading import list_voices, load_backend
from vivavoce.tts_engine.backends.voice_kind import LoadSettings, VoiceKind
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest, BundleError
from vivavoce.tts_engine.packaging import plug_ins


def load_tones(settings: LoadSettings) -> StandInBackend:
    return StandInBackend([int(pitch) for pitch in (settings.folder / "pitches.txt").read_text().split()])


TONES = VoiceKind(
    name="Tones",
    looked_for="pitches.txt",
    matches=lambda bundle: (Path(bundle) / "pitches.txt").is_file(),
    load=load_tones,
    list_voices=lambda folder: tuple(load_tones(LoadSettings(folder)).voices),
)


@pytest.fixture(autouse=True)
def installed_tones(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str, path: tuple[str, ...]) -> list[Any]:
        return [SimpleNamespace(load=lambda: TONES)] if group == "vivavoce.voice_kinds" else []

    monkeypatch.setattr(plug_ins, "installed_entry_points", entry_points)


def test_it_is_found_listed_and_speaks(tmp_path: Path) -> None:
    (tmp_path / "pitches.txt").write_text("330 550")

    async def test() -> None:
        async with await Engine.open(str(tmp_path)) as engine:
            chunks = await speak(engine, "One two three.", voice="tone-550")
        assert [word.text for chunk in chunks for word in chunk.words] == ["One", "two", "three"]

    asyncio.run(test())
    assert find_kind(str(tmp_path)) is TONES
    assert [voice.id for voice in list_voices(str(tmp_path))] == ["tone-330", "tone-550"]


def test_a_folder_of_no_kind_is_told_what_it_looks_for(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"looked for .*pitches\.txt \(Tones\)"):
        find_kind(str(tmp_path))


def test_it_is_never_asked_for_a_child_process(tmp_path: Path) -> None:
    (tmp_path / "pitches.txt").write_text("330")
    with pytest.raises(BadRequest, match="Tones renders in the server's own process only"):
        load_backend(str(tmp_path), process=ProcessPolicy())
