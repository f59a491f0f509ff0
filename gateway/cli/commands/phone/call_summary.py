"""The figures of a received call, its recording and the table of its packets.

No sockets and no clock. Times are ``time.monotonic()`` seconds; audio is s16le mono.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from .....adapters.audio.pcm import wav_file
from ...phones.received_audio import ReceivedCall, ReceivedPacket, audible_span

JITTER_BUFFER_S = 0.060  # a later packet leaves a gap in what the phone plays


def audible_at(packet: ReceivedPacket) -> float | None:
    """Time of a packet's first audible sample: arrival plus its offset. None if all is silence."""
    span = audible_span(packet.pcm)
    return None if span is None else packet.arrived_at + span[0] / packet.sample_rate


def first_audible_at(packets: Sequence[ReceivedPacket]) -> float | None:
    """Time of the first audible sample, or None if all is silence."""
    return next((at for at in map(audible_at, packets) if at is not None), None)


def speech_s(packets: Sequence[ReceivedPacket]) -> float:
    """Seconds of audio in packets that contain an audible sample."""
    return sum(packet.seconds for packet in packets if audible_span(packet.pcm) is not None)


def gaps_s(packets: Sequence[ReceivedPacket]) -> list[float]:
    """Seconds from each packet's arrival to the next one's."""
    return [later.arrived_at - earlier.arrived_at for earlier, later in pairwise(packets)]


@dataclass(frozen=True, slots=True)
class ReceivedCallSummary:
    """The figures of one call; None where nothing arrived."""

    call: str  # UUID
    reason: str  # which side ended it, and why
    duration_s: float
    packets: int
    sample_rate: int | None  # Hz, of the first packet
    first_packet_ms: float | None  # from the connection on
    first_audible_ms: float | None  # from the connection on
    speech_s: float  # audible packets only
    # Between the arrivals of successive packets, silent ones included:
    inter_arrival_p50_ms: float | None
    inter_arrival_p99_ms: float | None
    gaps_over_40_ms: int
    gaps_over_60_ms: int
    gaps_over_100_ms: int
    recording: str | None = None  # path of the WAV file

    def as_json(self) -> str:
        """The same as one JSON object."""
        return json.dumps(asdict(self))


def summarize_call(received: ReceivedCall, recording: Path | None = None) -> ReceivedCallSummary:
    """Compute the figures of one call; ``recording`` is the path of its WAV file."""
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
    """(seconds of silence before it, packet) as a phone with a 60 ms jitter buffer plays them.

    A packet that the buffer does not cover is played on arrival, and the schedule restarts from it:

        arrivals  |p0|p1|p2|..............|p3|p4|
        played    |p0|p1|p2|   silence    |p3|p4|
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
    """Write a WAV file at the first packet's sample rate, with silence where packets were late.

    A packet of another sample rate is replaced by silence of its length. Raises OSError.
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
    """Write a CSV line a packet: arrival since the connection, position in the WAV, rate, bytes, audible."""
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
