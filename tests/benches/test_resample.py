"""The resampler bench, checked with resamplers whose figures are known by construction."""

import numpy as np
import pytest

from benches import resample
from benches.resample import click_delay_ms, cpu_ms, measure, rejection_db, ripple_db, withheld_ms
from vivavoce.adapters.audio.resample import Downsampler


class UnfilteredDecimator:
    """Takes every third sample without a filter, so it adds no delay and rejects no aliases."""

    def __init__(self, gain: float = 1.0) -> None:
        self._gain = gain
        self._seen = 0

    def push(self, pcm: bytes) -> bytes:
        samples = np.frombuffer(pcm, "<i2")
        first = -self._seen % 3
        self._seen += len(samples)
        return np.rint(samples[first::3] * self._gain).astype("<i2").tobytes()

    def drain(self) -> bytes:
        return b""

    def reset(self) -> None:
        self._seen = 0


class BlockDecimator(UnfilteredDecimator):
    """A decimator that processes blocks of 10 ms."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = b""

    def push(self, pcm: bytes) -> bytes:
        self._waiting += pcm
        whole = len(self._waiting) // 480 * 480
        block, self._waiting = self._waiting[:whole], self._waiting[whole:]
        return super().push(block)


class DelayedDecimator(UnfilteredDecimator):
    """A decimator whose output is delayed by 5 ms."""

    def push(self, pcm: bytes) -> bytes:
        silence = bytes(80) if self._seen == 0 else b""
        return silence + super().push(pcm)


class HalfLevelDownsampler(Downsampler):
    """The product's resampler at half the level."""

    def push(self, pcm: bytes) -> bytes:
        return (np.frombuffer(super().push(pcm), "<i2") // 2).astype("<i2").tobytes()


def test_a_resampler_without_a_filter_delays_nothing_and_rejects_nothing() -> None:
    assert click_delay_ms(UnfilteredDecimator) <= 0.1
    assert withheld_ms(UnfilteredDecimator) == 0
    assert rejection_db(UnfilteredDecimator) == pytest.approx(0, abs=0.5)
    assert ripple_db(UnfilteredDecimator) < 0.1


def test_a_resampler_in_blocks_withholds_all_but_the_last_push_of_a_block() -> None:
    assert withheld_ms(BlockDecimator) == pytest.approx(9)
    # The click at sample 3,000 is the 120th of its block of 240 and leaves with the block's last sample.
    assert click_delay_ms(BlockDecimator) == pytest.approx(120 / 24, abs=0.1)


def test_a_shift_of_the_output_counts_as_delay() -> None:
    assert click_delay_ms(DelayedDecimator) == pytest.approx(5, abs=0.1)


def test_a_change_of_level_counts_as_ripple() -> None:
    assert ripple_db(lambda: UnfilteredDecimator(0.5)) == pytest.approx(6.02, abs=0.01)
    assert rejection_db(HalfLevelDownsampler) > rejection_db(Downsampler) + 5


def test_cpu_time_is_the_median_over_seconds_of_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s = (9.0, 0.5, 0.1, 0.2)  # the first one warms up the caches
    readings = iter([reading for cost in spent_s for reading in (100.0, 100.0 + cost)])
    monkeypatch.setattr(resample.time, "process_time", lambda: next(readings))
    pushed = []

    class CountingDecimator(UnfilteredDecimator):
        def push(self, pcm: bytes) -> bytes:
            pushed.append(len(pcm))
            return b""

    assert cpu_ms(CountingDecimator, 20, seconds=3) == pytest.approx(200)
    assert pushed == [960] * 50 * 4


def test_the_report_contains_every_target_of_the_telephone_resampler() -> None:
    report = measure(seconds=1)
    by_name = {figure.name: figure for figure in report.figures}
    assert by_name["delay of a click"].at_most == 3
    assert by_name["audio withheld, at most"].at_most == 3
    assert by_name["CPU a second of audio, pushes of 20 ms"].at_most == 0.5
    assert by_name["CPU a second of audio, pushes of 200 ms"].at_most == 0.5
    assert by_name["largest change of level, 300-3,400 Hz"].at_most == 0.5
    assert by_name["alias rejection above 4,600 Hz"].at_least == 60
    assert by_name["soxr VHQ: audio withheld, at most"].value > 100
    reached = [figure.reached for figure in report.figures if "CPU" not in figure.name]
    assert reached == [True, True, True, True, None]
    assert report.settings == {"seconds": 1}


def test_less_than_a_second_is_rounded_up() -> None:
    assert measure(seconds=0.1).settings == {"seconds": 1}
