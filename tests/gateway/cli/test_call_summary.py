"""The figures of a received call, from packets made by the tests."""

import csv
import wave
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from vivavoce.gateway.cli.commands.phone.call_summary import (
    first_audible_at,
    gaps_s,
    play_through_jitter_buffer,
    speech_s,
    summarize_call,
    write_packet_times,
    write_wav,
)
from vivavoce.gateway.cli.phones.received_audio import ReceivedCall, ReceivedPacket, audible_span

SILENCE = bytes(320)
CALL = UUID(int=7)


def loud(first: int = 0, stop: int = 160, level: int = 5000) -> bytes:
    samples = np.zeros(160, "<i2")
    samples[first:stop] = level
    return samples.tobytes()


def packets(*arrivals_ms: float, pcm: bytes = SILENCE) -> tuple[ReceivedPacket, ...]:
    return tuple(ReceivedPacket(at / 1000, 8000, pcm) for at in arrivals_ms)


def test_the_threshold_of_audible_samples_is_minus_50_dbfs() -> None:
    assert audible_span(loud(level=103)) is None
    assert audible_span(loud(level=104)) == (0, 160)
    assert audible_span(loud(level=-104)) == (0, 160)
    assert audible_span(loud(level=-32768)) == (0, 160)


def test_the_span_runs_from_the_first_to_past_the_last_audible_sample() -> None:
    assert audible_span(loud(40, 90)) == (40, 90)


def test_an_onset_includes_the_offset_inside_the_packet() -> None:
    trace = [*packets(0, 20), ReceivedPacket(0.040, 8000, loud(80))]
    assert first_audible_at(trace) == pytest.approx(0.050)


def test_silence_has_no_onset() -> None:
    assert first_audible_at(packets(0, 20, 40)) is None


def test_speech_counts_audible_packets_only() -> None:
    trace = [*packets(0, 20), *packets(40, 60, 80, pcm=loud(3, 5))]
    assert speech_s(trace) == pytest.approx(0.060)


def test_gaps_are_between_arrivals() -> None:
    assert gaps_s(packets(0, 20, 95)) == pytest.approx([0.020, 0.075])


def test_a_packet_within_the_jitter_buffer_is_played_without_a_gap() -> None:
    assert [silence for silence, _ in play_through_jitter_buffer(packets(0, 20, 79, 80))] == [0, 0, 0, 0]


def test_a_packet_later_than_the_jitter_buffer_leaves_a_gap_and_restarts_the_schedule() -> None:
    silences = [silence for silence, _ in play_through_jitter_buffer(packets(0, 20, 240, 260, 280))]
    assert silences == pytest.approx([0, 0, 0.200, 0, 0])


def test_the_recording_contains_the_gap(tmp_path: Path) -> None:
    trace = [*packets(0, 20, pcm=loud()), *packets(240, pcm=loud(level=700))]
    write_wav(tmp_path / "heard.wav", trace)
    with wave.open(str(tmp_path / "heard.wav")) as recording:
        assert (recording.getframerate(), recording.getnchannels(), recording.getsampwidth()) == (8000, 1, 2)
        samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    assert len(samples) == 320 + 1600 + 160
    assert set(samples[:320]) == {5000}
    assert set(samples[320:1920]) == {0}
    assert set(samples[1920:]) == {700}


def test_a_recording_without_packets_is_an_empty_wav(tmp_path: Path) -> None:
    write_wav(tmp_path / "heard.wav", ())
    with wave.open(str(tmp_path / "heard.wav")) as recording:
        assert recording.getnframes() == 0


def test_a_packet_of_another_rate_keeps_its_length_in_the_recording(tmp_path: Path) -> None:
    write_wav(
        tmp_path / "heard.wav", [ReceivedPacket(0, 24000, bytes(960)), ReceivedPacket(0.02, 8000, loud())]
    )
    with wave.open(str(tmp_path / "heard.wav")) as recording:
        assert recording.getframerate() == 24000
        assert recording.getnframes() == 960


def test_packet_times_are_written_beside_the_recording(tmp_path: Path) -> None:
    heard = ReceivedCall(
        CALL,
        10.0,
        (ReceivedPacket(10.5, 8000, SILENCE), ReceivedPacket(10.72, 8000, loud())),
        11.0,
        "we hung up",
    )
    write_packet_times(tmp_path / "times.csv", heard)
    with (tmp_path / "times.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["arrived_ms"] for row in rows] == ["500.000", "720.000"]
    assert [row["recording_ms"] for row in rows] == ["0.000", "220.000"]
    assert [row["audible"] for row in rows] == ["0", "1"]


def test_the_summary_counts_gaps_by_their_length() -> None:
    arrivals = (100, 120, 165, 230, 340, 360)  # gaps 20, 45, 65, 110, 20
    summary = summarize_call(ReceivedCall(CALL, 0.0, packets(*arrivals, pcm=loud(8)), 1.0, "we hung up"))
    assert (summary.gaps_over_40_ms, summary.gaps_over_60_ms, summary.gaps_over_100_ms) == (3, 2, 1)
    assert summary.first_packet_ms == 100.0
    assert summary.first_audible_ms == 101.0
    assert summary.inter_arrival_p50_ms == 45.0
    assert summary.packets == 6
    assert summary.speech_s == 0.12
    assert summary.reason == "we hung up"


def test_the_summary_of_a_call_without_audio_has_no_times() -> None:
    summary = summarize_call(ReceivedCall(CALL, 0.0, (), 1.0, "the gateway hung up"))
    assert summary.first_packet_ms is None
    assert summary.first_audible_ms is None
    assert summary.inter_arrival_p99_ms is None
    assert (summary.packets, summary.speech_s) == (0, 0)
