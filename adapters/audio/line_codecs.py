"""The codecs of calls. A new one is a file in ``formats`` with a ``LineCodec``, listed here."""

from typing import Final

from .formats.g711 import ALAW, ULAW
from .formats.g722 import G722
from .formats.l16 import L16
from .formats.opus.packets import OPUS
from .line_codec import LineCodec

LINE_CODECS: Final = (ULAW, ALAW, L16, G722, OPUS)
_BY_NAME: Final = {codec.name: codec for codec in LINE_CODECS}


def line_codec(name: str) -> LineCodec:
    """The codec of that name; raises KeyError if there is none."""
    return _BY_NAME[name]
