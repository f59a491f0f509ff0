"""Reads recordings of voices from sound files.

    recording = read_recording(uploaded, RecordingLimits(max_duration_s=20))
    prompt = encoder.enroll(recording.samples, recording.sample_rate, transcript)

A client's recording comes as bytes, never as a path or URL. Reading blocks for some tenths of a second, so
call it on a thread. ``recording_decoder`` lists the formats and confines the decoding.
"""

import hashlib
import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import BadRequest
from . import recording_decoder
from .best_excerpt import find_excerpt
from .recording_decoder import Float, RecordingLimits

__all__ = [
    "Recording",
    "RecordingLimits",
    "check_transcript",
    "count_letters",
    "hash_recording",
    "read_recording",
    "read_recordings",
    "read_sound_file",
]

logger = logging.getLogger(__name__)

MIN_CLIP_S = 0.5  # of each of several recordings of a voice
_FULL_SPEECH_HZ = 16_000  # a lower rate lacks sounds, as "s"
MAX_LETTERS_PER_S = 35.0  # fast speech has 25
_LETTERS_OF_AN_IDEOGRAPH = 3  # in the time it takes to say it

_DECODER = Path(recording_decoder.__file__)
_DECODE_TIMEOUT_S = 60.0  # wall clock; the decoder's own limit is in processor time


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A decoded recording. samples: (N,) float32 mono in [-1, 1]. sample_rate: Hz.

    remarks: what its owner should know, as sentences without an end.
    """

    samples: Float
    sample_rate: int
    remarks: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.sample_rate

    def truncated(self, seconds: float | None) -> "Recording":
        """The first ``seconds`` of it; all of it for None."""
        if seconds is None:
            return self
        return replace(self, samples=self.samples[: round(seconds * self.sample_rate)])


def read_recording(data: bytes, limits: RecordingLimits | None = None) -> Recording:
    """Decode a sound file. Raises BadRequest with the limit that is broken.

    Channels are averaged, as ``recording_decoder.decode`` says. Of a video file, the sound is read. Of a
    recording that is longer than ``max_duration_s``, an excerpt is used, as ``best_excerpt`` says.
    """
    limits = limits or RecordingLimits()
    if not data:
        raise BadRequest("the recording is empty")
    if len(data) > limits.max_bytes:
        raise BadRequest(f"the recording has {len(data):,} bytes; at most {limits.max_bytes:,} are allowed")
    answer, _, samples = _decode_in_subprocess(data, limits).partition(b"\n")
    header = json.loads(answer)
    if "refused" in header:
        raise BadRequest(header["refused"])
    recording = Recording(np.frombuffer(samples, np.float32), header["sample_rate"])
    if recording.sample_rate < _FULL_SPEECH_HZ:
        recording = replace(
            recording, remarks=(f"{recording.sample_rate:,} Hz: it sounds as on a telephone",)
        )
    if recording.duration_s > limits.max_duration_s:
        recording = _excerpt_of(recording, limits.max_duration_s)
    return recording


def count_letters(text: str) -> int:
    """Letters and digits of a text; an ideograph counts as several."""
    return sum(
        _LETTERS_OF_AN_IDEOGRAPH if "CJK" in unicodedata.name(character, "") else 1
        for character in text
        if character.isalnum()
    )


def check_transcript(recordings: Sequence[Recording], transcript: str) -> None:
    """Raise BadRequest if a transcript has more letters than can be spoken in recordings."""
    seconds = sum(recording.duration_s for recording in recordings)
    letters = count_letters(transcript)
    if letters > MAX_LETTERS_PER_S * seconds:
        raise BadRequest(
            f"the transcript has {letters} letters, too many for the {seconds:.1f} s of speech that are "
            "used; send the words of these, or none"
        )


def _excerpt_of(recording: Recording, longest_s: float) -> Recording:
    part = find_excerpt(recording.samples, recording.sample_rate, longest_s)
    span = slice(*(round(at * recording.sample_rate) for at in (part.start_s, part.stop_s)))
    remark = f"seconds {part.start_s:.1f} to {part.stop_s:.1f} of {recording.duration_s:.1f} are used"
    logger.info("of a recording, %s", remark)
    return replace(recording, samples=recording.samples[span], remarks=(*recording.remarks, remark))


def read_recordings(files: Sequence[bytes], limits: RecordingLimits | None = None) -> list[Recording]:
    """Decode the sound files of one voice. Raises BadRequest as ``read_recording``.

    Each of several may be as short as 0.5 s; their sum is checked where they are encoded.
    """
    limits = limits or RecordingLimits()
    if len(files) > 1:
        limits = replace(limits, min_duration_s=MIN_CLIP_S)
    return [read_recording(data, limits) for data in files]


def read_sound_file(path: Path) -> bytes:
    """A sound file of the operator, up to the size that is refused. Raises BadRequest without the file."""
    try:
        with path.open("rb") as file:
            return file.read(RecordingLimits().max_bytes + 1)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error


def hash_recording(data: bytes, transcript: str = "") -> str:
    """SHA-256 of a sound file and its transcript, in hexadecimal, as ``VoiceMetadata.source``."""
    digest = hashlib.sha256(data)
    if transcript:
        digest.update(b"\0" + transcript.encode())
    return digest.hexdigest()


def _decode_in_subprocess(data: bytes, limits: RecordingLimits) -> bytes:
    command = [sys.executable, "-P", str(_DECODER), limits.as_json()]
    try:
        decoder = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=_DECODE_TIMEOUT_S,
            process_group=0,  # Control-C in a terminal must not look like a file that crashes the decoder
        )
    except subprocess.TimeoutExpired as error:
        raise BadRequest("the recording takes too long to decode") from error
    if decoder.returncode < 0:  # killed by a signal: the CPU time limit, or a crash in a parser
        raise BadRequest("the recording takes too long to decode, or crashes the decoder")
    decoder.check_returncode()
    return decoder.stdout
