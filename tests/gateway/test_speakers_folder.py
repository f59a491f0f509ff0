"""The voice registry: a folder of recordings whose speakers become voices of the operator."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.audio.recordings import recording
from shared.engine.standin_backend import StandInBackend
from shared.voices.voice_registry_setup import (
    ANNA,
    BO,
    RegistrySetup,
    usable_ids,
)
from vivavoce.gateway.voice_registry import NewVoice, VoicePolicy, VoiceRegistry
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.tts_engine.errors import BadRequest

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[RegistrySetup]:
    opened = RegistrySetup(tmp_path / "voices")
    yield opened
    opened.close()


@pytest.fixture
def speakers(tmp_path: Path) -> Path:
    folder = tmp_path / "speakers"
    folder.mkdir()
    (folder / "anna.wav").write_bytes(recording(3.5))
    (folder / "anna.txt").write_text("What Anna says.\n", "utf-8")
    (folder / "bo.WAV").write_bytes(recording(4.0))
    (folder / "README.md").write_text("no speaker")
    return folder


def enrolled(setup: RegistrySetup, folder: Path) -> int:
    return asyncio.run(setup.registry.enroll_folder(folder))


def test_speakers_of_a_folder_are_voices_of_the_operator(setup: RegistrySetup, speakers: Path) -> None:
    assert enrolled(setup, speakers) == 2
    assert usable_ids(setup, BO) == ["first", "second", "anna", "bo"]
    anna = setup.registry.find("anna", BO)
    assert (anna.transcript, anna.about.owner, anna.about.provenance) == (
        "What Anna says.",
        "",
        "speakers folder, anna.wav",
    )


def test_unchanged_speakers_are_not_encoded_again(
    setup: RegistrySetup, speakers: Path, tmp_path: Path
) -> None:
    assert enrolled(setup, speakers) == 2
    assert enrolled(setup, speakers) == 0
    again = RegistrySetup(tmp_path / "voices")
    assert enrolled(again, speakers) == 0
    assert again.encoder.encoded_s == []
    (speakers / "anna.txt").write_text("What Anna really says.", "utf-8")
    assert enrolled(again, speakers) == 1
    assert again.registry.find("anna", BO).transcript == "What Anna really says."
    (speakers / "bo.WAV").write_bytes(recording(5.0))
    assert enrolled(again, speakers) == 1
    assert again.encoder.encoded_s == [3.5, 5.0]
    again.close()


def test_another_version_encodes_the_folder_again(
    setup: RegistrySetup, speakers: Path, tmp_path: Path
) -> None:
    enrolled(setup, speakers)
    later = RegistrySetup(tmp_path / "voices", CosyVoiceVersion.V3)
    assert enrolled(later, speakers) == 2
    assert later.registry.resolve("anna", BO) == "anna"
    later.close()


def test_a_bad_file_is_a_warning_and_does_not_prevent_the_start(
    setup: RegistrySetup, speakers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (speakers / "broken.mp3").write_bytes(b"not sound")
    (speakers / "an id with spaces.wav").write_bytes(recording())
    (speakers / "first.wav").write_bytes(recording())
    (speakers / "latin.wav").write_bytes(recording())
    (speakers / "latin.txt").write_bytes(b"\xe9t\xe9")
    (speakers / "folder.wav").mkdir()
    asyncio.run(setup.registry.create(recording(), NewVoice("Mine", voice_id="mine"), ANNA))
    (speakers / "mine.wav").write_bytes(recording())
    with caplog.at_level(logging.WARNING):
        assert enrolled(setup, speakers) == 2
    assert len(caplog.records) == 6
    assert setup.registry.find("mine", ANNA).about.owner == "anna-key"


def test_a_missing_folder_or_model_without_cloning_prevents_the_start(
    setup: RegistrySetup, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match="no such folder of speakers"):
        asyncio.run(VoiceRegistry.open(setup.voices, speakers=tmp_path / "nowhere"))
    with pytest.raises(BadRequest, match="cannot clone voices"):
        asyncio.run(VoiceRegistry.open(StandInBackend().voices, speakers=tmp_path))


def test_an_alias_may_be_a_speaker_of_the_folder(setup: RegistrySetup, speakers: Path) -> None:
    policy = VoicePolicy(default="bo", aliases={"alloy": "anna"})
    registry = asyncio.run(VoiceRegistry.open(setup.voices, policy, speakers))
    assert registry.resolve(None, BO) == "bo"
    assert registry.resolve("alloy", BO) == "anna"
    registry.close()


def test_two_servers_that_start_together_enrol_a_folder_once(tmp_path: Path, speakers: Path) -> None:
    setups = [RegistrySetup(tmp_path / "voices") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda each: enrolled(each, speakers), setups))
    assert [voice.id for voice in setups[0].store.list()] == ["anna", "bo"]
    for setup in setups:
        setup.close()
