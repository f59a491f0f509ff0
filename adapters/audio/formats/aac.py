"""AAC, in ADTS (``aac``) or in fragments of MP4 (``m4a``). Source: FFmpeg 8 muxers adts and mp4."""

from typing import Final

from ..format_kind import BitRates, EncoderSettings, FormatKind
from ..format_kit.ffmpeg_encoder import FfmpegEncoder, FfmpegSettings


def _bit_rates(sample_rate: int) -> tuple[int, int]:
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


_BIT_RATES: Final = BitRates(_bit_rates, 64_000)
AAC: Final = FormatKind("aac", "audio/aac", _open_adts, bit_rates=_BIT_RATES, is_cpu_intensive=True)
M4A: Final = FormatKind("m4a", "audio/mp4", _open_mp4, bit_rates=_BIT_RATES, is_cpu_intensive=True)
