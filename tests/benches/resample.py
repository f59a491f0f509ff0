"""Benchmark of the 24 kHz to 8 kHz resampler: delay, CPU time, pass-band ripple and alias rejection.

Everything is measured on s16le through the class that calls use. soxr's best quality, which voice frameworks
use, is measured in the same way for comparison.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import soxr

from vivavoce.adapters.audio.resample import BlockResampler, Downsampler, Resampler
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.chunk import SAMPLE_RATE

MAX_DELAY_MS = 3.0
MAX_CPU_MS = 0.5
MAX_RIPPLE_DB = 0.5
MIN_REJECTION_DB = 60.0
_PASS_HZ = (300, 3_400)
_STOP_HZ = (4_600, 12_000)
_TONE_STEP_HZ = 50
_TONE_LEVEL = 29_000  # of 32,767; leaves room for overshoot without saturation
_RATIO = 3  # input samples for one output sample


def measure(seconds: float = 20.0) -> BenchReport:
    """Measure the resampler of telephone calls, CPU time over ``seconds`` of audio (at least 1)."""
    whole_s = max(1, round(seconds))
    return BenchReport(
        bench="resample",
        figures=(
            BenchFigure("delay of a click", click_delay_ms(Downsampler), "ms", at_most=MAX_DELAY_MS),
            BenchFigure("audio withheld, at most", withheld_ms(Downsampler), "ms", at_most=MAX_DELAY_MS),
            BenchFigure(
                "CPU a second of audio, pushes of 20 ms", cpu_ms(Downsampler, 20, whole_s), "ms", MAX_CPU_MS
            ),
            BenchFigure(
                "CPU a second of audio, pushes of 200 ms", cpu_ms(Downsampler, 200, whole_s), "ms", MAX_CPU_MS
            ),
            BenchFigure(
                "largest change of level, 300-3,400 Hz", ripple_db(Downsampler), "dB", at_most=MAX_RIPPLE_DB
            ),
            BenchFigure(
                "alias rejection above 4,600 Hz", rejection_db(Downsampler), "dB", at_least=MIN_REJECTION_DB
            ),
            BenchFigure("soxr VHQ: audio withheld, at most", withheld_ms(_soxr_resampler), "ms"),
            BenchFigure("soxr VHQ: CPU, pushes of 20 ms", cpu_ms(_soxr_resampler, 20, whole_s), "ms"),
        ),
        settings={"seconds": whole_s},
    )


def click_delay_ms(make: Callable[[], Resampler]) -> float:
    """Time from a click's input to the output of its peak; the maximum over the three decimation phases."""
    return max(_click_delay_ms(make(), place) for place in (3_000, 3_001, 3_002))


def withheld_ms(make: Callable[[], Resampler]) -> float:
    """The maximum of audio pushed and not yet returned, over 1 s in pushes of 1 ms."""
    resampler, came_in, came_out, worst = make(), 0, 0, 0
    for part in _pushes(_noise(1), 1):
        came_in += len(part) // 2
        came_out += len(resampler.push(part)) // 2
        worst = max(worst, came_in - _RATIO * came_out)
    return 1_000 * worst / SAMPLE_RATE


def cpu_ms(make: Callable[[], Resampler], push_ms: int, seconds: int) -> float:
    """CPU time of the whole process, all its threads, for one second of audio: the median of ``seconds``.

    The median, because other processes that evict the caches make single seconds slower.
    """
    resampler = make()
    second = list(_pushes(_noise(1), push_ms))
    _cpu_s(resampler, second)  # fills caches
    return 1_000 * float(np.median([_cpu_s(resampler, second) for _ in range(seconds)]))


def ripple_db(make: Callable[[], Resampler]) -> float:
    """The maximum deviation of the gain from 0 dB in the pass band."""
    return max(abs(_gain_db(make(), hertz)) for hertz in range(_PASS_HZ[0], _PASS_HZ[1] + 1, _TONE_STEP_HZ))


def rejection_db(make: Callable[[], Resampler]) -> float:
    """The minimum attenuation of a tone in the stop band."""
    return -max(_gain_db(make(), hertz) for hertz in range(*_STOP_HZ, _TONE_STEP_HZ))


def _cpu_s(resampler: Resampler, parts: list[bytes]) -> float:
    begin_s = time.process_time()
    for part in parts:
        resampler.push(part)
    return time.process_time() - begin_s


def _soxr_resampler() -> BlockResampler:
    return BlockResampler(
        soxr.ResampleStream(SAMPLE_RATE, SAMPLE_RATE // _RATIO, 1, dtype="int16", quality="VHQ")
    )


def _click_delay_ms(resampler: Resampler, place: int) -> float:
    click = np.zeros(2 * place, "<i2")
    click[place] = 32_000
    heard = [_samples(resampler.push(sample.tobytes())) for sample in click.reshape(-1, 1)]
    peak = int(np.argmax(np.concatenate(heard)))
    out_after = int(np.searchsorted(np.cumsum([len(part) for part in heard]), peak, side="right"))
    shifted = max(0, _RATIO * peak - place)
    return 1_000 * (out_after - place + shifted) / SAMPLE_RATE


def _gain_db(resampler: Resampler, hertz: int) -> float:
    times_s = np.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
    tone = np.rint(_TONE_LEVEL * np.cos(2 * np.pi * hertz * times_s)).astype("<i2")
    heard = _samples(resampler.push(tone.tobytes()))[400:-400]  # between the edges
    return float(20 * np.log10(max(heard.std(), 1e-6) / tone.std()))


def _pushes(pcm: bytes, push_ms: int) -> Iterator[bytes]:
    size = SAMPLE_RATE * push_ms // 1_000 * 2
    return (pcm[start : start + size] for start in range(0, len(pcm), size))


def _noise(seconds: int) -> bytes:
    return np.random.default_rng(0).integers(-20_000, 20_000, SAMPLE_RATE * seconds).astype("<i2").tobytes()


def _samples(pcm: bytes) -> npt.NDArray[np.float64]:
    return np.frombuffer(pcm, "<i2").astype(np.float64)
