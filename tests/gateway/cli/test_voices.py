"""``vivavoce voices``: enrol, list and remove; errors are one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from vivavoce.adapters.audio.pcm import wav_header
from vivavoce.gateway.cli import main
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.voices.store import VoiceStore

pytest.importorskip("torch", reason="enrolling needs torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_xtts import write_tiny_xtts
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.voices.recording import read_recording, read_sound_file


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    for version in (2, 3):
        write_random_bundle(folder / f"v{version}", version, "tiny", 1)
    return folder


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    return recording(tmp_path / "anna.wav", 4.0)


def recording(path: Path, seconds: float, level: float = 0.3) -> Path:
    time_s = np.arange(round(24_000 * seconds)) / 24_000
    tones = sum(np.sin(2 * np.pi * 130 * n * time_s) / n for n in range(1, 12))
    pcm = (tones * (1 + np.sin(2 * np.pi * 3 * time_s)) * 16_000 * level).astype("<i2").tobytes()
    path.write_bytes(wav_header(24_000, len(pcm)) + pcm)
    return path


def voices(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(["voices", *map(str, arguments)])
    return int(end.value.code or 0)


def test_a_voice_is_enrolled_listed_and_removed(
    bundles: Path, speech: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "voices"
    about = ("--transcript", "Some words.", "--language", "en-GB", "--consent", "I agree.")
    assert voices("add", "anna", speech, "--bundle", bundles / "v2", "--store", store, *about) == 0
    assert "anna: 4.0 s, CosyVoice 2" in capsys.readouterr().out
    assert voices("add", "bo", speech, "--bundle", bundles / "v3", "--store", store) == 0
    capsys.readouterr()

    assert voices("list", "--store", store) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:4] == ["anna", "anna", "cosyvoice-2", "en-GB"]
    assert second.split()[:4] == ["bo", "bo", "cosyvoice-3", "-"]
    assert first.endswith("command line, anna.wav")

    assert voices("list", "--store", store, "--json") == 0
    anna = json.loads(capsys.readouterr().out)[0]
    assert (anna["transcript"], anna["about"]["consent"]) == ("Some words.", "I agree.")
    with VoiceStore(store, 2, read_prompt=VoicePrompt.load) as opened:
        assert opened.get("anna").duration_s == pytest.approx(4, abs=0.1)

    assert voices("remove", "anna", "--store", store) == 0
    assert voices("remove", "anna", "--store", store) == 1
    with VoiceStore(store, None) as opened:
        assert [voice.id for voice in opened.list()] == ["bo"]


@pytest.mark.slow
def test_the_command_enrols_like_the_server(bundles: Path, speech: Path, tmp_path: Path) -> None:
    store, words = tmp_path / "voices", "Some words."
    assert (
        voices("add", "anna", speech, "--bundle", bundles / "v3", "--store", store, "--transcript", words)
        == 0
    )
    backend = CosyVoiceBackend.load(bundles / "v3", voices=store)
    recording = read_recording(read_sound_file(speech))
    prompt = backend.voices.encode_prompt(recording.samples, recording.sample_rate, words)
    speaker = backend.voices.speaker_profile("anna")
    assert speaker.prompt is not None
    assert speaker.prompt.id == prompt.id
    assert backend.voices.get("anna").id == "anna"
    backend.close()


@pytest.mark.parametrize(
    ("name", "seconds", "level", "sentence"),
    [
        ("../anna", 4.0, 0.3, "letters, digits"),
        ("taken", 4.0, 0.3, "'taken' already"),
        ("short", 1.0, 0.3, "1.0 s long; at least 3 s"),
        ("silent", 4.0, 0.0, "silent: its loudest 20 ms"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    name: str,
    seconds: float,
    level: float,
    sentence: str,
    bundles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = tmp_path / "voices"
    good = recording(tmp_path / "good.wav", 3.0)
    assert voices("add", "taken", good, "--bundle", bundles / "v2", "--store", store) == 0
    capsys.readouterr()
    file = recording(tmp_path / "file.wav", seconds, level)
    assert voices("add", name, file, "--bundle", bundles / "v2", "--store", store) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line
    with VoiceStore(store, None) as opened:
        assert [voice.id for voice in opened.list()] == ["taken"]


def test_several_clips_are_one_voice_of_xtts_only(
    bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, store = write_tiny_xtts(tmp_path / "xtts"), tmp_path / "voices"
    clips = [recording(tmp_path / f"{seconds}.wav", seconds) for seconds in (1.0, 2.5)]
    assert voices("add", "anna", *clips, "--bundle", folder, "--store", store) == 0
    assert "anna: 3.5 s, XTTS " in capsys.readouterr().out
    assert voices("list", "--store", store) == 0
    assert capsys.readouterr().out.split()[2].startswith("xtts-")
    for bundle, files, sentence in (
        (folder, clips[:1], "is 1.0 s long"),
        (folder, [recording(tmp_path / "silent.wav", 4.0, level=0.0)], "silent"),
        (bundles / "v2", clips, "CosyVoice makes a voice of one"),
    ):
        assert voices("add", "bo", *files, "--bundle", bundle, "--store", store) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line


def test_a_folder_that_is_not_a_bundle_is_reported(
    speech: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert voices("add", "anna", speech, "--bundle", tmp_path, "--store", tmp_path / "voices") == 1
    assert "no cosyvoice2.yaml or cosyvoice3.yaml" in capsys.readouterr().err


def test_listing_does_not_create_a_missing_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert voices("list", "--store", tmp_path / "voices") == 1
    assert "no such folder" in capsys.readouterr().err
    assert not (tmp_path / "voices").exists()


@pytest.mark.parametrize("command", ["add", "list", "remove"])
def test_every_command_shows_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert voices(command, "--help") == 0
    assert "--store" in capsys.readouterr().out
