"""Analysis of a call's packets against the recorded utterances: onset delay, lateness, gaps, barge-in.

Pure functions of arrival times and utterance times. Times are monotonic seconds; CLOCK_MONOTONIC is common to
all processes of a machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from ..phones.received_audio import AUDIBLE_LEVEL, ReceivedCall

PACKET_S = 0.020
LATE_AFTER_S = 0.020
UNDERRUN_AFTER_S = 0.060
STALE_S = 0.025  # after a discard; audible packets later than this should have been dropped
QUIET_BEFORE_S = 0.100  # silence that an onset needs before it to be measured

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UtteranceTimes:
    """The recorded times of one utterance, monotonic seconds; None for events that did not happen."""

    call: UUID
    number: int  # of the call's utterances; negative for the warm-up
    text: str
    started: float
    punctuation_pushed: float | None = None  # the token with the first clause's punctuation
    clause_pushed: float | None = None  # the token that completes the clause; after a full stop the next one
    discarded: float | None = None
    ended: float | None = None  # the last packet was sent


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """One call's packets as arrays."""

    call: UUID
    sample_rate: int  # Hz
    arrived: FloatArray  # (n,) monotonic seconds
    first_audible_at: FloatArray  # (n,) time of the packet's first audible sample, NaN in silence
    last_audible_at: FloatArray  # (n,) time of its last audible sample, NaN in silence
    pcm: NDArray[np.int16]  # (n, samples a packet)

    @classmethod
    def from_received_call(cls, heard: ReceivedCall) -> Self:
        """Build from a phone's recording; raises ValueError if packets differ in length or sample rate."""
        shapes = {(packet.sample_rate, len(packet.pcm)) for packet in heard.packets}
        if len(shapes) != 1:
            raise ValueError(
                f"got packets of {sorted(shapes)} (Hz, bytes) in one call; exactly one kind is allowed"
            )
        ((sample_rate, size),) = shapes
        pcm = np.frombuffer(b"".join(packet.pcm for packet in heard.packets), "<i2").reshape(-1, size // 2)
        arrived = np.array([packet.arrived_at for packet in heard.packets])
        return cls.from_arrays(heard.call, sample_rate, arrived, pcm)

    @classmethod
    def from_arrays(cls, call: UUID, sample_rate: int, arrived: FloatArray, pcm: NDArray[np.int16]) -> Self:
        """Build from arrival times (n,) and samples (n, samples a packet)."""
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
        """(n,) True for packets with an audible sample."""
        return ~np.isnan(self.first_audible_at)

    def between(self, start: float, stop: float) -> "PacketTrace":
        """The packets that arrived in [start, stop)."""
        inside = (self.arrived >= start) & (self.arrived < stop)
        return PacketTrace(
            self.call,
            self.sample_rate,
            self.arrived[inside],
            self.first_audible_at[inside],
            self.last_audible_at[inside],
            self.pcm[inside],
        )


@dataclass(frozen=True, slots=True)
class OnsetDelay:
    """Delay of an utterance's first audible sample; None if nothing of it was heard."""

    from_clause_s: float | None  # after the push that completed the first clause
    from_punctuation_s: float | None  # after the push of its punctuation


def measure_onset(trace: PacketTrace, utterance: UtteranceTimes, *, before: float) -> OnsetDelay:
    """Match an utterance with the first audible sample after its first clause was pushed.

    ``before`` is the start of the call's next utterance; later samples belong to that one. An utterance
    counts as not heard if its call was not silent for 100 ms before the push.
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
    """A call's packets against their 20 ms schedule."""

    packets: int
    late: int  # over 20 ms late
    skipped: int  # slots without a packet
    max_s: float  # lateness of the latest packet

    @property
    def late_share(self) -> float:
        """Share of slots whose packet was over 20 ms late or missing."""
        slots = self.packets + self.skipped
        return (self.late + self.skipped) / slots if slots else 0.0


def measure_lateness(arrived: FloatArray) -> PacketLateness:
    """Fit a 20 ms schedule to arrival times (n,) and count the packets that miss it.

    The slot of a packet is the latest one that no later packet contradicts. A packet is late if the following
    ones are in time; if all following ones have moved, slots were skipped and a new schedule begins:

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
    """Gaps of over 60 ms between the end of one packet and the arrival of the next."""
    return int((np.diff(arrived) - PACKET_S > UNDERRUN_AFTER_S).sum())


@dataclass(frozen=True, slots=True)
class BargeInDelay:
    """Audible packets after a discard."""

    last_audible_s: float  # from the discard to the arrival of the last audible packet
    stale_packets: int  # audible packets that arrived over 25 ms after the discard


def measure_barge_in(trace: PacketTrace, discarded: float, *, before: float) -> BargeInDelay:
    """Count audible packets between the discard and the start of the next utterance at ``before``."""
    arrived = trace.arrived[trace.audible]
    arrived = arrived[(arrived >= discarded) & (arrived < before)]
    if not len(arrived):
        return BargeInDelay(0.0, 0)
    return BargeInDelay(float(arrived[-1] - discarded), int((arrived > discarded + STALE_S).sum()))


def samples_after(trace: PacketTrace, moment: float, seconds: float) -> NDArray[np.int16]:
    """Up to ``seconds`` of samples from the first audible one after ``moment`` on."""
    samples = trace.pcm[trace.arrived >= moment].reshape(-1)
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) >= AUDIBLE_LEVEL)
    start = int(loud[0]) if len(loud) else len(samples)
    return samples[start : start + round(seconds * trace.sample_rate)]


def correlation(heard: NDArray[np.int16], clean: NDArray[np.int16]) -> float:
    """Correlation of two recordings from their onsets on, over the shorter length; 1 if equal.

    Zero samples are left out, because they fill gaps.
    """
    heard, clean = heard[heard != 0], clean[clean != 0]
    length = min(len(heard), len(clean))
    if not length:
        return 0.0
    first, second = heard[:length].astype(float), clean[:length].astype(float)
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norm if norm else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile with linear interpolation; infinite without values, so that no target is reached."""
    return float(np.percentile(values, percent)) if len(values) else float("inf")


def mean_calls_speaking(utterances: Sequence[UtteranceTimes], until: float) -> float:
    """Mean number of calls speaking at once, from the end of the first utterance to ``until``."""
    spoken = [one for one in utterances if one.clause_pushed is not None]
    start = min((one.ended for one in spoken if one.ended is not None), default=until)
    if start >= until:
        return 0.0
    overlaps = [min(one.ended or until, until) - max(one.clause_pushed or start, start) for one in spoken]
    return sum(overlap for overlap in overlaps if overlap > 0) / (until - start)
