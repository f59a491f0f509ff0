"""Audio received by a simulated phone: packets with arrival times.

Times are ``time.monotonic()`` seconds; audio is s16le mono.
"""

from dataclasses import dataclass
from uuid import UUID

import numpy as np

AUDIBLE_DBFS = -50.0  # quieter audio counts as silence
_FULL_SCALE = 32_768
AUDIBLE_LEVEL = round(_FULL_SCALE * 10 ** (AUDIBLE_DBFS / 20))


@dataclass(frozen=True, slots=True)
class ReceivedPacket:
    """One audio message as it arrived."""

    arrived_at: float  # monotonic seconds
    sample_rate: int  # Hz
    pcm: bytes  # s16le mono

    @property
    def seconds(self) -> float:
        """Length in seconds of audio."""
        return len(self.pcm) / 2 / self.sample_rate


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """One call from the phone's side."""

    call: UUID
    connected_at: float  # monotonic seconds
    packets: tuple[ReceivedPacket, ...]
    ended_at: float  # monotonic seconds
    reason: str  # which side ended it, and why


def audible_span(pcm: bytes) -> tuple[int, int] | None:
    """(first, one past the last) sample above -50 dBFS, or None if all is silence."""
    loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) >= AUDIBLE_LEVEL)
    return (int(loud[0]), int(loud[-1]) + 1) if len(loud) else None
