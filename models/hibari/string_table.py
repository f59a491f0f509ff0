"""A table of strings in one block of bytes: open at once, and looking up entries takes no more memory.

    slots   | 0 | 6 | 0 | 1 | ...     where an entry begins, counted from 1; 0: free. A power of two of them
    entries | key \\n value \\n key \\n value \\n ...

An entry is in the slot of its key's checksum, or in the next one that was free.
"""

import json
import zlib
from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

import numpy as np

_SLOTS_PER_ENTRY: Final = 1.5  # at least; with more than two thirds of the slots taken, searches take longer
_COUNT: Final = Struct("<I")  # of the slots
_SLOT_BYTES: Final = 4
_MAX_RECENT: Final = 4_096  # keys; 1 MB of words, 2 MB of JSON objects


def encode_table(entries: Iterable[tuple[str, str]]) -> bytes:
    """Encode keys and values, none of which may be empty or contain a line break.

    Of equal keys the first one counts.
    """
    listed = [(_encode(key), _encode(value)) for key, value in dict(reversed([*entries])).items()]
    assert all(part and b"\n" not in part for entry in listed for part in entry)
    count = 1 << int(_SLOTS_PER_ENTRY * len(listed)).bit_length()
    slots = np.zeros(count, "<u4")
    text = bytearray()
    for key, value in listed:
        slot = zlib.crc32(key) % count
        while slots[slot]:
            slot = (slot + 1) % count
        slots[slot] = len(text) + 1
        text += key + b"\n" + value + b"\n"
    return _COUNT.pack(count) + slots.tobytes() + text


class StringTable:
    """The entries of ``encode_table``. Threads may share it.

    Args:
        encoded: its result.
    """

    def __init__(self, encoded: bytes) -> None:
        (count,) = _COUNT.unpack_from(encoded)
        entries = _COUNT.size + _SLOT_BYTES * count
        self._slots = memoryview(encoded)[_COUNT.size : entries].cast("I")
        self._entries = encoded[entries:]
        self._recent: dict[str, Any] = {}  # values of the keys asked for lately

    def get(self, key: str) -> Any:
        """The value of a key, parsed if it is a JSON object; None if it has none."""
        recent = self._recent
        try:
            return recent[key]
        except KeyError:
            value = self._read(key)
        if len(recent) >= _MAX_RECENT:
            recent.clear()
        recent[key] = value
        return value

    def _read(self, key: str) -> Any:
        value = self._find(_encode(key) + b"\n")
        return json.loads(value) if value is not None and value.startswith("{") else value

    def _find(self, line: bytes) -> str | None:
        slots, entries = self._slots, self._entries
        slot = zlib.crc32(line[:-1]) % len(slots)
        while place := slots[slot]:
            if entries.startswith(line, place - 1):
                start = place - 1 + len(line)
                return entries[start : entries.index(b"\n", start)].decode("utf-8", "surrogatepass")
            slot = (slot + 1) % len(slots)
        return None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
