"""Encoder of formats that have one code for each sample, after an optional header."""

from collections.abc import Callable
from typing import Protocol

from ..resample import BUILT_IN_RATES, resampler_to


class _StreamingResampler(Protocol):
    def push(self, pcm: bytes) -> bytes: ...

    def drain(self) -> bytes: ...


class SampleEncoder:
    """Resamples speech and encodes its samples.

    encode: of s16le at ``sample_rate``; raises ValueError for an odd number of bytes.
    """

    def __init__(self, sample_rate: int, encode: Callable[[bytes], bytes], header: bytes = b"") -> None:
        self._resampler = _resampler_to(sample_rate)
        self._encode = encode
        self._header = header

    def push(self, pcm: bytes) -> bytes:
        """As ``Encoder.push``."""
        return self._with_header(self._resampler.push(pcm))

    def finish(self) -> bytes:
        """As ``Encoder.finish``."""
        return self._with_header(self._resampler.drain())

    def close(self) -> None:
        """Do nothing, because nothing is kept outside Python's memory."""

    def _with_header(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + self._encode(pcm)


def _resampler_to(sample_rate: int) -> _StreamingResampler:
    if sample_rate in BUILT_IN_RATES:
        return resampler_to(sample_rate)
    from .ffmpeg_audio import FfmpegResampler  # imports FFmpeg, which codecs of calls do not need

    return FfmpegResampler(sample_rate)
