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
CodecName = Annotated[Codec, LOWER_CASE]
