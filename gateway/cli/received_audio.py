"""What a phone heard: packets with their arrival times, and the figures that follow from them.

Pure: no sockets and no clock, so that a test can write down a trace and know the answer.
Times are ``time.monotonic()`` seconds; audio is s16le mono.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import numpy as np

from ...adapters.audio.codecs import wav_file

AUDIBLE_DBFS = -50.0  # quieter than this is silence to a listener on a phone
JITTER_BUFFER_S = 0.060  # what a phone waits for a late packet before it plays nothing
_FULL_SCALE = 32_768
AUDIBLE_LEVEL = round(_FULL_SCALE * 10 ** (AUDIBLE_DBFS / 20))


@dataclass(frozen=True, slots=True)
class ReceivedPacket:
    """One audio message as it arrived. ``arrived``: monotonic s; ``pcm``: s16le mono."""

    arrived_at: float
    sample_rate: int
    pcm: bytes

    @property
    def seconds(self) -> float:
        """Length in seconds of audio."""
        return len(self.pcm) / 2 / self.sample_rate


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """One call from the phone's side.

    ``connected`` and ``ended`` are monotonic s; ``reason`` says who ended it.
    """

    call: UUID
    connected_at: float
    packets: tuple[ReceivedPacket, ...]
    ended_at: float
    reason: str


def audible_span(pcm: bytes) -> tuple[int, int] | None:
    """(first, one past the last) sample above -50 dBFS, or None in silence."""
    loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) >= AUDIBLE_LEVEL)
    return (int(loud[0]), int(loud[-1]) + 1) if len(loud) else None


def audible_at(packet: ReceivedPacket) -> float | None:
    """When a packet's first audible sample is heard (arrival plus its place inside), or None in silence."""
    span = audible_span(packet.pcm)
    return None if span is None else packet.arrived_at + span[0] / packet.sample_rate


def first_audible_at(packets: Sequence[ReceivedPacket]) -> float | None:
    """When the first audible sample is heard, or None if all is silence."""
    return next((at for at in map(audible_at, packets) if at is not None), None)


def speech_s(packets: Sequence[ReceivedPacket]) -> float:
    """Seconds of packets with something audible in them."""
    return sum(packet.seconds for packet in packets if audible_span(packet.pcm) is not None)


def gaps_s(packets: Sequence[ReceivedPacket]) -> list[float]:
    """Seconds from each packet's arrival to the next one's."""
    return [later.arrived_at - earlier.arrived_at for earlier, later in pairwise(packets)]


@dataclass(frozen=True, slots=True)
class ReceivedCallSummary:
    """The figures of one call; times run from the connection, None where nothing came.

    ``inter_arrival`` is between packets of audio, silence included; ``speech_s`` counts audible packets only.
    """

    call: str
    reason: str
    duration_s: float
    packets: int
    sample_rate: int | None
    first_packet_ms: float | None
    first_audible_ms: float | None
    speech_s: float
    inter_arrival_p50_ms: float | None
    inter_arrival_p99_ms: float | None
    gaps_over_40_ms: int
    gaps_over_60_ms: int
    gaps_over_100_ms: int
    recording: str | None = None

    def as_json(self) -> str:
        """The same as one JSON object."""
        return json.dumps(asdict(self))


def summarize_call(received: ReceivedCall, recording: Path | None = None) -> ReceivedCallSummary:
    """The figures of one call; ``recording`` is where its WAV lies."""
    gaps = gaps_s(received.packets)
    start = received.packets[0].arrived_at if received.packets else None
    return ReceivedCallSummary(
        call=str(received.call),
        reason=received.reason,
        duration_s=round(received.ended_at - received.connected_at, 3),
        packets=len(received.packets),
        sample_rate=received.packets[0].sample_rate if received.packets else None,
        first_packet_ms=_ms_after(received.connected_at, start),
        first_audible_ms=_ms_after(received.connected_at, first_audible_at(received.packets)),
        speech_s=round(speech_s(received.packets), 2),
        inter_arrival_p50_ms=_percentile_ms(gaps, 50),
        inter_arrival_p99_ms=_percentile_ms(gaps, 99),
        gaps_over_40_ms=_count_over(gaps, 0.040),
        gaps_over_60_ms=_count_over(gaps, 0.060),
        gaps_over_100_ms=_count_over(gaps, 0.100),
        recording=None if recording is None else str(recording),
    )


def _ms_after(start: float, moment: float | None) -> float | None:
    return None if moment is None else round((moment - start) * 1000, 2)


def _percentile_ms(gaps: Sequence[float], percent: float) -> float | None:
    return round(float(np.percentile(gaps, percent)) * 1000, 2) if gaps else None


def _count_over(gaps: Sequence[float], limit_s: float) -> int:
    return sum(gap > limit_s for gap in gaps)


def play_through_jitter_buffer(packets: Sequence[ReceivedPacket]) -> list[tuple[float, ReceivedPacket]]:
    """(s of silence before it, packet) as a phone with a 60 ms jitter buffer plays what arrives.

    A packet later than the buffer covers is played when it comes, and the schedule starts anew from it:

        arrivals  |p0|p1|p2|..............|p3|p4|
        heard     |p0|p1|p2|   silence    |p3|p4|
    """
    played: list[tuple[float, ReceivedPacket]] = []
    runs_dry_at = packets[0].arrived_at if packets else 0.0
    for packet in packets:
        late_s = packet.arrived_at - runs_dry_at
        silence_s = late_s if late_s > JITTER_BUFFER_S else 0.0
        played.append((silence_s, packet))
        runs_dry_at += silence_s + packet.seconds
    return played


def write_wav(path: Path, packets: Sequence[ReceivedPacket]) -> None:
    """Record what was heard, silence where nothing came in time, at the first packet's sample rate.

    Raises OSError; a packet of another rate than the first is left out as silence of its length.
    """
    sample_rate = packets[0].sample_rate if packets else 8000
    parts = []
    for silence_s, packet in play_through_jitter_buffer(packets):
        same_rate = packet.sample_rate == sample_rate
        parts.append(_silence(silence_s, sample_rate))
        parts.append(packet.pcm if same_rate else _silence(packet.seconds, sample_rate))
    path.write_bytes(wav_file(b"".join(parts), sample_rate))


def _silence(seconds: float, sample_rate: int) -> bytes:
    return bytes(2 * round(seconds * sample_rate))


def write_packet_times(path: Path, received: ReceivedCall) -> None:
    """One line a packet: arrival after the connection, place in the WAV, rate, bytes, audible or not."""
    at_s = 0.0
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["packet", "arrived_ms", "recording_ms", "sample_rate", "bytes", "audible"])
        for index, (silence_s, packet) in enumerate(play_through_jitter_buffer(received.packets)):
            at_s += silence_s
            table.writerow(
                [
                    index,
                    f"{(packet.arrived_at - received.connected_at) * 1000:.3f}",
                    f"{at_s * 1000:.3f}",
                    packet.sample_rate,
                    len(packet.pcm),
                    int(audible_span(packet.pcm) is not None),
                ]
            )
            at_s += packet.seconds
