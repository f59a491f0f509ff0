"""The record of every request for speech: one log line at its end, and metrics by API and by key.

    with log.track("openai", grant, request_id) as record:     the outcome is how the block ends
        record.count_text(len(text)); ...; record.count_audio(seconds)

The text itself is never recorded, only its length.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect

from ...tts_engine.errors import SynthesisFailed, VivavoceError
from ...tts_engine.metrics import Metrics
from ...tts_engine.records.spans import Span, new_span_id, set_current_span
from ..access.access_control import Grant
from ..operation.log_fields import set_log_fields

logger = logging.getLogger(__name__)

# TimeoutError is that of a client that reads nothing.
_CLIENT_LEFT: Final = (
    asyncio.CancelledError,
    GeneratorExit,
    ClientDisconnect,
    WebSocketDisconnect,
    TimeoutError,
)


class RequestRecord:
    """One request under way."""

    def __init__(self, api: str, grant: Grant, request_id: str, clock: Callable[[], float]) -> None:
        self.api, self.key_id, self.id = api, grant.key_id, request_id
        self.trace_id = grant.trace_id
        self.voice = "-"  # the engine's id, once known
        self.characters = 0
        self.audio_s = 0.0
        self.span_id = new_span_id()
        self.first_byte_s: float | None = None  # from the first text to the first audio
        self._clock = clock
        self._first_text_at: float | None = None

    def count_text(self, characters: int) -> None:
        """Add text that has come."""
        self.characters += characters
        if self._first_text_at is None:
            self._first_text_at = self._clock()

    def count_audio(self, seconds: float) -> None:
        """Add speech that has been sent."""
        if self.first_byte_s is None and self._first_text_at is not None:
            self.first_byte_s = self._clock() - self._first_text_at
        self.audio_s += seconds

    def emit_spans(self, on_span: Callable[[Span], None], started_at: float, outcome: str) -> None:
        """Hand over the spans of the request, which ends now; times are monotonic seconds."""
        first_text_at, now = self._first_text_at, self._clock()
        attributes: dict[str, str | int | float] = {
            "key": self.key_id,
            "voice": self.voice,
            "outcome": outcome,
            "request": self.id,
            "characters": self.characters,
        }
        failed = outcome == "failed"
        on_span(
            Span(f"request {self.api}", self.trace_id, started_at, now, "", self.span_id, attributes, failed)
        )
        if first_text_at is not None and self.first_byte_s is not None:
            first_byte_at = first_text_at + self.first_byte_s
            on_span(Span("first byte", self.trace_id, first_text_at, first_byte_at, self.span_id))


class RequestLog:
    """Writes requests to the log and to the engine's metrics."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock

    @contextmanager
    def track(self, api: str, grant: Grant, request_id: str) -> Iterator[RequestRecord]:
        """Record a request for as long as the block lasts.

        The outcome is "ok", "refused" (VivavoceError: the request is at fault, or there is no capacity),
        "cancelled" (the client left, or reads nothing) or "failed" (SynthesisFailed, or an unexpected error).
        """
        record = RequestRecord(api, grant, request_id, self._clock)
        set_current_span(record.span_id)
        set_log_fields(stream=request_id, key=grant.key_name, trace=grant.trace_id)
        started_at = self._clock()
        active = self._metrics.active_requests.labels(api)
        active.inc()
        outcome = "failed"
        try:
            yield record
            outcome = "ok"
        except SynthesisFailed:
            raise
        except VivavoceError:
            outcome = "refused"
            raise
        except _CLIENT_LEFT:
            outcome = "cancelled"
            raise
        finally:
            active.dec()
            self._end(record, outcome, self._clock() - started_at)
            if self._metrics.on_span is not None:
                record.emit_spans(self._metrics.on_span, started_at, outcome)

    def _end(self, record: RequestRecord, outcome: str, took_s: float) -> None:
        api, key = record.api, record.key_id
        self._metrics.requests.labels(api, key, outcome).inc()
        self._metrics.request_characters.labels(api, key).inc(record.characters)
        self._metrics.request_audio_seconds.labels(api, key).inc(record.audio_s)
        if record.first_byte_s is not None:
            self._metrics.first_byte.labels(api).observe(record.first_byte_s)
        first_byte_ms = "-" if record.first_byte_s is None else f"{1000 * record.first_byte_s:.0f}"
        logger.info(
            "request %s: %s by key %s, voice %s: %s, %d characters, %.2f s of speech, "
            "first byte %s ms, took %.2f s, trace %s",
            *(record.id, api, key, record.voice, outcome),
            *(record.characters, record.audio_s, first_byte_ms, took_s, record.trace_id),
        )
