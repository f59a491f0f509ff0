"""Preparation of a data set: what is kept and left out, what a second run does, and what cannot be done."""

import errno
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the [train] extra is not installed")

from shared.audio.harmonic_voice import harmonic_voice
from shared.audio.sound_files import encoded
from shared.training.recorded_voice import TEXT, wav, write_recording, write_recordings
from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from vivavoce.models.cosyvoice.training import dataset as datasets
from vivavoce.models.cosyvoice.training.dataset import (
    DatasetError,
    TrainingDataset,
    UtteranceEntry,
)
from vivavoce.tts_engine.cosyvoice.finetuning.preparation import PreparationReport, prepare
from vivavoce.tts_engine.cosyvoice.finetuning.screening import (
    fault_of_voices,
    find_outliers,
    windows_of_speech,
)

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

VOICE = harmonic_voice(3.0)


def left_out(report: PreparationReport) -> Mapping[str, str]:
    return {name: why.partition(":")[0] for name, why in report.left_out.items()}


def test_ids_mel_and_samples_of_an_utterance_have_one_length(v2_folder: Path, tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings", 3, seconds=3.013)
    report = prepare(tmp_path / "recordings", v2_folder, tmp_path / "data")
    assert (report.kept, report.new, report.left_out) == (3, 3, {})
    assert report.is_short and report.seconds == pytest.approx(9.4, abs=0.2)
    dataset = TrainingDataset(tmp_path / "data")
    for number, entry in enumerate(dataset.entries):
        arrays = dataset.arrays(number)
        ids = len(arrays["speech_ids"])
        assert arrays["mel"].shape == (2 * ids, 80) and len(dataset.samples(number)) == 960 * ids
        assert (entry.speech_ids, entry.text, len(arrays["text_ids"])) == (ids, TEXT, entry.text_ids)
        assert arrays["embedding"].shape == (192,)
    assert np.linalg.norm(dataset.speaker_embedding("speaker")) == pytest.approx(1)
    assert dataset.about.instruct_ids == ()


def test_version_3_has_its_greeting_and_its_own_mel(v2_folder: Path, v3_folder: Path, tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings", 2)
    prepare(tmp_path / "recordings", v2_folder, tmp_path / "two")
    prepare(tmp_path / "recordings", v3_folder, tmp_path / "three")
    two, three = TrainingDataset(tmp_path / "two"), TrainingDataset(tmp_path / "three")
    assert three.about.instruct_ids and not two.about.instruct_ids
    assert not np.allclose(two.arrays(0)["mel"], three.arrays(0)["mel"])


def test_each_recording_that_cannot_be_used_is_left_out_with_its_reason(
    v2_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "recordings"
    write_recordings(folder, 2)
    write_recording(folder, "silent", wav(VOICE * np.float32(1e-4)))
    write_recording(folder, "clipped", wav(VOICE * np.float32(40)))
    write_recording(folder, "long", wav(harmonic_voice(40.0)))
    write_recording(folder, "short", wav(harmonic_voice(0.5)))
    write_recording(folder, "narrow", wav(harmonic_voice(3.0, 8_000), 8_000))
    write_recording(folder, "other", wav(VOICE), text=TEXT * 8)
    write_recording(folder, "broken", b"RIFF\0\0\0\0WAVE")
    write_recording(folder, "stereo", wav(VOICE, channels=2))
    (folder / "alone.wav").write_bytes(wav(VOICE))
    report = prepare(folder, v2_folder, tmp_path / "data")
    assert {entry.name for entry in TrainingDataset(tmp_path / "data").entries} == {
        "r0.wav",
        "r1.wav",
        "stereo.wav",
    }
    reasons = dict(left_out(report))
    assert reasons.pop("narrow.wav").startswith("the recording has 8,000 Hz")
    assert reasons.pop("long.wav").startswith("the recording is longer")
    assert "broken.wav" in reasons and reasons.pop("broken.wav")
    assert reasons == {
        "silent.wav": "silent",
        "clipped.wav": "clipped",
        "short.wav": "too short",
        "other.wav": "does not fit its text",
        "alone.wav": "no transcript",
    }


def test_another_pace_stands_out(v2_folder: Path, tmp_path: Path) -> None:
    write_recordings(tmp_path / "recordings", 5)
    write_recording(tmp_path / "recordings", "slow", wav(harmonic_voice(9.0)))
    report = prepare(tmp_path / "recordings", v2_folder, tmp_path / "data")
    assert left_out(report) == {"slow.wav": "does not fit its text"}
    assert prepare(tmp_path / "recordings", v2_folder, tmp_path / "data").new == 0


def test_another_voice_stands_out() -> None:
    entries = [UtteranceEntry(name, TEXT, "anna", 0, 0, 10, 75) for name in ("a", "b", "c")]
    outliers = find_outliers(entries, {"a": 0.9, "b": 0.29, "c": 0.31})
    assert outliers == {"b": "another speaker: similarity 0.29 to the others"}


@pytest.mark.parametrize(
    ("voices", "fault"),
    [
        ("aabb", "two speakers: similarity 0.04 between its parts"),
        ("abab", "two speakers: similarity 0.04 between its parts"),
        ("aaaa", None),
        ("aaab", None),  # a cough, or a laugh
        ("ab", None),
    ],
)
def test_two_voices_in_one_recording_are_heard_in_its_windows(voices: str, fault: str | None) -> None:
    of_voice = dict(zip("ab", np.eye(4, dtype=np.float32), strict=False))
    shift = np.array([0, 0, 0.2, 0], np.float32)
    assert fault_of_voices([3 * of_voice[voice] + 3 * shift for voice in voices]) == fault


def test_a_faint_window_says_nothing_about_a_speaker() -> None:
    samples = harmonic_voice(4.6, 16_000)
    samples[24_000:48_000] *= np.float32(0.01)
    assert [len(window) for window in windows_of_speech(samples, 16_000)] == [24_000, 24_000]


def test_a_recording_of_two_speakers_is_left_out(
    v2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed_by_brightness(self: VoiceEncoder, samples: np.ndarray, sample_rate: int) -> np.ndarray:
        is_bright = float(np.abs(np.diff(samples)).mean() / np.abs(samples).mean()) > 0.5
        return np.eye(192, dtype=np.float32)[int(is_bright)]

    monkeypatch.setattr(VoiceEncoder, "embed_speaker", embed_by_brightness)
    write_recordings(tmp_path / "recordings", 2)
    first = harmonic_voice(3.0)
    other = first * np.cos(np.pi * np.arange(len(first))).astype(np.float32)  # its spectrum, turned round
    write_recording(tmp_path / "recordings", "both", wav(np.concatenate([first, other])), text=TEXT * 2)
    report = prepare(tmp_path / "recordings", v2_folder, tmp_path / "data")
    assert left_out(report) == {"both.wav": "two speakers"}


def test_two_hours_in_one_file_are_left_out_without_reading_them(v2_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    write_recordings(folder, 2)
    write_recording(folder, "hours", wav(VOICE)[:44])
    with (folder / "hours.wav").open("r+b") as file:
        file.truncate(44 + 2 * 3600 * 16_000 * 2)
    report = prepare(folder, v2_folder, tmp_path / "data")
    assert report.kept == 2
    assert report.left_out == {
        "hours.wav": "too long: the file has 220 MiB; cut it into utterances of up to 30 s"
    }


def test_the_sound_of_a_video_is_taken(v2_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    write_recordings(folder, 1)
    video = encoded(harmonic_voice(3.0, 48_000)[None], 48_000, "mp4", "aac", "libx264")
    (folder / "film.mp4").write_bytes(video)
    (folder / "film.txt").write_text(TEXT, "utf-8")
    silent = encoded(np.zeros((1, 96_000), np.float32), 48_000, "mp4", "aac", "libx264")
    (folder / "silent.mp4").write_bytes(silent)
    (folder / "silent.txt").write_text(TEXT, "utf-8")
    report = prepare(folder, v2_folder, tmp_path / "data")
    assert report.kept == 2 and left_out(report) == {"silent.mp4": "silent"}


def test_a_second_run_does_only_what_is_new_or_changed(v2_folder: Path, tmp_path: Path) -> None:
    folder, data = tmp_path / "recordings", tmp_path / "data"
    write_recordings(folder, 3)
    write_recording(folder, "silent", wav(VOICE * np.float32(1e-4)))
    prepare(folder, v2_folder, data)
    assert prepare(folder, v2_folder, data).new == 0
    write_recording(folder, "more", wav(VOICE))
    write_recording(folder, "r1", wav(harmonic_voice(3.1)), text=f"{TEXT} Again.")
    (folder / "r0.wav").unlink()
    (folder / "r0.txt").unlink()
    report = prepare(folder, v2_folder, data)
    assert (report.new, report.kept, left_out(report)) == (2, 3, {"silent.wav": "silent"})
    assert {entry.name for entry in TrainingDataset(data).entries} == {"r1.wav", "r2.wav", "more.wav"}


def test_an_interrupted_preparation_goes_on(v2_folder: Path, tmp_path: Path) -> None:
    folder, data, done = tmp_path / "recordings", tmp_path / "data", list[int]()
    write_recordings(folder, 4)
    report = prepare(
        folder,
        v2_folder,
        data,
        on_progress=lambda count, total: done.append(count),
        should_stop=lambda: len(done) == 2,
    )
    assert report.kept == 2
    assert prepare(folder, v2_folder, data).new == 2


def test_a_disk_that_fills_in_a_shard_loses_no_shard_before(
    v2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = tmp_path / "recordings", tmp_path / "data"
    write_recordings(folder, 4)
    write, written = datasets.save_file, list[Path]()

    def fill(arrays: dict[str, np.ndarray], path: Path) -> None:
        if written:
            path.write_bytes(b"half a shard")
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write(arrays, path)

    monkeypatch.setattr(datasets, "_SHARD_BYTES", 1)
    monkeypatch.setattr(datasets, "save_file", fill)
    with pytest.raises(OSError, match="No space"):
        prepare(folder, v2_folder, data)
    monkeypatch.setattr(datasets, "save_file", write)
    kept = TrainingDataset(data)
    assert len(kept.entries) == 1 and kept.arrays(0)["mel"].any()
    assert not list(data.glob("*.partial"))
    assert prepare(folder, v2_folder, data).new == 3


def test_a_data_set_of_another_bundle_is_not_continued(v2_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    write_recordings(folder, 1)
    prepare(folder, v2_folder, tmp_path / "data")
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=2)
    with pytest.raises(DatasetError, match="another bundle"):
        prepare(folder, tmp_path / "other", tmp_path / "data")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": 9}'])
def test_a_damaged_index_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(DatasetError):
        TrainingDataset(tmp_path)
