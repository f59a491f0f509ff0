"""Resampler of the frames of a WebRTC track, whose format may change with every packet."""

from collections.abc import Iterator

from av import AudioFrame, AudioResampler

from ..audio.input_resampler import DETECTOR_SAMPLE_RATE


class FrameResampler:
    """Converts PyAV audio frames of any rate and layout to s16le mono at 16 kHz.

    A browser may change its codec at any packet, and one ``AudioResampler`` accepts one input format only.
    """

    def __init__(self) -> None:
        self._format: tuple[int, str] | None = None  # rate and layout of the last frame
        self._resampler: AudioResampler

    def push(self, frame: AudioFrame) -> Iterator[bytes]:
        """Yield the converted audio that is ready."""
        frame_format = (frame.sample_rate, frame.layout.name)
        if frame_format != self._format:
            self._format = frame_format
            self._resampler = AudioResampler(format="s16", layout="mono", rate=DETECTOR_SAMPLE_RATE)
        for resampled in self._resampler.resample(frame):
            yield bytes(resampled.planes[0])[: 2 * resampled.samples]  # the plane is padded
