"""Decodes an untrusted sound file to one channel of floats. Run as a process of its own by ``recording``.

    python recording_decoder.py LIMITS < file > answer      one line of JSON, then the samples as float32

On Linux the process has limits of memory and CPU time, because libav's parsers trust their input: a QuickTime
file of half a megabyte with a compressed header allocates half a gigabyte. Only the containers and codecs
listed here are opened. Playlists, which name other files, are not among them, and video is never decoded.

It imports nothing of this package, so that the process starts fast.

Source: FFmpeg n8 libavformat/options_table.h (format_whitelist, codec_whitelist, protocol_whitelist).
"""

import io
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from numpy.typing import NDArray

Float = NDArray[np.float32]

CONTAINERS = "WAV, AIFF, FLAC, MP3, AAC, Ogg, M4A, MP4 or WebM"
_FORMATS = "wav,w64,aiff,flac,mp3,aac,ogg,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm"
_CODECS = (
    "pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_u8,pcm_s8,"
    "pcm_alaw,pcm_mulaw,adpcm_ms,adpcm_ima_wav,flac,alac,mp3float,mp3,aac,opus,vorbis"
)
# "none" is not a protocol, so libav opens no file or URL; the file is passed in as bytes.
_OPTIONS = {
    "format_whitelist": _FORMATS,
    "codec_whitelist": _CODECS,
    "protocol_whitelist": "none",
    # Bytes of packets that libav reads to learn the codec's parameters; tags and pictures do not count.
    "probesize": str(2**18),
}
# Tags that are not Unicode are no fault; PyAV 19 and later does not decode them when it opens a file.
_METADATA: dict[str, Any] = (
    {} if int(av.__version__.partition(".")[0]) >= 19 else {"metadata_errors": "replace"}
)
# Packets in a row that hold no sound. Every decoder gives sound after a few; a file of empty packets may have
# a million of them, and each takes as long as a full one.
_MAX_SILENT_PACKETS = 1_000
# Lossy decoders overshoot full scale by a factor of 2 at most; beyond 4 the samples are not scaled to [-1,
# 1].
_MAX_PEAK = 4.0

_MAX_MEMORY_BYTES = 512 * 2**20  # on top of the interpreter; 5 minutes at 48 kHz in stereo take 400 MB
_MAX_CPU_S = 5  # CPU time; 5 minutes of speech take 1 s, and the imports 0.3 s


class RecordingRefused(ValueError):
    """The file cannot be used; the message says what was got and what is allowed."""


# Of the loudest channel's power; the average with a silent channel has a quarter of it.
_MIN_AVERAGED_POWER: Final = 0.1
_MAX_FAINTER: Final = 0.03  # of that power, below which a channel of surround sound is left out


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """What is accepted as a recording of a voice."""

    min_duration_s: float = 3.0
    max_duration_s: float = 30.0  # that is used
    max_excerpted_s: float = 300.0  # of a longer one, of which an excerpt is used; 0: it is refused
    min_sample_rate: int = 8_000  # Hz
    max_sample_rate: int = 192_000  # Hz
    max_channels: int = 6
    max_bytes: int = 10 * 2**20  # of the file; the limit of the speech APIs

    @property
    def max_decoded_s(self) -> float:
        """Longest file that is read, in seconds."""
        return max(self.max_duration_s, self.max_excerpted_s)

    def as_json(self) -> str:
        """The limits as one line, which ``RecordingLimits(**json.loads(line))`` reads."""
        return json.dumps(asdict(self))


def decode(data: bytes, limits: RecordingLimits) -> tuple[Float, int]:
    """Decode a file: samples (N,) in [-1, 1] and their rate in Hz. Raises RecordingRefused.

    Channels are averaged, unless they cancel each other: then the loudest one counts. Decoding stops at
    ``max_decoded_s``, however long the file is.
    """
    return decode_file(io.BytesIO(data), limits)


def decode_file(file: BinaryIO, limits: RecordingLimits) -> tuple[Float, int]:
    """Decode a seekable file, as ``decode`` does."""
    try:
        with av.open(file, mode="r", options=_OPTIONS, **_METADATA) as container:
            stream = _audio_stream(container)
            _check_stream(stream.rate, stream.channels, limits)
            samples = _decode_stream(container, stream, limits)
    except MemoryError as error:  # before FFmpegError: PyAV's out-of-memory error is both
        raise RecordingRefused("the recording takes more memory to decode than is allowed") from error
    except av.error.FFmpegError as error:
        raise RecordingRefused(
            f"the file is no recording that can be read; {CONTAINERS} is allowed"
        ) from error
    return _check_scale(samples, limits, stream.rate), stream.rate


def _audio_stream(container: InputContainer) -> AudioStream:
    if not container.streams.audio:
        raise RecordingRefused(
            f"the file ({container.format.name}) holds no sound; {CONTAINERS} with speech is allowed"
        )
    stream = container.streams.audio[0]
    # libav applies its whitelist while it probes the file, but not when the stream's codec is opened.
    if stream.codec_context is None or stream.codec_context.name not in _CODECS.split(","):
        raise RecordingRefused(
            f"the file ({container.format.name}) holds sound in a codec that is not read here"
        )
    return stream


def _check_stream(sample_rate: int, channels: int, limits: RecordingLimits) -> None:
    if not (sample_rate and channels):  # libav found no frame with sound in the bytes that it may look at
        raise RecordingRefused(f"the file begins without sound; {CONTAINERS} with speech is allowed")
    if not limits.min_sample_rate <= sample_rate <= limits.max_sample_rate:
        raise RecordingRefused(
            f"the recording has {sample_rate:,} Hz; "
            f"{limits.min_sample_rate:,} to {limits.max_sample_rate:,} Hz are allowed"
        )
    if not 1 <= channels <= limits.max_channels:
        raise RecordingRefused(
            f"the recording has {channels} channels; 1 to {limits.max_channels} are allowed"
        )


def _decode_stream(container: InputContainer, stream: AudioStream, limits: RecordingLimits) -> Float:
    stream_format = stream.rate, stream.channels
    max_samples = math.floor(limits.max_decoded_s * stream.rate)
    blocks: list[Float] = []
    count = 0
    try:
        for frame in _frames(container, stream):
            if (frame.sample_rate, frame.layout.nb_channels) != stream_format:
                raise RecordingRefused(
                    "the recording changes its rate or its channels midway; one of each is allowed"
                )
            blocks.append(_channels(frame))
            count += frame.samples
            if count > max_samples:
                raise RecordingRefused(
                    f"the recording is longer than {limits.max_decoded_s:g} s, which is the limit"
                )
    except av.error.FFmpegError as error:
        raise RecordingRefused(
            f"the recording is damaged {count / stream.rate:.1f} s from its beginning"
        ) from error
    return _mono(np.concatenate(blocks, axis=1)) if blocks else np.zeros(0, np.float32)


def _frames(container: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
    """The frames of a stream. Raises RecordingRefused where too many packets hold none."""
    silent_packets = 0
    for packet in container.demux(stream):
        silent_packets += 1
        for frame in packet.decode():
            silent_packets = 0
            yield frame
        if silent_packets > _MAX_SILENT_PACKETS:
            raise RecordingRefused(
                f"the file holds no sound in {silent_packets:,} packets; {CONTAINERS} with speech is allowed"
            )


def _channels(frame: AudioFrame) -> Float:
    """The samples of a frame: (channels, N)."""
    block = frame.to_ndarray()
    if not frame.format.is_planar:
        block = block.reshape(-1, frame.layout.nb_channels).T
    return _as_floats(block)


def _mono(channels: Float) -> Float:
    """The average of the channels, or the loudest one if they have opposite phases. channels: (C, N).

    Of more than two, those that are nearly silent are left out.
    """
    powers = np.mean(np.square(channels), axis=1)
    if len(channels) > 2:
        is_used = powers > _MAX_FAINTER * powers.max()
        channels, powers = channels[is_used], powers[is_used]
        if not len(channels):
            return np.zeros(channels.shape[1], np.float32)
    average = np.asarray(channels.mean(axis=0, dtype=np.float32))
    if np.mean(np.square(average)) < _MIN_AVERAGED_POWER * powers.max(initial=0.0):
        return np.asarray(channels[powers.argmax()])
    return average


def _as_floats(block: NDArray[Any]) -> Float:
    if block.dtype.kind == "f":
        return block.astype(np.float32)
    full_scale = 2.0 ** (8 * block.dtype.itemsize - 1)
    middle = full_scale if block.dtype.kind == "u" else 0.0
    return ((block - middle) / full_scale).astype(np.float32)


def _check_scale(samples: Float, limits: RecordingLimits, sample_rate: int) -> Float:
    seconds = len(samples) / sample_rate
    if seconds < limits.min_duration_s:
        raise RecordingRefused(
            f"the recording is {seconds:.1f} s long; at least {limits.min_duration_s:g} s are needed"
        )
    if not np.isfinite(samples).all():
        raise RecordingRefused("the recording holds NaN or infinite samples; numbers in [-1, 1] are allowed")
    peak = float(np.abs(samples).max())
    if peak > _MAX_PEAK:
        raise RecordingRefused(f"the recording reaches {peak:.4g}; numbers in [-1, 1] are allowed")
    return samples / np.float32(peak) if peak > 1 else samples


def answer_bytes(data: bytes, limits: RecordingLimits) -> bytes:
    """The process's output: a sample rate and the samples, or the reason for a refusal."""
    answer: dict[str, int | str] = {}
    samples = b""
    try:
        decoded, sample_rate = decode(data, limits)
        answer, samples = {"sample_rate": sample_rate}, decoded.tobytes()
    except RecordingRefused as refusal:
        answer = {"refused": str(refusal)}
    return json.dumps(answer).encode() + b"\n" + samples


def _limit_resources() -> None:
    """Bound the memory and the CPU time of the rest of the process."""
    if sys.platform != "linux":
        return
    import resource

    used_bytes = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + _MAX_MEMORY_BYTES, used_bytes + _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))


def _main() -> None:
    limits = RecordingLimits(**json.loads(sys.argv[1]))
    data = sys.stdin.buffer.read(limits.max_bytes)
    _limit_resources()
    sys.stdout.buffer.write(answer_bytes(data, limits))


if __name__ == "__main__":
    _main()
