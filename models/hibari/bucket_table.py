"""A table of strings that is open at once: an entry is decoded, with fifty others, when it is looked up."""

import json
import zlib
from collections.abc import Iterable
from typing import Any

_ENTRIES_PER_BUCKET = 50
_BUCKET_END = b"\n\n"


def encode_table(entries: Iterable[tuple[str, str]]) -> bytes:
    """Encode keys and values, none of which may be empty or contain a line break.

    A bucket holds the entries whose keys have the same checksum, a line for each key and each value. An empty
    line ends a bucket.
    """
    listed = list(entries)
    buckets: list[list[str]] = [[] for _ in range(len(listed) // _ENTRIES_PER_BUCKET + 1)]
    for entry in listed:
        assert all(entry) and "\n" not in "".join(entry)
        buckets[_bucket_of(entry[0], len(buckets))] += entry
    return _BUCKET_END.join("\n".join(bucket).encode() for bucket in buckets)


class BucketTable:
    """The entries of ``encode_table``. Threads may share it.

    Args:
        encoded: its result.
    """

    def __init__(self, encoded: bytes) -> None:
        self._buckets: list[bytes | None] = [*encoded.split(_BUCKET_END)]
        self._entries: dict[str, Any] = {}  # of the buckets that are None

    def get(self, key: str) -> Any:
        """The value of a key, parsed if it is a JSON object; None if it has none."""
        value = self._entries.get(key)
        if value is None:
            value = self._read(key)
        if isinstance(value, str) and value.startswith("{"):
            value = self._entries[key] = json.loads(value)
        return value

    def _read(self, key: str) -> str | None:
        index = _bucket_of(key, len(self._buckets))
        bucket = self._buckets[index]
        if bucket is not None:
            lines = bucket.decode().split("\n")
            for name, value in zip(lines[::2], lines[1::2], strict=False):
                self._entries.setdefault(name, value)
            self._buckets[index] = None
        return self._entries.get(key)


def _bucket_of(key: str, buckets: int) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % buckets
