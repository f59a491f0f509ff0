"""What phones heard of a talker that noted what it did: onsets, pauses, lateness, what came after a barge-in.

Pure: a trace of arrivals and a list of utterances in, numbers out. Times are monotonic seconds of one
machine, on which CLOCK_MONOTONIC is the same for every process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from ..received_audio import AUDIBLE_LEVEL, ReceivedCall

PACKET_S = 0.020
LATE_AFTER_S = 0.020
UNDERRUN_AFTER_S = 0.060
STALE_S = 0.025  # after a discard; what comes later should have been dropped
QUIET_BEFORE_S = 0.100  # an onset is one only if nothing was heard for this long before

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UtteranceTimes:
    """What the talker noted of one utterance. Moments that did not come are None.

    ``punctuated``: push of the token with the punctuation of the first clause; ``clause``: push of the token
    that completes it, the same one for a comma, the next one for a full stop. ``ended``: all is played.
    """

    call: UUID
    number: int
    text: str
    started: float
    punctuation_pushed: float | None = None
    clause_pushed: float | None = None
    discarded: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """One call's packets as arrays.

    ``arrived``: (n,); ``first``, ``last``: (n,), when the first and last audible sample of each packet are
    heard, NaN in silence; ``pcm``: (n, samples).
    """

    call: UUID
    sample_rate: int
    arrived: FloatArray
    first_audible_at: FloatArray
    last_audible: FloatArray
    pcm: NDArray[np.int16]

    @classmethod
    def from_received_call(cls, heard: ReceivedCall) -> Self:
        """Raises ValueError if packets differ in length or rate: this bench drives one kind of call."""
        shapes = {(packet.sample_rate, len(packet.pcm)) for packet in heard.packets}
        if len(shapes) != 1:
            raise ValueError(f"got packets of {sorted(shapes)} (Hz, bytes) in one call; one kind is expected")
        ((sample_rate, size),) = shapes
        pcm = np.frombuffer(b"".join(packet.pcm for packet in heard.packets), "<i2").reshape(-1, size // 2)
        arrived = np.array([packet.arrived_at for packet in heard.packets])
        return cls.from_arrays(heard.call, sample_rate, arrived, pcm)

    @classmethod
    def from_arrays(cls, call: UUID, sample_rate: int, arrived: FloatArray, pcm: NDArray[np.int16]) -> Self:
        """Build from arrival times and samples."""
        loud = np.abs(pcm.astype(np.int32)) >= AUDIBLE_LEVEL
        any_loud = loud.any(axis=1)
        first = arrived + loud.argmax(axis=1) / sample_rate
        last = arrived + (pcm.shape[1] - loud[:, ::-1].argmax(axis=1)) / sample_rate
        return cls(
            call,
            sample_rate,
            arrived,
            np.where(any_loud, first, np.nan),
            np.where(any_loud, last, np.nan),
            pcm,
        )

    @property
    def audible(self) -> NDArray[np.bool_]:
        """Which packets have anything audible in them."""
        return ~np.isnan(self.first_audible_at)

    def between(self, start: float, stop: float) -> "PacketTrace":
        """The packets that arrived in [start, stop)."""
        inside = (self.arrived >= start) & (self.arrived < stop)
        return PacketTrace(
            self.call,
            self.sample_rate,
            self.arrived[inside],
            self.first_audible_at[inside],
            self.last_audible[inside],
            self.pcm[inside],
        )


@dataclass(frozen=True, slots=True)
class OnsetDelay:
    """How soon an utterance was heard, in seconds from two moments; None where nothing was heard of it."""

    from_clause_s: float | None
    from_punctuation_s: float | None


def measure_onset(trace: PacketTrace, utterance: UtteranceTimes, *, before: float) -> OnsetDelay:
    """Match an utterance with the first audible sample after its first clause was pushed.

    ``before``: when the next utterance of that call began; what is heard later belongs to that one. An
    utterance whose call was not silent for 100 ms before the push cannot be measured: it counts as unheard.
    """
    nothing = OnsetDelay(None, None)
    if utterance.clause_pushed is None or utterance.punctuation_pushed is None:
        return nothing
    first = trace.first_audible_at[trace.audible]
    quiet_from = min(utterance.punctuation_pushed, utterance.clause_pushed) - QUIET_BEFORE_S
    first = first[(first >= quiet_from) & (first < before)]
    if not len(first) or first[0] < utterance.punctuation_pushed:
        return nothing
    return OnsetDelay(
        float(first[0] - utterance.clause_pushed), float(first[0] - utterance.punctuation_pushed)
    )


@dataclass(frozen=True, slots=True)
class PacketLateness:
    """How well a call kept its schedule: packets heard, over 20 ms late, and slots in which none was sent."""

    packets: int
    late: int
    skipped: int
    max_s: float

    @property
    def late_share(self) -> float:
        """Slots whose packet came over 20 ms late or not at all, of all slots."""
        slots = self.packets + self.skipped
        return (self.late + self.skipped) / slots if slots else 0.0


def measure_lateness(arrived: FloatArray) -> PacketLateness:
    """Fit the schedule that the phone can know and count what misses it.

    Packet i's slot is the latest one that no later packet contradicts. A packet that is late while the next
    ones are in time is late; when all later ones have moved, slots were skipped and a new schedule begins:

        arrivals   0   20   40        85 86  100 120    |  0   20   40             100  120
        lateness   0    0    0        25  6    0   0    |  0    0    0  (2 skipped)  0    0
    """
    if not len(arrived):
        return PacketLateness(0, 0, 0, 0.0)
    offset = arrived - np.arange(len(arrived)) * PACKET_S
    schedule_offset = np.minimum.accumulate(offset[::-1])[::-1]
    late = offset - schedule_offset
    skipped = np.rint(np.diff(schedule_offset) / PACKET_S).sum() if len(schedule_offset) > 1 else 0
    return PacketLateness(len(arrived), int((late > LATE_AFTER_S).sum()), int(skipped), float(late.max()))


def count_arrival_gaps(arrived: FloatArray) -> int:
    """Times that a phone heard nothing for over 60 ms after a packet had been played."""
    return int((np.diff(arrived) - PACKET_S > UNDERRUN_AFTER_S).sum())


@dataclass(frozen=True, slots=True)
class BargeInDelay:
    """After a discard: seconds to the arrival of the last audible packet, and audible packets after 25 ms."""

    last_audible_s: float
    stale_packets: int


def measure_barge_in(trace: PacketTrace, discarded: float, *, before: float) -> BargeInDelay:
    """What a phone heard of the old utterance from ``discarded`` until the next one began at ``before``."""
    arrived = trace.arrived[trace.audible]
    arrived = arrived[(arrived >= discarded) & (arrived < before)]
    if not len(arrived):
        return BargeInDelay(0.0, 0)
    return BargeInDelay(float(arrived[-1] - discarded), int((arrived > discarded + STALE_S).sum()))


def samples_after(trace: PacketTrace, moment: float, seconds: float) -> NDArray[np.int16]:
    """The samples heard from the first audible one after ``moment`` on, at most ``seconds``."""
    samples = trace.pcm[trace.arrived >= moment].reshape(-1)
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) >= AUDIBLE_LEVEL)
    start = int(loud[0]) if len(loud) else len(samples)
    return samples[start : start + round(seconds * trace.sample_rate)]


def correlation(heard: NDArray[np.int16], clean: NDArray[np.int16]) -> float:
    """Correlation of two readings from their onsets on: 1 when equal; over the shorter one's length.

    Samples of zero are left out: the silence that fills a hole belongs to no reading.
    """
    heard, clean = heard[heard != 0], clean[clean != 0]
    length = min(len(heard), len(clean))
    if not length:
        return 0.0
    first, second = heard[:length].astype(float), clean[:length].astype(float)
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norm if norm else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between ranks; infinite for no values, so that a bench without results reaches no target."""
    return float(np.percentile(values, percent)) if len(values) else float("inf")
