"""Finds recordings and their transcripts in a folder, in four layouts.

    a.wav, a.txt              a transcript beside each recording; a sub-folder may be named by its speaker
    metadata.csv              LJSpeech: name|text or name|text|normalised text, recordings in the folder wavs
    metadata.csv              Hugging Face audiofolder: a header with file_name and text or transcription;
                              also one in each sub-folder, such as train
    *.jsonl                   a line each: {"audio": "a.wav", "text": "...", "speaker": "anna"}

Source: https://keithito.com/LJ-Speech-Dataset, the audiofolder of Hugging Face's datasets.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BadRequest

SOUND_SUFFIXES = frozenset(
    ".wav .flac .mp3 .ogg .opus .oga .m4a .aac .aiff .webm .mp4 .mkv .mov .w64".split()
)
DEFAULT_SPEAKER = "speaker"
_AUDIO_KEYS = ("audio", "audio_filepath", "file_name", "path", "wav")
_TEXT_KEYS = ("text", "transcription", "transcript", "sentence")
_NAME_KEYS = {"id", "name", "utt"}


@dataclass(frozen=True, slots=True)
class TranscribedRecording:
    """A sound file and what is said in it. name: its path below the folder; unique."""

    name: str
    path: Path
    text: str
    speaker: str = DEFAULT_SPEAKER

    @property
    def stamp(self) -> str:
        """Changes with the file, its transcript or its speaker. Raises OSError without the file."""
        about = self.path.stat()
        content = f"{about.st_size} {about.st_mtime_ns} {self.speaker} {self.text}"
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FoundRecordings:
    """The recordings of a folder. unusable: names of files without their other half, and why."""

    recordings: tuple[TranscribedRecording, ...]
    unusable: Mapping[str, str]


def find_recordings(folder: Path) -> FoundRecordings:
    """All recordings of a folder with their transcripts. Raises BadRequest if there is none, or no folder."""
    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder; give the folder of the recordings")
    listed = list(_listed(folder)) or list(_beside(folder))
    found: dict[str, TranscribedRecording] = {}
    unusable: dict[str, str] = {}
    for one in listed:
        if not one.path.is_file():
            unusable[one.name] = "no audio: the file is missing"
        elif not one.text:
            unusable[one.name] = "no transcript"
        else:
            found[one.name] = one
    listed_paths = {one.path for one in listed}
    for path in _sounds(folder):
        if path not in listed_paths:
            unusable[_name(folder, path)] = "no transcript"
    if not found:
        raise BadRequest(
            f"{folder}: no recording with a transcript; put a .txt beside each sound file, or give a "
            "metadata.csv or a .jsonl"
        )
    return FoundRecordings(tuple(found[name] for name in sorted(found)), unusable)


def _listed(folder: Path) -> Iterator[TranscribedRecording]:
    for table in sorted(folder.glob("*.jsonl")):
        yield from _from_json_lines(folder, table)
    for metadata in sorted(folder.rglob("metadata.csv")):
        yield from _from_metadata(folder, metadata.parent, _read_text(metadata))


def _from_json_lines(folder: Path, table: Path) -> Iterator[TranscribedRecording]:
    for number, line in enumerate(_read_text(table).splitlines(), 1):
        if line.strip():
            yield _from_row(folder, folder, _parse_line(line, f"{table.name}, line {number}"))


def _parse_line(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"{place}: {error}") from error
    if not isinstance(row, dict):
        raise BadRequest(f"{place}: expected an object with audio and text")
    return row


def _from_metadata(folder: Path, place: Path, text: str) -> Iterator[TranscribedRecording]:
    """place: the folder of the table, from which its paths begin."""
    header = text.partition("\n")[0].strip().split(",")
    if any(key in header for key in _AUDIO_KEYS):
        for row in csv.DictReader(io.StringIO(text, newline="")):
            yield _from_row(folder, place, row)
        return
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) >= 2:
            path = _find_sound(place, fields[0].strip())
            yield TranscribedRecording(_name(folder, path), path, fields[-1].strip() or fields[1].strip())


def _from_row(folder: Path, place: Path, row: Mapping[str, Any]) -> TranscribedRecording:
    named = next((str(row[key]) for key in _AUDIO_KEYS if row.get(key)), "")
    if not named:
        raise BadRequest(f"{folder}: a row names no recording; it needs one of {', '.join(_AUDIO_KEYS)}")
    text = next((str(row[key]) for key in _TEXT_KEYS if row.get(key)), "")
    path = _find_sound(place, named)
    speaker = str(row.get("speaker") or row.get("speaker_id") or DEFAULT_SPEAKER)
    return TranscribedRecording(_name(folder, path), path, " ".join(text.split()), speaker)


def _find_sound(folder: Path, named: str) -> Path:
    """The file that a table means: with or without a suffix, in the folder or in its folder wavs."""
    for place in (folder / named, folder / "wavs" / named):
        if place.is_file():
            return place
        for suffix in sorted(SOUND_SUFFIXES):
            if (found := place.with_name(place.name + suffix)).is_file():
                return found
    return folder / named


def _beside(folder: Path) -> Iterator[TranscribedRecording]:
    for path in _sounds(folder):
        transcript = path.with_suffix(".txt")
        if transcript.is_file():
            parts = path.relative_to(folder).parts
            speaker = parts[0] if len(parts) > 1 else DEFAULT_SPEAKER
            text = " ".join(_read_text(transcript).split())
            yield TranscribedRecording(_name(folder, path), path, text, speaker)
    for transcript in sorted(folder.rglob("*.txt")):
        if not any(transcript.with_suffix(suffix).exists() for suffix in SOUND_SUFFIXES):
            yield TranscribedRecording(_name(folder, transcript), transcript.with_suffix(".wav"), "-")


def _sounds(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SOUND_SUFFIXES)


def _name(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: cannot be read as UTF-8 text ({error})") from error
