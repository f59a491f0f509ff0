"""A recording from outside: the bytes of a file, whatever kind it is, as samples that a voice is made of.

    recording = read_recording(uploaded, RecordingLimits(max_duration_s=20))
    prompt = encoder.enroll(recording.samples, recording.sample_rate, transcript)

Takes bytes and never a path or a URL of a client's; blocks for some tenths of a second, so an event loop
calls it on a thread. What is decoded, and how it is confined, stands in ``recording_decoder``.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import BadRequest
from . import recording_decoder
from .recording_decoder import Float, RecordingLimits

__all__ = ["Recording", "RecordingLimits", "read_recording", "read_recording_file"]

_DECODER = Path(recording_decoder.__file__)
_DECODE_TIMEOUT_S = 60.0  # wall clock; the decoder's own limit is in processor time


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Speech. samples: (N,) float32 mono in [-1, 1]; sample_rate: Hz."""

    samples: Float
    sample_rate: int

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return len(self.samples) / self.sample_rate

    def truncated(self, seconds: float | None) -> "Recording":
        """So many seconds from its beginning at most; all of it for None."""
        if seconds is None:
            return self
        return Recording(self.samples[: round(seconds * self.sample_rate)], self.sample_rate)


def read_recording(data: bytes, limits: RecordingLimits | None = None) -> Recording:
    """Decode the bytes of a sound file; raises BadRequest with the limit that they break.

    Two channels are averaged. The sound track of a video file is taken, its pictures are not looked at.
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
    return Recording(np.frombuffer(samples, np.float32), header["sample_rate"])


def read_recording_file(path: Path) -> Recording:
    """The same for a file of the operator's; raises BadRequest also where it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(RecordingLimits().max_bytes + 1)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}") from error
    return read_recording(data)


def _decode_in_subprocess(data: bytes, limits: RecordingLimits) -> bytes:
    command = [sys.executable, "-P", str(_DECODER), limits.as_json()]
    try:
        decoder = subprocess.run(command, input=data, capture_output=True, timeout=_DECODE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BadRequest("the recording takes too long to decode") from error
    if decoder.returncode < 0:  # ended by a signal: the limit of processor time, or a fault of a parser
        raise BadRequest("the recording takes too long to decode, or breaks its decoder")
    decoder.check_returncode()
    return decoder.stdout
