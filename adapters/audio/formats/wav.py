"""16-bit samples: raw, and in WAV, a stream of unknown length or a file with its length."""

from typing import Final

from ..format_kind import AudioLayout, Encoder, EncoderSettings, FormatKind
from ..format_kit.sample_encoder import SampleEncoder
from ..pcm import require_whole_samples, wav_file, wav_stream_header


def _open_raw(settings: EncoderSettings) -> SampleEncoder:
    return SampleEncoder(settings.sample_rate, require_whole_samples)


class _WavFileEncoder:
    """A WAV file with its length, which is known when the speech has ended."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._samples = SampleEncoder(sample_rate, require_whole_samples)
        self._parts: list[bytes] = []

    def push(self, pcm: bytes) -> bytes:
        self._parts.append(self._samples.push(pcm))
        return b""

    def finish(self) -> bytes:
        return wav_file(b"".join([*self._parts, self._samples.finish()]), self._sample_rate)

    def close(self) -> None:
        self._parts.clear()


def _open_wav(settings: EncoderSettings) -> Encoder:
    if settings.layout is AudioLayout.FILE:
        return _WavFileEncoder(settings.sample_rate)
    header = wav_stream_header(settings.sample_rate)
    return SampleEncoder(settings.sample_rate, require_whole_samples, header)


PCM: Final = FormatKind("pcm", "audio/pcm", _open_raw)
WAV: Final = FormatKind("wav", "audio/wav", _open_wav)
