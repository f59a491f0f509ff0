"""Recordings and transcripts are found in each of the layouts."""

import json
from pathlib import Path

import pytest

pytest.importorskip("safetensors", reason="the [train] extra is not installed")

from vivavoce.tts_engine.cosyvoice.finetuning.recordings import find_recordings
from vivavoce.tts_engine.errors import BadRequest


def put(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8", newline="")


def found(folder: Path) -> dict[str, tuple[str, str]]:
    return {one.name: (one.text, one.speaker) for one in find_recordings(folder).recordings}


def test_a_transcript_beside_a_recording_and_speakers_by_folder(tmp_path: Path) -> None:
    put(tmp_path, a_dot_wav="", a_dot_txt="One \n two", bob__b_dot_flac="", bob__b_dot_txt="Three")
    assert found(tmp_path) == {"a.wav": ("One two", "speaker"), "bob/b.flac": ("Three", "bob")}


def test_ljspeech(tmp_path: Path) -> None:
    put(tmp_path, wavs__LJ1_dot_wav="", wavs__LJ2_dot_wav="")
    put(tmp_path, metadata_dot_csv="LJ1|In 1455, |In fourteen\nLJ2|only, one\nLJ3|gone|gone\n")
    texts = {"wavs/LJ1.wav": ("In fourteen", "speaker"), "wavs/LJ2.wav": ("only, one", "speaker")}
    assert found(tmp_path) == texts
    assert find_recordings(tmp_path).unusable == {"LJ3": "no audio: the file is missing"}


def test_an_audiofolder_of_hugging_face(tmp_path: Path) -> None:
    put(tmp_path, data__x_dot_mp3="", metadata_dot_csv='file_name,transcription\ndata/x.mp3,"Yes, it is"\n')
    assert found(tmp_path) == {"data/x.mp3": ("Yes, it is", "speaker")}


def test_an_audiofolder_of_hugging_face_with_its_splits(tmp_path: Path) -> None:
    header = "file_name,text\r\n"
    put(tmp_path, train__a_dot_wav="", train__sub__b_dot_wav="", test__a_dot_wav="")
    put(tmp_path, train__metadata_dot_csv=f'{header}a.wav,"One\r\n""two""\nthree"\r\nsub/b.wav,Four\r\n')
    put(tmp_path, test__metadata_dot_csv=f"{header}a.wav,Five\r\n")
    assert found(tmp_path) == {
        "train/a.wav": ('One "two" three', "speaker"),
        "train/sub/b.wav": ("Four", "speaker"),
        "test/a.wav": ("Five", "speaker"),
    }
    assert find_recordings(tmp_path).unusable == {}


def test_json_lines(tmp_path: Path) -> None:
    lines = [{"audio": "a.wav", "text": "One", "speaker": "anna"}, {"audio_filepath": "b.wav", "text": ""}]
    put(tmp_path, a_dot_wav="", b_dot_wav="", list_dot_jsonl="\n".join(map(json.dumps, lines)))
    assert found(tmp_path) == {"a.wav": ("One", "anna")}
    assert find_recordings(tmp_path).unusable == {"b.wav": "no transcript"}


def test_recordings_without_transcripts_and_the_reverse_are_named(tmp_path: Path) -> None:
    put(tmp_path, a_dot_wav="", a_dot_txt="One", b_dot_wav="", c_dot_txt="Three")
    unusable = find_recordings(tmp_path).unusable
    assert unusable == {"b.wav": "no transcript", "c.txt": "no audio: the file is missing"}


@pytest.mark.parametrize("line", ["{", "[]", '{"text": "x"}'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, line: str) -> None:
    put(tmp_path, list_dot_jsonl=line)
    with pytest.raises(BadRequest):
        find_recordings(tmp_path)


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no recording with a transcript"):
        find_recordings(tmp_path)
    with pytest.raises(BadRequest, match="no such folder"):
        find_recordings(tmp_path / "absent")
