"""Names of audio formats in requests, in upper or lower case."""

from typing import Annotated, Final

from pydantic import BeforeValidator

from ....adapters.audio.encoders import Codec


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


LOWER_CASE: Final = BeforeValidator(_lower)
UPPER_CASE: Final = BeforeValidator(_upper)
# Names that other servers have for a format; files of Opus are Ogg here.
_OTHER_NAMES: Final = {"ogg": "opus", "oga": "opus", "mpeg": "mp3"}


def _codec_name(value: object) -> object:
    name = _lower(value)
    return _OTHER_NAMES.get(name, name) if isinstance(name, str) else name


CodecName = Annotated[Codec, BeforeValidator(_codec_name)]
