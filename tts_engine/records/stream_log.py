"""The records of streams in the log, as JSON: what each was opened with, and each chunk (DEBUG). No text.

    stream 4bf9...#7 opened: {"voice": "heart", "seed": 7, ...}
    stream 4bf9...#7 chunk: {"index": 0, "samples": [0, 12000], "sha256": "9f86...", ...}

Streams that are spoken to nobody, at the start of a server, are written at DEBUG.

``vivavoce compare-runs`` reads them back, and tells where two runs of the same input part.
"""

import hashlib
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ..backends.base import ChunkedBackend, SlotRequest
from ..chunk import SAMPLE_RATE, AudioChunk
from ..session import Session
from .spans import Span

logger = logging.getLogger(__name__)

UNHEARD: Final = "warm-up"  # trace of the streams that are spoken to nobody
OPENED: Final = "opened"
CHUNK: Final = "chunk"
# What the samples depend on besides this package.
_COMPUTING_PACKAGES: Final = ("numpy", "onnxruntime", "torch", "tensorrt")
_numbers = itertools.count()


class StreamLog:
    """The records of one stream. Its id is the trace and a number of this process."""

    def __init__(self, request: SlotRequest, parent_span: str = "") -> None:
        self.id = f"{request.trace_id}#{next(_numbers)}"
        self._trace_id, self._parent = request.trace_id, parent_span
        self._voice = request.voice

    def write_opened(self, request: SlotRequest, backend: object) -> None:
        """Write what the stream was opened with."""
        level = logging.DEBUG if self._trace_id == UNHEARD else logging.INFO
        if not logger.isEnabledFor(level):
            return
        policy = backend.chunk_policy if isinstance(backend, ChunkedBackend) else {}
        fields = {
            "voice": request.voice,
            "seed": request.seed,
            "speed": request.speed,
            "language": request.delivery.language,
            "mode": request.delivery.mode,
            "first_hop": request.delivery.first_hop,
            "backend": type(backend).__name__,
            "chunk_policy": dict(policy),
            "versions": _versions(tuple(name for name in _COMPUTING_PACKAGES if name in sys.modules)),
        }
        self._write(level, OPENED, fields)

    def add(self, chunk: AudioChunk) -> None:
        """Write a chunk's record; its samples are hashed only if it is written."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        made = chunk.provenance
        fields = {
            "index": chunk.index,
            "speech_ids": made.speech_ids,
            "speech_ids_needed": made.speech_ids_needed,
            "mel_frames": made.mel_frames,
            "samples": chunk.samples,
            "sha256": hashlib.sha256(chunk.pcm).hexdigest(),
            "wall_s": round(made.wall_s, 6),
            "device_s": round(made.device_s, 6),
            "final": chunk.final,
        }
        self._write(logging.DEBUG, CHUNK, fields)

    def close(self, session: Session, on_span: Callable[[Span], None] | None) -> None:
        """Hand the spans of a stream that has ended to ``on_span``, if there is one."""
        if on_span is None:
            return
        now = time.monotonic()
        attributes: dict[str, str | int | float] = {
            "voice": self._voice,
            "audio_s": session.samples / SAMPLE_RATE,
            "chunks": session.chunks,
        }
        speech = Span("speech", self._trace_id, session.opened_at, now, self._parent, attributes=attributes)
        on_span(speech)
        read_at, heard_at = session.first_segment_at, session.first_audio_at
        if read_at is not None:
            on_span(Span("reading", self._trace_id, session.opened_at, read_at, speech.id))
            on_span(Span("first audio", self._trace_id, read_at, heard_at or now, speech.id))

    def _write(self, level: int, kind: str, fields: Mapping[str, object]) -> None:
        logger.log(level, "stream %s %s: %s", self.id, kind, json.dumps(fields), extra={"stream": self.id})


@cache
def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of this package and of those that compute in this process."""
    found = {}
    for name in ("vivavoce", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # such as onnxruntime-gpu
    return found
