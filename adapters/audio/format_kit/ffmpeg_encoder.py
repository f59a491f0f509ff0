"""Encoder of the formats of FFmpeg: a codec whose container is muxed into memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import av

from ....tts_engine.chunk import SAMPLE_RATE
from ..resample import resampler_to
from .ffmpeg_audio import mono_frame


@dataclass(frozen=True, slots=True)
class FfmpegSettings:
    """FFmpeg's names and options for a format."""

    codec: str  # encoder name
    container: str  # muxer name
    sample_rate: int  # Hz of the codec's input
    codec_options: Mapping[str, str] = field(default_factory=dict)
    container_options: Mapping[str, str] = field(default_factory=dict)
    bit_rate: int | None = None  # bits/s; None: the codec is lossless
    has_seekable_output: bool = False  # the container completes its header at the end


class FfmpegEncoder:
    """Encodes one utterance; see ``Encoder``."""

    def __init__(self, settings: FfmpegSettings) -> None:
        self._output: _MemoryFile | _SeekableMemoryFile
        self._output = _SeekableMemoryFile() if settings.has_seekable_output else _MemoryFile()
        self._container = av.open(
            self._output,
            "w",
            format=settings.container,
            container_options={**settings.container_options, "flush_packets": "1"},
        )
        stream = self._container.add_stream(
            settings.codec, rate=settings.sample_rate, layout="mono", options=dict(settings.codec_options)
        )
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        if settings.bit_rate is not None:
            self._stream.bit_rate = settings.bit_rate
        # The codec context resamples 24 kHz input itself; only 8 kHz goes through the telephone filter.
        self._input_rate = settings.sample_rate if settings.sample_rate == 8_000 else SAMPLE_RATE
        self._resampler = resampler_to(self._input_rate)
        self._samples = 0

    def push(self, pcm: bytes) -> bytes:
        """As ``Encoder.push``."""
        self._encode(self._resampler.push(pcm))
        return self._output.take()

    def finish(self) -> bytes:
        """As ``Encoder.finish``."""
        self._encode(self._resampler.drain())
        self._container.mux(self._stream.encode(None))
        self._container.close()
        self._output.end()
        return self._output.take()

    def close(self) -> None:
        """As ``Encoder.close``."""
        self._container.close()

    def _encode(self, pcm: bytes) -> None:
        if not pcm:
            return
        frame = mono_frame(pcm, self._input_rate, self._samples)
        self._samples += frame.samples
        self._container.mux(self._stream.encode(frame))


class _MemoryFile:
    """Write-only file object of a container; ``take`` returns the bytes written since its last call."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def end(self) -> None:
        """Note that the container is closed."""

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class _SeekableMemoryFile:
    """File object of a container that goes back to complete its header; ``take`` has it after ``end``."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._position = 0
        self._ended = False

    def write(self, data: bytes) -> int:
        self._data[self._position : self._position + len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to ``offset`` from the start (0), the position (1) or the end (2), as ``io`` counts."""
        self._position = offset + (0, self._position, len(self._data))[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def end(self) -> None:
        """Note that the container is closed."""
        self._ended = True

    def take(self) -> bytes:
        return bytes(self._data) if self._ended else b""
