"""Answers of a server in the form that recordings compare: ids by number, times left out, audio by digest.

Text stays as it is, but for what differs from run to run: ids that the server makes become ``<id 1>``,
``<id 2>`` in the order in which they appear, times become ``<time>``, and a port ``<port>``.

Audio becomes its length and its digest, with the mean and the deviation of the bytes in sixteen parts. The
parts decide where the digest differs: processors round resampled and compressed audio differently.
"""

import base64
import binascii
import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import av
import numpy as np

from .sessions import KEY

_TEXT_TYPES = ("application/json", "text/", "application/x-ndjson", "application/xml")
_LEFT_OUT = frozenset({"date", "server-timing"})
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![0-9A-Za-z+/=])[0-9a-f]{16,64}(?![0-9A-Za-z+/=])"
    r"|(?<=[_-])[0-9a-f]{8,64}(?![0-9A-Za-z])"
)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"
    r"|(?<![\d.])1[789]\d{8}(?:\.\d+)?(?!\d)|(?<![\d.])1[789]\d{11}(?!\d)"
)
_MEASURED = re.compile(
    r'("(?:step_time|server_cost_time|generate_time|age_s|duration_s)":\s*)-?\d+(?:\.\d+)?(?:e-?\d+)?'
)
_PORT = re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/]{120,}={0,2}(?![A-Za-z0-9+/=])")
_PARTS: Final = 16
_TOLERANCE: Final = 3  # of a byte's mean or deviation
_LOSSY_TOLERANCE: Final = 8  # a sample of compressed silence is 0 or -1, whose bytes are 0 or 255
_LENGTH_TOLERANCE: Final = 0.03  # of a lossy format
_STREAM_IDS: Final = ("context_id", "contextId", "task_id", "id")
_OGG_PAGE = re.compile(
    rb"(OggS.{10}).{4}(.{4}).{4}", re.DOTALL
)  # serial number, which is random, and checksum
_LOSSY = {b"ID3": "mp3", b"OggS": "ogg", b"\xff\xf1": "aac", b"\xff\xf3": "mp3", b"\xff\xfb": "mp3"}


def describe_audio(data: bytes) -> dict[str, Any]:
    """The length, the digest and the parts of audio in any format."""
    kind = next((kind for magic, kind in _LOSSY.items() if data.startswith(magic)), "")
    samples = np.frombuffer(_decode(data, kind) if kind else data, np.uint8).astype(np.float64)
    parts = np.array_split(samples, _PARTS) if len(samples) >= _PARTS else []
    levels = [[round(float(part.mean())), round(float(part.std()))] for part in parts]
    plain = _OGG_PAGE.sub(rb"\1\2", data) if kind == "ogg" else data
    digest = hashlib.sha256(plain).hexdigest()[:32]
    return {"bytes": len(data), "sha256": digest, "parts": levels} | ({"format": kind} if kind else {})


def _decode(data: bytes, kind: str) -> bytes:
    """Decode a file; b"" for a part of one."""
    try:
        with av.open(io.BytesIO(data), "r", format=kind) as file:
            frames = [frame.to_ndarray() for frame in file.decode(audio=0)]
    except av.FFmpegError:
        return b""
    if not frames:
        return b""
    samples = np.concatenate([frame.reshape(-1) for frame in frames])
    scale = 32_767 if samples.dtype.kind == "f" else 1
    return (samples * scale).clip(-32_768, 32_767).astype("<i2").tobytes()


@dataclass(slots=True)
class Normalizer:
    """Replaces what differs from run to run, with one numbering for a session."""

    key: str = ""  # of the server under test
    sent: str = ""  # all that the client sent; ids in it stay
    ids: dict[str, int] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """Return text without ids, times, ports and keys."""
        if self.key:
            text = text.replace(self.key, KEY)
        text = _MEASURED.sub(r"\1<time>", _PORT.sub(r"\1:<port>", text))
        return _TIME.sub(self._time, _ID.sub(self._numbered, text))

    def content(self, text: str) -> str | dict[str, Any]:
        """Return text, with the audio in it apart."""
        audio: list[dict[str, Any]] = []

        def described(found: re.Match[str]) -> str:
            try:
                data = base64.b64decode(found[0], validate=True)
            except binascii.Error:
                return found[0]
            audio.append(describe_audio(data))
            return f"<audio {len(audio)}>"

        plain = self.text(_BASE64.sub(described, text))
        return {"text": plain, "audio": audio} if audio else plain

    def answer(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> dict[str, Any]:
        """Return an HTTP answer; its length is left out where a time has another one in each run."""
        media_type = next((value for name, value in headers if name.lower() == "content-type"), "")
        is_text = not body or media_type.startswith(_TEXT_TYPES)
        content = self.content(body.decode()) if is_text else {"audio": [describe_audio(body)]}
        varies = "<time>" in str(content)
        kept = [pair for pair in headers if not (varies and pair[0].lower() == "content-length")]
        return {"status": status, "body": content, "headers": self.headers(kept)}

    def headers(self, headers: Sequence[tuple[str, str]]) -> list[list[str]]:
        """Return headers in their order."""
        return [[name, self.text(value)] for name, value in headers if name.lower() not in _LEFT_OUT]

    def message(self, data: str | bytes) -> str | dict[str, Any]:
        """Return a message of a WebSocket."""
        return self.content(data) if isinstance(data, str) else {"audio": [describe_audio(data)]}

    def _numbered(self, found: re.Match[str]) -> str:
        if found[0] in self.sent or not re.search(r"\d", found[0]):
            return found[0]
        return f"<id {self.ids.setdefault(found[0], len(self.ids) + 1)}>"

    def _time(self, found: re.Match[str]) -> str:
        return found[0] if found[0] in self.sent else "<time>"


def by_stream(messages: Sequence[str | bytes]) -> list[str | bytes]:
    """Sort the messages of a WebSocket by their streams; the order of each stay."""
    return sorted(messages, key=_stream_of)


def _stream_of(message: str | bytes) -> str:
    if isinstance(message, bytes):
        return ""
    try:
        found = json.loads(message)
    except ValueError:
        return ""
    inner = [found, *(found.get(name) for name in ("result", "header"))] if isinstance(found, dict) else []
    names = (part[name] for part in inner if isinstance(part, dict) for name in _STREAM_IDS if name in part)
    return str(next(names, ""))


def difference(expected: Any, got: Any, *, exact: bool = False) -> str:
    """Return the first difference of two answers, "" if there is none.

    exact: audio is compared by its digest, which holds on one processor.
    """
    if isinstance(expected, dict) and isinstance(got, dict):
        if "sha256" in expected and "sha256" in got:
            return _difference_of_audio(expected, got, exact)
        expected, got = sorted(expected.items()), sorted(got.items())
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        for place, (one, other) in enumerate(zip(expected, got, strict=False)):
            if found := difference(one, other, exact=exact):
                return f"[{place}] {found}" if len(expected) != 2 else found
        if len(expected) == len(got):
            return ""
        return f"{len(expected)} entries recorded, {len(got)} now: {str(expected)[:1500]} / {str(got)[:1500]}"
    return "" if expected == got else f"\n  recorded {str(expected)[:2000]}\n  now      {str(got)[:2000]}"


def _difference_of_audio(expected: dict[str, Any], got: dict[str, Any], exact: bool) -> str:
    if expected["sha256"] == got["sha256"]:
        return ""
    told = f"\n  recorded {expected}\n  now      {got}"
    longest = _LENGTH_TOLERANCE * expected["bytes"] if "format" in expected else 0
    lengths_differ = abs(expected["bytes"] - got["bytes"]) > longest
    if exact or lengths_differ or len(expected["parts"]) != len(got["parts"]):
        return told
    if not expected["parts"]:
        return "" if "format" in expected else told
    differences = np.abs(np.array(expected["parts"]) - np.array(got["parts"]))
    tolerance = _LOSSY_TOLERANCE if "format" in expected else _TOLERANCE
    return told if differences.max() > tolerance else ""
