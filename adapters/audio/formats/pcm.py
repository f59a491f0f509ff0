"""Raw s16le without a header."""

from typing import Final

from ..format_kind import EncoderSettings, FormatKind
from ..format_kit.sample_encoder import SampleEncoder
from ..pcm import require_whole_samples


def _open(settings: EncoderSettings) -> SampleEncoder:
    return SampleEncoder(settings.sample_rate, require_whole_samples)


PCM: Final = FormatKind("pcm", "audio/pcm", _open)
