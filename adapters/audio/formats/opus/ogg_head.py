"""The identification header of an Ogg Opus stream, with the input rate that was asked for.

FFmpeg writes the rate of the encoder's input, which is 24 kHz for every stream. Programs that decode to a
file choose the rate of the file by this field.

Source: RFC 3533 section 6 (pages and their checksum), RFC 7845 section 5.1 (identification header).
"""

from functools import cache
from struct import Struct
from typing import Final

HEAD_PAGE_BYTES: Final = 47  # the page header with one segment, and the identification header of mono
_PAGE_MARK: Final = b"OggS"
_HEAD_MARK: Final = b"OpusHead"
_CHECKSUM_AT: Final = 22
_HEAD_AT: Final = 28
_INPUT_RATE_AT: Final = _HEAD_AT + 12
_UINT32: Final = Struct("<I")
_POLYNOMIAL: Final = 0x04C11DB7


def with_input_rate(stream: bytes, sample_rate: int) -> bytes:
    """Return the beginning of an Ogg Opus stream with another input rate, in Hz, in its header.

    Raises ValueError if it does not begin with the whole page of the header.
    """
    if not (stream.startswith(_PAGE_MARK) and stream[_HEAD_AT:HEAD_PAGE_BYTES].startswith(_HEAD_MARK)):
        raise ValueError(f"got {stream[:HEAD_PAGE_BYTES]!r}; the page of an Opus header is needed")
    page = bytearray(stream[:HEAD_PAGE_BYTES])
    _UINT32.pack_into(page, _INPUT_RATE_AT, sample_rate)
    _UINT32.pack_into(page, _CHECKSUM_AT, 0)  # the checksum is taken over a page without it
    _UINT32.pack_into(page, _CHECKSUM_AT, page_checksum(page))
    return bytes(page) + stream[HEAD_PAGE_BYTES:]


def page_checksum(page: bytes | bytearray) -> int:
    """Return the checksum of a page whose checksum field is 0."""
    checksum = 0
    for byte in page:
        checksum = ((checksum << 8) & 0xFFFFFFFF) ^ _checksum_table()[(checksum >> 24) ^ byte]
    return checksum


@cache
def _checksum_table() -> tuple[int, ...]:
    return tuple(_byte_checksum(byte) for byte in range(256))


def _byte_checksum(byte: int) -> int:
    checksum = byte << 24
    for _ in range(8):
        checksum = (checksum << 1) ^ (_POLYNOMIAL if checksum & 0x80000000 else 0)
    return checksum & 0xFFFFFFFF
