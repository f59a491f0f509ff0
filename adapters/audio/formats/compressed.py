"""MP3, AAC in ADTS (``aac``) or in fragments of MP4 (``m4a``), and FLAC.

Source: FFmpeg 8 muxers mp3, adts, mp4 and flac; ISO/IEC 11172-3 and 13818-3 (bit rates of Layer III);
RFC 9639 (FLAC).
"""

from typing import Final

from ..format_kind import AudioLayout, BitRates, EncoderSettings, FormatKind
from ..format_kit.ffmpeg_encoder import FfmpegEncoder, FfmpegSettings


def _mp3_bit_rates(sample_rate: int) -> tuple[int, int]:
    # Limits of MPEG-2.5, MPEG-2 and MPEG-1.
    if sample_rate < 16_000:
        return 8_000, 64_000
    return (8_000, 160_000) if sample_rate < 32_000 else (32_000, 320_000)


def _open_mp3(settings: EncoderSettings) -> FfmpegEncoder:
    # A stream cannot seek back to fill in the frame with the length.
    has_length = settings.layout is AudioLayout.FILE
    return FfmpegEncoder(
        FfmpegSettings(
            "libmp3lame",
            "mp3",
            settings.sample_rate,
            {"compression_level": "7"},
            {"write_xing": str(int(has_length)), "id3v2_version": "0"},
            settings.bits_per_second,
            has_length,
        )
    )


def _aac_bit_rates(sample_rate: int) -> tuple[int, int]:
    return 8_000, 6 * sample_rate  # 6,144 bits in a frame of 1,024 samples


def _open_adts(settings: EncoderSettings) -> FfmpegEncoder:
    return FfmpegEncoder(
        FfmpegSettings("aac", "adts", settings.sample_rate, bit_rate=settings.bits_per_second)
    )


def _open_mp4(settings: EncoderSettings) -> FfmpegEncoder:
    # A fragment for each frame; the header waits for the first one, to have the encoder's delay.
    options = {"movflags": "delay_moov+default_base_moof+frag_every_frame"}
    return FfmpegEncoder(
        FfmpegSettings("aac", "mp4", settings.sample_rate, {}, options, settings.bits_per_second)
    )


def _open_flac(settings: EncoderSettings) -> FfmpegEncoder:
    # Frames of 20 ms, and no 8 KiB of padding for tags before the first one.
    return FfmpegEncoder(
        FfmpegSettings(
            "flac",
            "flac",
            settings.sample_rate,
            {"frame_size": str(settings.sample_rate // 50)},
            {"metadata_header_padding": "0"},
            has_seekable_output=settings.layout is AudioLayout.FILE,
        )
    )


MP3: Final = FormatKind(
    "mp3", "audio/mpeg", _open_mp3, bit_rates=BitRates(_mp3_bit_rates, 128_000), is_cpu_intensive=True
)
_AAC_BIT_RATES: Final = BitRates(_aac_bit_rates, 64_000)
AAC: Final = FormatKind("aac", "audio/aac", _open_adts, bit_rates=_AAC_BIT_RATES, is_cpu_intensive=True)
M4A: Final = FormatKind("m4a", "audio/mp4", _open_mp4, bit_rates=_AAC_BIT_RATES, is_cpu_intensive=True)
FLAC: Final = FormatKind("flac", "audio/flac", _open_flac, is_cpu_intensive=True)
