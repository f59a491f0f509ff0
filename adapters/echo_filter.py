"""Removal of our own voice from a caller's audio, so that a call does not interrupt itself.

A telephone on a speaker, or a bad hybrid, sends back what it plays: weaker, and up to 0.4 s later. What is
played is known, so the echo is estimated from it: the delay by the cross-correlation of both signals, and
then a short filter by least squares over the last half second (recursive, with exponential forgetting), which
follows at once. What the filter explains is removed; where it explains most of what came, nothing is left.
A caller who speaks over the echo is not explained, and stays. Nothing is done while nothing is played.

The result is for the detection of speech, at 8 kHz, and not for listening.

Source: Haykin, Adaptive Filter Theory, chapter 9 (least squares, in blocks); Knapp and Carter 1976
(cross-correlation of whitened signals).
"""

import audioop
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ECHO_RATE: Final = 8_000  # Hz, of the result
_BLOCK: Final = 160  # samples, 20 ms
_MAX_DELAY: Final = 3_200  # samples, 0.4 s
_WINDOW: Final = 1_600  # samples whose delay is looked for
_TRANSFORM: Final = 8_192  # at least the window and all delays
_TAPS: Final = 128  # 16 ms: of a room's tail, more than the filter has would be left
_BEFORE: Final = 32  # taps before the delay that was found, which may be of a reflection
_FORGET: Final = 0.96  # a block: half a second
_SETTLING: Final = 12  # blocks at a delay, from which the filter is not yet good for the next one
_REGULAR: Final = 1e-3  # of the energy of the voice; more trust in a small filter
_MIN_PEAK: Final = 0.12  # of the cross-correlation, at which a delay is believed
_BETTER: Final = 1.5  # a peak must be, to replace the delay that is used
_FADING: Final = 0.99  # of the memory of that delay's peak, a search
_DOUBTED: Final = 0.6  # the same, where another delay is better: this one may be off by periods of a vowel
_EXPLAINED: Final = 0.35  # energy left, of what came, below which all is taken for echo
_ATTENUATION: Final = 0.05
_QUIET_POWER: Final = 1e-5  # -50 dBFS: a delay is not looked for below
_SILENT_POWER: Final = 4e-6  # -54 dBFS: below, no 8 ms of a block have the -50 dBFS that wake the detector
_PLAYED_POWER: Final = 1e-7  # -70 dBFS: below, nothing is played
_SEARCH_EVERY: Final = 4  # blocks
_IDENTITY: Final = np.eye(_TAPS, dtype=np.float32)

Samples = NDArray[np.float32]  # single precision: half the processor time


class EchoFilter:
    """The echo of one call. Audio is s16le mono; a clock is not needed: both signals go on in step."""

    def __init__(self) -> None:
        self._played = _Stream()
        self._received = _Stream()
        self._reference = np.zeros(_MAX_DELAY + _WINDOW + _TAPS + _BLOCK, np.float32)  # newest last
        self._heard = np.zeros(_WINDOW, np.float32)  # newest last
        self._delay: int | None = None  # samples from the playing to the first tap
        self._peak = 0.0  # of the cross-correlation at the delay
        self._learned = 0  # blocks, at that delay
        self._gram = np.zeros((_TAPS, _TAPS), np.float32)
        self._cross = np.zeros(_TAPS, np.float32)
        self._blocks = 0

    def play(self, pcm: bytes, sample_rate: int) -> None:
        """Take what the caller hears from now on."""
        self._played.push(pcm, sample_rate)

    def remove(self, pcm: bytes, sample_rate: int) -> bytes:
        """Return the caller's audio without the echo, at 8 kHz, in whole blocks of 20 ms."""
        self._received.push(pcm, sample_rate)
        parts = []
        while (block := self._received.take(_BLOCK)) is not None:
            played = self._played.take(_BLOCK)
            self._append(block, np.zeros(_BLOCK, np.float32) if played is None else played)
            parts.append(self._clean(block))
        self._played.drop_older_than(_MAX_DELAY)
        if not parts:
            return b""
        return np.clip(np.rint(np.concatenate(parts) * 32_768), -32_768, 32_767).astype("<i2").tobytes()

    def _append(self, block: Samples, played: Samples) -> None:
        self._reference = np.concatenate([self._reference[_BLOCK:], played])
        self._heard = np.concatenate([self._heard[_BLOCK:], block])
        self._blocks += 1

    def _clean(self, block: Samples) -> Samples:
        power = float(np.mean(block**2))
        is_quiet = power < _QUIET_POWER
        if np.mean(self._reference**2) < _PLAYED_POWER or (is_quiet and self._delay is None):
            return block
        if power < _SILENT_POWER:
            self._learn(block)
            return block
        if not is_quiet and (self._blocks % _SEARCH_EVERY == 0 or self._delay is None):
            self._search()
        if self._delay is None:
            return block
        left = block - self._echo_of(block)
        if np.sum(left**2) < _EXPLAINED * np.sum(block**2):
            left *= _ATTENUATION
        return left

    def _echo_of(self, block: Samples) -> Samples:
        """Estimate the echo in a block, and learn from it."""
        if self._learned < _SETTLING:
            rows = self._learn(block)
            return np.asarray(rows @ self._taps(), np.float32)
        # Fitted to this block too, the filter would explain a caller in it as well.
        taps = self._taps()
        return np.asarray(self._learn(block) @ taps, np.float32)

    def _taps(self) -> Samples:
        """The filter that explains best what was heard lately."""
        ridge = _REGULAR * np.trace(self._gram) / _TAPS + 1e-9
        return np.asarray(
            np.linalg.solve(self._gram + np.float32(ridge) * _IDENTITY, self._cross), np.float32
        )

    def _learn(self, block: Samples) -> NDArray[Any]:
        """Add a block to the sums of the least squares; return its rows."""
        rows = self._rows(len(block))
        self._gram = _FORGET * self._gram + rows.T @ rows
        self._cross = np.asarray(_FORGET * self._cross + rows.T @ block, np.float32)
        self._learned += 1
        return rows

    def _search(self) -> None:
        """Look for the delay at which what was heard resembles most what was played."""
        # In double precision: single has errors as large as the peaks of quiet passages.
        heard, played = _whiten(self._heard), _whiten(self._reference)
        spectrum = np.fft.rfft(played, _TRANSFORM) * np.conj(np.fft.rfft(heard, _TRANSFORM))
        products = np.fft.irfft(spectrum, _TRANSFORM)[: len(played) - len(heard) + 1]
        sums = np.concatenate([[0.0], np.cumsum(played**2)])
        energies = (sums[len(heard) :] - sums[: -len(heard)])[: len(products)]
        scale = np.sqrt(energies * np.sum(heard**2)) + 1e-9
        resemblance = np.abs(products) / scale
        latest = len(self._reference) - len(self._heard) - _BEFORE  # where the delay is 0
        earliest = latest - _MAX_DELAY
        start = earliest + int(np.argmax(resemblance[earliest:]))
        peak = float(resemblance[start])
        if self._delay is not None:
            here = latest - self._delay
            known = float(np.max(resemblance[max(0, here - _BEFORE) : here + _BEFORE]))
            self._peak = max(_FADING * self._peak, known)
            if peak <= _BETTER * known:
                return
            self._peak *= _DOUBTED
        if peak > max(_MIN_PEAK, _BETTER * self._peak):
            self._delay, self._peak = max(0, latest - start), peak
            self._refit()

    def _refit(self) -> None:
        """Begin the least squares anew at another delay, with what was heard lately."""
        self._learned = 0
        rows, heard = self._rows(_WINDOW), self._heard
        weights = np.float32(_FORGET) ** (np.arange(_WINDOW, dtype=np.float32)[::-1] // _BLOCK + 1)
        self._gram = (rows * weights[:, None]).T @ rows
        self._cross = rows.T @ (weights * heard)
        last = rows[-_BLOCK:]  # of the block that is added next
        self._gram -= _FORGET * last.T @ last
        self._cross -= _FORGET * last.T @ heard[-_BLOCK:]
        self._gram /= _FORGET
        self._cross /= _FORGET

    def _rows(self, count: int) -> NDArray[Any]:
        """What was played before each of the last ``count`` samples, newest first in each row."""
        assert self._delay is not None
        end = len(self._reference) - self._delay
        first = end - count - _TAPS + 1
        windows = np.lib.stride_tricks.sliding_window_view(self._reference[first:end], _TAPS)
        return np.ascontiguousarray(windows[:, ::-1])


class _Stream:
    """Samples at 8 kHz that wait."""

    def __init__(self) -> None:
        self._waiting = bytearray()  # s16le
        self._state: Any = None  # of the conversion
        self._rate = ECHO_RATE

    def push(self, pcm: bytes, sample_rate: int) -> None:
        if sample_rate != self._rate:
            self._rate, self._state = sample_rate, None
        if sample_rate != ECHO_RATE:
            pcm, self._state = audioop.ratecv(pcm, 2, 1, sample_rate, ECHO_RATE, self._state)
        self._waiting += pcm

    def take(self, samples: int) -> Samples | None:
        if len(self._waiting) < 2 * samples:
            return None
        taken = np.frombuffer(bytes(self._waiting[: 2 * samples]), "<i2").astype(np.float32) / np.float32(
            32_768
        )
        del self._waiting[: 2 * samples]
        return taken

    def drop_older_than(self, samples: int) -> None:
        """Forget what waits longer: the other signal has paused."""
        del self._waiting[: max(0, len(self._waiting) - 2 * samples)]


def _whiten(samples: Samples) -> NDArray[np.float64]:
    """Even out the spectrum of speech, whose low tones resemble each other at any delay."""
    return np.diff(samples.astype(np.float64), prepend=samples[0])
