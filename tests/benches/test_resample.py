"""The resampler bench, held to resamplers whose figures are known by construction."""

import numpy as np
import pytest

from benches import resample
from benches.resample import click_delay_ms, cpu_ms, measure, rejection_db, ripple_db, withheld_ms
from vivavoce.adapters.audio.resample import Downsampler


class EveryThird:
    """No filter at all: nothing withheld but what waits for its third, nothing rejected."""

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


class InBlocks(EveryThird):
    """The same, in blocks of 10 ms."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = b""

    def push(self, pcm: bytes) -> bytes:
        self._waiting += pcm
        whole = len(self._waiting) // 480 * 480
        block, self._waiting = self._waiting[:whole], self._waiting[whole:]
        return super().push(block)


class Later(EveryThird):
    """The same, with the output moved back by 5 ms."""

    def push(self, pcm: bytes) -> bytes:
        begin = bytes(80) if self._seen == 0 else b""
        return begin + super().push(pcm)


class Smeared(Downsampler):
    """Ours, at half the level."""

    def push(self, pcm: bytes) -> bytes:
        return (np.frombuffer(super().push(pcm), "<i2") // 2).astype("<i2").tobytes()


def test_a_resampler_without_a_filter_delays_nothing_and_rejects_nothing() -> None:
    assert click_delay_ms(EveryThird) <= 0.1
    assert withheld_ms(EveryThird) == 0
    assert rejection_db(EveryThird) == pytest.approx(0, abs=0.5)
    assert ripple_db(EveryThird) < 0.1


def test_a_resampler_in_blocks_withholds_a_block_but_its_last_push() -> None:
    assert withheld_ms(InBlocks) == pytest.approx(9)
    # The click at 3,000 is the 120th of its block of 240: out with the block's last sample.
    assert click_delay_ms(InBlocks) == pytest.approx(120 / 24, abs=0.1)


def test_an_output_that_is_moved_back_is_delay_too() -> None:
    assert click_delay_ms(Later) == pytest.approx(5, abs=0.1)


def test_a_change_of_level_is_ripple() -> None:
    assert ripple_db(lambda: EveryThird(0.5)) == pytest.approx(6.02, abs=0.01)
    assert rejection_db(Smeared) > rejection_db(Downsampler) + 5


def test_cpu_time_is_the_median_of_seconds_of_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s = (9.0, 0.5, 0.1, 0.2)  # the first is for the caches
    readings = iter([reading for cost in spent_s for reading in (100.0, 100.0 + cost)])
    monkeypatch.setattr(resample.time, "process_time", lambda: next(readings))
    pushed = []

    class Counting(EveryThird):
        def push(self, pcm: bytes) -> bytes:
            pushed.append(len(pcm))
            return b""

    assert cpu_ms(Counting, 20, seconds=3) == pytest.approx(200)
    assert pushed == [960] * 50 * 4


def test_the_report_holds_every_target_of_the_telephone_resampler() -> None:
    report = measure(seconds=1)
    named = {figure.name: figure for figure in report.figures}
    assert named["delay of a click"].at_most == 3
    assert named["audio withheld, at most"].at_most == 3
    assert named["CPU a second of audio, pushes of 20 ms"].at_most == 0.5
    assert named["CPU a second of audio, pushes of 200 ms"].at_most == 0.5
    assert named["largest change of level, 300-3,400 Hz"].at_most == 0.5
    assert named["alias rejection above 4,600 Hz"].at_least == 60
    assert named["soxr VHQ: audio withheld, at most"].value > 100
    reached = [figure.reached for figure in report.figures if "CPU" not in figure.name]
    assert reached == [True, True, True, True, None]
    assert report.settings == {"seconds": 1}


def test_less_than_a_second_is_rounded_up() -> None:
    assert measure(seconds=0.1).settings == {"seconds": 1}
