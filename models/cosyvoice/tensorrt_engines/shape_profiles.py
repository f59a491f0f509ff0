"""Sizes for which an engine is built: of chunks of the schedule, of a voice's prompt, at any speed.

Keys are the names of a graph's dynamic axes and of its inputs without axes. An engine is tuned for the middle
one of three sizes, and takes no size outside the first and the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..config import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_S,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    V2_WITHHELD_FRAMES,
)

_MAX_ROWS = 4  # sessions that share a step
_MAX_FRAMES = 80 * FRAMES_PER_S  # of a voice's recording and a sentence
_CHUNK_IDS, _PROMPT_IDS = 75, 250  # at most: two blocks and the rest of a sentence; of a voice's recording
_MAX_VOCODER_FRAMES = 400  # of the longest chunk at half the speed
_SAMPLES_PER_FRAME = 480


@dataclass(frozen=True, slots=True)
class SizeRange:
    """A size: the smallest, the one to tune for, the largest."""

    min: int
    usual: int
    max: int

    def __contains__(self, size: int) -> bool:
        return self.min <= size <= self.max


ShapeProfile = Mapping[str, SizeRange]


def shape_profiles(graph: str) -> Sequence[ShapeProfile]:
    """The profiles of a graph, the most usual first."""
    if graph == "flow_speaker":
        return ({"batch": _ROWS},)
    if graph == "vocoder":
        return (_VOCODER,)
    return (_flow_profile(1, BLOCK_IDS, _CHUNK_IDS), _flow_profile(BLOCK_IDS, 3 * BLOCK_IDS, _PROMPT_IDS))


_ROWS = SizeRange(1, 1, _MAX_ROWS)
_VOCODER: ShapeProfile = {
    "batch": _ROWS,
    "frames": SizeRange(1, BLOCK_FRAMES, _MAX_VOCODER_FRAMES),
    "noise_samples": SizeRange(
        0, BLOCK_FRAMES * _SAMPLES_PER_FRAME, (_MAX_VOCODER_FRAMES + 3) * _SAMPLES_PER_FRAME
    ),
    "past_frames": SizeRange(0, 36, 36),
    "past_source_samples": SizeRange(0, 16 * _SAMPLES_PER_FRAME, 16 * _SAMPLES_PER_FRAME),
    "past_noise_samples": SizeRange(0, 20 * _SAMPLES_PER_FRAME, 20 * _SAMPLES_PER_FRAME),
    "past_tail_samples": SizeRange(0, 4 * _SAMPLES_PER_FRAME, 4 * _SAMPLES_PER_FRAME),
    "past_spectra": SizeRange(0, 15, 15),
    "withheld": SizeRange(0, V2_WITHHELD_FRAMES, V2_WITHHELD_FRAMES),
    "last": SizeRange(0, 0, 1),
}


def _flow_profile(min_ids: int, usual_ids: int, max_ids: int) -> ShapeProfile:
    usual_memory, max_memory = _MAX_FRAMES // 2, 2 * _MAX_FRAMES
    return {
        "batch": _ROWS,
        "ids": SizeRange(min_ids, usual_ids, max_ids),
        "future": SizeRange(0, LOOKAHEAD_IDS, LOOKAHEAD_IDS),
        "frames": SizeRange(*(FRAMES_PER_SPEECH_ID * count for count in (min_ids, usual_ids, max_ids))),
        "id_capacity": SizeRange(1, usual_memory // FRAMES_PER_SPEECH_ID, max_memory // FRAMES_PER_SPEECH_ID),
        "frame_capacity": SizeRange(2, usual_memory, max_memory),
        "capacity": SizeRange(2, usual_memory, max_memory),
        "length": SizeRange(0, 4 * BLOCK_FRAMES, _MAX_FRAMES),
        "block": SizeRange(BLOCK_FRAMES, BLOCK_FRAMES, BLOCK_FRAMES),
        "solver_step": SizeRange(0, 0, 9),
    }
