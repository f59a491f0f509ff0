"""Chunks at the listener's rate pass as they are; others equal what the resampler gives."""

from dataclasses import replace

import numpy as np
import pytest

from shared.audio.playout_speech import START, chunk, constant_level, samples, slot_time, speech
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.playback.chunk_resampler import ChunkResampler
from vivavoce.adapters.playback.playout import Playout
from vivavoce.tts_engine.chunk import AudioChunk


def at_8_khz(milliseconds: int, first: int = 1) -> AudioChunk:
    """Consecutive numbers."""
    pcm = np.arange(first, first + 8 * milliseconds).astype("<i2").tobytes()
    return replace(chunk(pcm), samples=(0, 24 * milliseconds), sample_rate=8_000)


def test_a_chunk_at_the_listeners_rate_is_not_resampled() -> None:
    resampler = ChunkResampler(8_000)
    given = at_8_khz(20)
    assert resampler.push(given) == given.pcm
    assert resampler.drain() == b""


def test_a_chunk_at_24_khz_is_resampled() -> None:
    resampler, expected = ChunkResampler(8_000), Downsampler()
    for first in (1, 500):
        pcm = speech(20, first)
        assert resampler.push(chunk(pcm)) == expected.push(pcm)
    assert resampler.drain() == expected.drain()


def test_what_the_resampler_withholds_comes_before_a_chunk_that_is_not_resampled() -> None:
    resampler, expected = ChunkResampler(8_000), Downsampler()
    resampler.push(chunk(constant_level(20)))
    expected.push(constant_level(20))
    after = at_8_khz(20)
    assert resampler.push(after) == expected.drain() + after.pcm


def test_after_a_reset_nothing_is_left_of_the_speech_before() -> None:
    resampler = ChunkResampler(8_000)
    resampler.push(chunk(constant_level(20)))
    resampler.reset()
    after = at_8_khz(20)
    assert resampler.push(after) == after.pcm


def test_a_chunk_of_another_rate_is_an_error_that_names_both() -> None:
    with pytest.raises(ValueError, match=r"12000 Hz.* 8000 Hz"):
        ChunkResampler(8_000).push(replace(at_8_khz(20), sample_rate=12_000))


def test_a_playout_counts_chunks_at_its_rate_as_long_as_they_are_heard() -> None:
    playout = Playout(start=START, sample_rate=8_000)
    playout.push(at_8_khz(100))
    assert playout.lead_s(START) == pytest.approx(0.1)
    (packet,) = playout.due(slot_time(0))
    assert packet == at_8_khz(20).pcm
    discarded = playout.discard(slot_time(0))
    assert discarded.cut_ms == pytest.approx(80)
    assert samples(packet)[-1] == 160
