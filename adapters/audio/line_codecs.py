"""The codecs of calls. A new one is a ``LineCodec`` in a file of ``formats``, listed here."""

from typing import Final

from .format_kind import LineCodec
from .formats.call_packets import G722, L16, OPUS
from .formats.g711 import ALAW, ULAW

LINE_CODECS: Final = (ULAW, ALAW, L16, G722, OPUS)
_BY_NAME: Final = {codec.name: codec for codec in LINE_CODECS}


def line_codec(name: str) -> LineCodec:
    """The codec of that name; raises KeyError if there is none."""
    return _BY_NAME[name]
