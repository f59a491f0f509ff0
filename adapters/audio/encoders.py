"""Streaming encoders of speech, of any format of ``AUDIO_FORMATS``.

Each utterance has one encoder, which works in memory through PyAV, without a process or a file. Every encoder
is configured to withhold as little audio as its format allows: the first decodable byte comes after 100 ms of
speech with MP3 and AAC (180 ms in MP4), 40 ms with Opus (60 ms in WebM) and 20 ms with the others. Frames of
MP3 and AAC last longer at low rates: below 22 kHz, and for MP3 also at 32 kHz, the encoders withhold 140 to
300 ms. Decoders of MP3 and AAC streams play 46 and 43 ms of silence first; MP4 says where speech begins, and
the other formats keep the exact length.

A stream's header cannot state its length: WAV has the largest one, FLAC none. ``AudioLayout.FILE`` encodes a
complete file instead. The caller chooses the encoding thread. A new format is a ``FormatKind`` in a file of
``formats``, listed here.
"""

from dataclasses import dataclass
from typing import Final, Literal

from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import BadRequest
from .format_kind import AudioLayout, Encoder, EncoderSettings, FormatKind
from .formats.compressed import AAC, FLAC, M4A, MP3
from .formats.g711 import ALAW_SOUND, ULAW_SOUND
from .formats.opus.sound import OGG_OPUS, WEBM
from .formats.wav import PCM, WAV

AUDIO_FORMATS: Final = (PCM, WAV, MP3, OGG_OPUS, WEBM, AAC, M4A, FLAC, ULAW_SOUND, ALAW_SOUND)
Codec = Literal["pcm", "wav", "mp3", "opus", "webm", "aac", "m4a", "flac", "ulaw", "alaw"]  # their names
SAMPLE_RATES: Final = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)  # Hz
_BY_NAME: Final = {kind.name: kind for kind in AUDIO_FORMATS}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Codec, sample rate and bit rate of encoded speech; raises BadRequest for an unsupported combination."""

    codec: Codec
    sample_rate: int = SAMPLE_RATE  # Hz; of Opus only the header has it, and decoders play it at 48 kHz
    bit_rate: int | None = None  # bits/s of MP3, Opus and AAC; None: a rate for speech; others ignore it
    layout: AudioLayout = AudioLayout.STREAM

    def __post_init__(self) -> None:
        if self.codec not in _BY_NAME:
            raise BadRequest(f"got format {self.codec!r}; allowed are {', '.join(_BY_NAME)}")
        if self.sample_rate not in SAMPLE_RATES:
            allowed = ", ".join(map(str, SAMPLE_RATES))
            raise BadRequest(f"got a sample rate of {self.sample_rate} Hz; allowed are {allowed}")
        if self.bit_rate is None or self.kind.bit_rates is None:
            return
        min_bit_rate, max_bit_rate = self.kind.bit_rates.limits(self.sample_rate)
        if not min_bit_rate <= self.bit_rate <= max_bit_rate:
            raise BadRequest(
                f"got a bit rate of {self.bit_rate} for {self.codec} at {self.sample_rate} Hz; "
                f"allowed are {min_bit_rate} to {max_bit_rate}"
            )

    @property
    def kind(self) -> FormatKind:
        """The format's record."""
        return _BY_NAME[self.codec]

    @property
    def is_cpu_intensive(self) -> bool:
        """Whether encoding a second of speech takes milliseconds, so that the caller should use a thread."""
        return self.kind.is_cpu_intensive

    @property
    def bits_per_second(self) -> int:
        """The requested bit rate or the default for speech; of lossless formats that of their samples."""
        if self.kind.bit_rates is None:
            return 8 * self.kind.sample_bytes * self.sample_rate
        if self.bit_rate is not None:
            return self.bit_rate
        _, max_bit_rate = self.kind.bit_rates.limits(self.sample_rate)
        return min(self.kind.bit_rates.of_speech, max_bit_rate)

    @property
    def bytes_per_second(self) -> int:
        """Approximate size of a second of speech; ignores the savings of FLAC and of silence."""
        return self.bits_per_second // 8

    @property
    def content_type(self) -> str:
        """Media type of the encoder's output."""
        return self.kind.media_type.format(rate=self.sample_rate)


def open_encoder(audio_format: AudioFormat) -> Encoder:
    """Return a new encoder of ``audio_format``."""
    return audio_format.kind.open(
        EncoderSettings(audio_format.sample_rate, audio_format.bits_per_second, audio_format.layout)
    )
