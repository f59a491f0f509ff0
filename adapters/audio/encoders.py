"""Streaming encoders of speech: MP3, Opus in Ogg or WebM, AAC in ADTS or MP4, FLAC, WAV, PCM and G.711.

Each utterance has one encoder, which works in memory through PyAV, without a process or a file. Every encoder
is configured to withhold as little audio as its format allows: the first decodable byte comes after 100 ms of
speech with MP3 and AAC (180 ms in MP4), 40 ms with Opus (60 ms in WebM) and 20 ms with the others. Frames of
MP3 and AAC last longer at low rates: below 22 kHz, and for MP3 also at 32 kHz, the encoders withhold 140 to
300 ms. Decoders of MP3 and AAC streams play 46 and 43 ms of silence first; MP4 says where speech begins, and
the other formats keep the exact length.

A stream's header cannot state its length: WAV has the largest one, FLAC none. ``AudioLayout.FILE`` encodes a
complete file instead. The WAV headers and the G.711 functions are in ``codecs``. The caller chooses the
encoding thread.

Source: FFmpeg 8 muxers mp3, ogg, webm, adts, mp4, flac; RFC 7845 (Ogg Opus); RFC 4856 (audio/PCMU,
audio/PCMA).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol, assert_never, get_args

import av
import numpy as np

from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import BadRequest
from .codecs import alaw_encode, require_whole_samples, ulaw_encode, wav_file, wav_stream_header
from .ogg_opus import with_input_rate
from .resample import BUILT_IN_RATES, resampler_to

Codec = Literal["pcm", "wav", "mp3", "opus", "webm", "aac", "m4a", "flac", "ulaw", "alaw"]
SAMPLE_RATES: Final = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)  # Hz


class AudioLayout(Enum):
    """When an encoder gives out its bytes, and what headers say about the length."""

    STREAM = "stream"  # as soon as they are encoded; the length is unknown
    FILE = "file"  # WAV, FLAC and MP3 all at the end, with the length in the header; others as in a stream


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Codec, sample rate and bit rate of encoded speech; raises BadRequest for an unsupported combination."""

    codec: Codec
    sample_rate: int = SAMPLE_RATE  # Hz; of Opus only the header has it, and decoders play it at 48 kHz
    bit_rate: int | None = None  # bits/s of MP3, Opus and AAC; None: a rate for speech; others ignore it
    layout: AudioLayout = AudioLayout.STREAM

    def __post_init__(self) -> None:
        if self.codec not in get_args(Codec):
            raise BadRequest(f"got format {self.codec!r}; allowed are {', '.join(get_args(Codec))}")
        if self.sample_rate not in SAMPLE_RATES:
            allowed = ", ".join(map(str, SAMPLE_RATES))
            raise BadRequest(f"got a sample rate of {self.sample_rate} Hz; allowed are {allowed}")
        min_bit_rate, max_bit_rate = self._bit_rates
        if self.bit_rate is not None and self.is_lossy and not min_bit_rate <= self.bit_rate <= max_bit_rate:
            raise BadRequest(
                f"got a bit rate of {self.bit_rate} for {self.codec} at {self.sample_rate} Hz; "
                f"allowed are {min_bit_rate} to {max_bit_rate}"
            )

    @property
    def is_lossy(self) -> bool:
        """Whether the codec is lossy, so that ``bit_rate`` sets its quality."""
        return self.codec in ("mp3", "opus", "webm", "aac", "m4a")

    @property
    def is_cpu_intensive(self) -> bool:
        """Whether encoding a second of speech takes milliseconds, so that the caller should use a thread."""
        return self.is_lossy or self.codec == "flac"

    @property
    def bits_per_second(self) -> int:
        """The requested bit rate, or the default for speech."""
        if self.bit_rate is not None:
            return self.bit_rate
        _, max_bit_rate = self._bit_rates
        return min({"mp3": 128_000, "aac": 64_000, "m4a": 64_000}.get(self.codec, 32_000), max_bit_rate)

    @property
    def bytes_per_second(self) -> int:
        """Approximate size of a second of speech; ignores the savings of FLAC and of silence."""
        match self.codec:
            case "pcm" | "wav" | "flac":
                return 2 * self.sample_rate
            case "ulaw" | "alaw":
                return self.sample_rate
            case "mp3" | "opus" | "webm" | "aac" | "m4a":
                return self.bits_per_second // 8
            case _:
                assert_never(self.codec)

    @property
    def content_type(self) -> str:
        """Media type of the encoder's output."""
        match self.codec:
            case "mp3":
                return "audio/mpeg"
            case "opus":
                return "audio/ogg"
            case "m4a":
                return "audio/mp4"
            case "ulaw":
                return f"audio/PCMU;rate={self.sample_rate}"
            case "alaw":
                return f"audio/PCMA;rate={self.sample_rate}"
            case "pcm" | "wav" | "aac" | "flac" | "webm":
                return f"audio/{self.codec}"
            case _:
                assert_never(self.codec)

    @property
    def _bit_rates(self) -> tuple[int, int]:
        # Limits of MPEG-2.5, MPEG-2 and MPEG-1 Layer III, of AAC and of libopus, bits/s.
        match self.codec:
            case "mp3" if self.sample_rate < 16_000:
                return 8_000, 64_000
            case "mp3" if self.sample_rate < 32_000:
                return 8_000, 160_000
            case "mp3":
                return 32_000, 320_000
            case "aac" | "m4a":
                return 8_000, 6 * self.sample_rate  # 6,144 bits in a frame of 1,024 samples
            case _:
                return 6_000, 256_000


class Encoder(Protocol):
    """Encoder of one utterance: 24 kHz s16le mono in, encoded bytes out. Not thread-safe."""

    content_type: str

    def push(self, pcm: bytes) -> bytes:
        """Encode ``pcm`` and return the bytes that are ready; raises ValueError for an odd length."""

    def finish(self) -> bytes:
        """Return the remaining bytes; ``push`` must not be called afterwards."""

    def close(self) -> None:
        """Free the memory of an encoder that is not finished. A second call, or one after it, does nothing.

        FFmpeg's objects refer to each other: 7 MB would stay until the garbage collector comes to them.
        """


def open_encoder(audio_format: AudioFormat) -> Encoder:
    """Return a new encoder of ``audio_format``."""
    match audio_format.codec:
        case "pcm":
            return _SampleEncoder(audio_format, require_whole_samples)
        case "wav" if audio_format.layout is AudioLayout.FILE:
            return _WavFileEncoder(audio_format)
        case "wav":
            return _SampleEncoder(
                audio_format, require_whole_samples, wav_stream_header(audio_format.sample_rate)
            )
        case "ulaw":
            return _SampleEncoder(audio_format, ulaw_encode)
        case "alaw":
            return _SampleEncoder(audio_format, alaw_encode)
        case "mp3" | "opus" | "webm" | "aac" | "m4a" | "flac":
            return _FfmpegEncoder(audio_format)
        case _:
            assert_never(audio_format.codec)


class _StreamingResampler(Protocol):
    def push(self, pcm: bytes) -> bytes: ...

    def drain(self) -> bytes: ...


class _SampleEncoder:
    """PCM, G.711 or a WAV stream: one code for each sample, after an optional header."""

    def __init__(
        self, audio_format: AudioFormat, encode: Callable[[bytes], bytes], header: bytes = b""
    ) -> None:
        self.content_type = audio_format.content_type
        self._resampler = _resampler_to(audio_format.sample_rate)
        self._encode = encode
        self._header = header

    def push(self, pcm: bytes) -> bytes:
        return self._with_header(self._resampler.push(pcm))

    def finish(self) -> bytes:
        return self._with_header(self._resampler.drain())

    def close(self) -> None:
        pass

    def _with_header(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + self._encode(pcm)


class _WavFileEncoder:
    """A WAV file with its length, which is known when the speech has ended."""

    def __init__(self, audio_format: AudioFormat) -> None:
        self.content_type = audio_format.content_type
        self._sample_rate = audio_format.sample_rate
        self._samples = _SampleEncoder(audio_format, require_whole_samples)
        self._parts: list[bytes] = []

    def push(self, pcm: bytes) -> bytes:
        self._parts.append(self._samples.push(pcm))
        return b""

    def finish(self) -> bytes:
        return wav_file(b"".join([*self._parts, self._samples.finish()]), self._sample_rate)

    def close(self) -> None:
        self._parts.clear()


@dataclass(frozen=True, slots=True)
class _FfmpegSettings:
    """FFmpeg's names and options for a format."""

    codec: str  # encoder name
    container: str  # muxer name
    sample_rate: int  # Hz of the codec's input
    codec_options: Mapping[str, str]
    container_options: Mapping[str, str]


def _ffmpeg_settings(audio_format: AudioFormat) -> _FfmpegSettings:
    rate = audio_format.sample_rate
    match audio_format.codec:
        case "mp3":
            # A stream cannot seek back to fill in the frame with the length.
            has_length = str(int(audio_format.layout is AudioLayout.FILE))
            return _FfmpegSettings(
                "libmp3lame",
                "mp3",
                rate,
                {"compression_level": "7"},
                {"write_xing": has_length, "id3v2_version": "0"},
            )
        case "opus":
            # Ogg pages of 20 ms (in microseconds); the default of 1 s delays the first byte.
            return _FfmpegSettings(
                "libopus", "ogg", SAMPLE_RATE, {"frame_duration": "20"}, {"page_duration": "20000"}
            )
        case "webm":
            return _FfmpegSettings(
                "libopus",
                "webm",
                SAMPLE_RATE,
                {"frame_duration": "20"},
                {"live": "1", "cluster_time_limit": "20"},
            )
        case "aac":
            return _FfmpegSettings("aac", "adts", rate, {}, {})
        case "m4a":
            # A fragment for each frame; the header waits for the first one, to have the encoder's delay.
            return _FfmpegSettings(
                "aac", "mp4", rate, {}, {"movflags": "delay_moov+default_base_moof+frag_every_frame"}
            )
        case _:
            # Frames of 20 ms, and no 8 KiB of padding for tags before the first one.
            options = {"frame_size": str(rate // 50)}
            return _FfmpegSettings("flac", "flac", rate, options, {"metadata_header_padding": "0"})


class _FfmpegEncoder:
    """An FFmpeg codec whose container is muxed into memory."""

    def __init__(self, audio_format: AudioFormat) -> None:
        settings = _ffmpeg_settings(audio_format)
        self.content_type = audio_format.content_type
        is_file = audio_format.layout is AudioLayout.FILE and audio_format.codec in ("flac", "mp3")
        self._output: _MemoryFile | _SeekableMemoryFile
        self._output = _SeekableMemoryFile() if is_file else _MemoryFile()
        # The encoder's input is 24 kHz for every Opus stream.
        self._opus_rate = audio_format.sample_rate if audio_format.codec == "opus" else None
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
        if audio_format.is_lossy:
            self._stream.bit_rate = audio_format.bits_per_second
        # The codec context resamples 24 kHz input itself; only 8 kHz goes through the telephone filter.
        self._input_rate = settings.sample_rate if settings.sample_rate == 8_000 else SAMPLE_RATE
        self._resampler = resampler_to(self._input_rate)
        self._samples = 0

    def push(self, pcm: bytes) -> bytes:
        self._encode(self._resampler.push(pcm))
        return self._take()

    def finish(self) -> bytes:
        self._encode(self._resampler.drain())
        self._container.mux(self._stream.encode(None))
        self._container.close()
        self._output.end()
        return self._take()

    def close(self) -> None:
        self._container.close()

    def _take(self) -> bytes:
        data = self._output.take()
        if data and self._opus_rate is not None:
            data, self._opus_rate = with_input_rate(data, self._opus_rate), None
        return data

    def _encode(self, pcm: bytes) -> None:
        if not pcm:
            return
        frame = _frame(pcm, self._input_rate, self._samples)
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


class _FfmpegResampler:
    """Resamples 24 kHz to any rate with FFmpeg's swresample, which withholds at most 2 ms (soxr: 40 ms).

    The response is flat to 0.8 of the lower Nyquist frequency, down by 22 dB at 1.05 of it and by more than
    80 dB at 1.2.
    """

    def __init__(self, sample_rate: int) -> None:
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=sample_rate)
        self._samples = 0

    def push(self, pcm: bytes) -> bytes:
        if not require_whole_samples(pcm):
            return b""
        frame = _frame(pcm, SAMPLE_RATE, self._samples)
        self._samples += frame.samples
        return self._resampled(frame)

    def drain(self) -> bytes:
        return self._resampled(None) if self._samples else b""

    def _resampled(self, frame: av.AudioFrame | None) -> bytes:
        return b"".join(out.to_ndarray().tobytes() for out in self._resampler.resample(frame))


def _resampler_to(sample_rate: int) -> _StreamingResampler:
    return resampler_to(sample_rate) if sample_rate in BUILT_IN_RATES else _FfmpegResampler(sample_rate)


def _frame(pcm: bytes, sample_rate: int, pts: int) -> av.AudioFrame:
    samples = np.frombuffer(pcm, "<i2").reshape(1, -1)  # (1, samples): packed mono
    frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
    frame.sample_rate = sample_rate
    frame.pts = pts
    return frame
