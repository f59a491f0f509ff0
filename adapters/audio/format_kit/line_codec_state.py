"""Codecs of calls whose packets depend on those before: encoder and decoder of PyAV, one pair for a call."""

from typing import Any, Literal


class AvCodecState:
    """Encoder and decoder of one call. PyAV is imported by the first call that needs it.

    Args:
        encoder, decoder: their names in FFmpeg.
        rate: Hz of the audio.
        options: of the encoder.
    """

    def __init__(self, encoder: str, decoder: str, rate: int, options: dict[str, str]) -> None:
        from av import AudioFrame, AudioResampler, FFmpegError, Packet

        self._frame, self._packet, self._error = AudioFrame, Packet, FFmpegError
        self._rate = rate
        self._encoder = _open(encoder, "w")
        self._decoder = _open(decoder, "r")
        self._encoder.sample_rate = self._decoder.sample_rate = rate
        self._encoder.format, self._encoder.layout, self._decoder.layout = "s16", "mono", "mono"
        self._encoder.options = options
        self._resampler = AudioResampler(format="s16", layout="mono", rate=rate)
        self._pts = 0

    def encode(self, pcm: bytes) -> bytes:
        """Return the payload of 20 ms of s16le."""
        frame = self._frame(format="s16", layout="mono", samples=len(pcm) // 2)
        frame.planes[0].update(pcm)
        frame.sample_rate, frame.pts = self._rate, self._pts
        self._pts += len(pcm) // 2
        return b"".join(bytes(packet) for packet in self._encoder.encode(frame))

    def decode(self, payload: bytes) -> bytes:
        """Return s16le; b"" for a payload that cannot be decoded."""
        try:
            frames = [
                each for frame in self._decoder.decode(self._packet(payload)) for each in self._convert(frame)
            ]
        except self._error:
            return b""
        return b"".join(bytes(frame.planes[0])[: 2 * frame.samples] for frame in frames)

    def _convert(self, frame: Any) -> list[Any]:
        frame.pts = None
        converted: list[Any] = self._resampler.resample(frame)
        return converted


def _open(name: str, mode: Literal["r", "w"]) -> Any:
    from av import CodecContext

    return CodecContext.create(name, mode)
