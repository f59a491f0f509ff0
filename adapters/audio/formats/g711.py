"""G.711, µ-law and A-law: in calls, and as sound without a header.

Source: ITU-T G.711; RFC 4856 (audio/PCMU, audio/PCMA).
"""

import audioop
from typing import Final

from ..format_kind import EncoderSettings, FormatKind, LineCodec
from ..format_kit.sample_encoder import SampleEncoder
from ..pcm import SAMPLE_BYTES, require_whole_samples


def ulaw_encode(pcm: bytes) -> bytes:
    """Encode s16le as G.711 µ-law, one byte a sample; raises ValueError for an odd number of bytes."""
    return audioop.lin2ulaw(require_whole_samples(pcm), SAMPLE_BYTES)


def ulaw_decode(payload: bytes) -> bytes:
    """Decode G.711 µ-law to s16le."""
    return audioop.ulaw2lin(payload, SAMPLE_BYTES)


def alaw_encode(pcm: bytes) -> bytes:
    """Encode s16le as G.711 A-law, one byte a sample; raises ValueError for an odd number of bytes."""
    return audioop.lin2alaw(require_whole_samples(pcm), SAMPLE_BYTES)


def alaw_decode(payload: bytes) -> bytes:
    """Decode G.711 A-law to s16le."""
    return audioop.alaw2lin(payload, SAMPLE_BYTES)


def _open_ulaw(settings: EncoderSettings) -> SampleEncoder:
    return SampleEncoder(settings.sample_rate, ulaw_encode)


def _open_alaw(settings: EncoderSettings) -> SampleEncoder:
    return SampleEncoder(settings.sample_rate, alaw_encode)


ULAW: Final = LineCodec("ulaw", 1, ulaw_encode, ulaw_decode)
ALAW: Final = LineCodec("alaw", 1, alaw_encode, alaw_decode)
ULAW_SOUND: Final = FormatKind("ulaw", "audio/PCMU;rate={rate}", _open_ulaw, sample_bytes=1)
ALAW_SOUND: Final = FormatKind("alaw", "audio/PCMA;rate={rate}", _open_alaw, sample_bytes=1)
