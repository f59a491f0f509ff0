"""Settings of the XTTS backend, each with its unit and reason, and the bound on the length of speech."""

import math
from dataclasses import dataclass, replace

from ...models.devices.execution import Precision
from ...models.xtts.config import XTTS_IDS_PER_S
from ..backends.voice_kind import AUTO_PRECISION
from ..errors import BadRequest
from ..segmenter import SegmentPolicy
from ..voice_kit.policy import DecodingPolicy, require_device

# The model speaks very short texts badly, so clauses are collected into longer segments than usual.
_SEGMENTS = SegmentPolicy(first_min_words=4, min_words=8)


@dataclass(frozen=True, slots=True)
class SpeechLengthBound:
    """Most speech ids of a sentence: ``min_s`` and ``ratio`` times the usual speaking time of its words.

    The model often misses the natural end of a short text and goes on with breath, noise or words. The bound
    ends "Yes." after 1.5 s; a voice may take 1.8 times the usual time before it is cut. A cut fades out.
    """

    min_s: float = 0.5
    ratio: float = 1.8

    def max_ids(self, usual_s: float, model_max_ids: int) -> int:
        """Speech ids for words with that usual speaking time, at least 1."""
        ids = math.ceil(XTTS_IDS_PER_S * (self.min_s + self.ratio * usual_s))
        return max(1, min(ids, model_max_ids))


@dataclass(frozen=True, slots=True)
class XttsPolicy(DecodingPolicy):
    """Settings of one XTTS backend. ``Delivery`` holds what a session chooses.

    A speech id is 46.4 ms of speech.
    """

    length: SpeechLengthBound = SpeechLengthBound()
    segments: SegmentPolicy = _SEGMENTS
    # Speech ids of the first chunk of audio, and of the others. The first 3 give no sound: they are the
    # lookahead of the vocoder.
    first_hop: int = 10
    max_hop: int = 24
    # Voices whose columns are kept computed, 8 MB each.
    max_prepared_voices: int = 16
    # Share of the pause that the text asks for after a sentence; the model adds a pause of its own.
    pause_share: float = 0.5


_PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16, Precision.INT8)


def xtts_policy_for(device: str, precision: str = "fp32") -> XttsPolicy:
    """The default policy for a device.

    Raises BadRequest for a precision that XTTS or the device lacks, BundleError without the device.
    """
    precision = Precision.FP32 if precision == AUTO_PRECISION else precision
    if precision not in _PRECISIONS:
        raise BadRequest(f"precision is {precision!r}; a bundle of XTTS has {', '.join(_PRECISIONS)}")
    policy = XttsPolicy(precision=Precision(precision), device=device)
    found = require_device(device)
    if found == "cpu":
        return policy
    if policy.precision is Precision.INT8:
        raise BadRequest(f"int8 is for a CPU, and the device is {found}; take bf16 or fp16")
    return replace(policy, slots=32, max_render_rows=8, overlap=True)
