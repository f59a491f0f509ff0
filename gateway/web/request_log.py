"""Every request for speech on record: one line when it ends, and its numbers by API and by key.

    with log.request("openai", grant, request_id) as request:
        request.text(len(text)); ...; request.audio(seconds)          the outcome is how the block ends

What is said is never in it, only how much. Source of the fields: the access logs of HTTP servers, and what
an operator bills by.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect

from ...tts_engine.errors import BadRequest, Overloaded
from ...tts_engine.metrics import Metrics
from ..access.access_control import Grant

logger = logging.getLogger(__name__)


class RequestRecord:
    """One request under way. voice: that it speaks with, once known."""

    def __init__(self, api: str, key_id: str, request_id: str, clock: Callable[[], float]) -> None:
        self.api, self.key_id, self.id = api, key_id, request_id
        self.voice = "-"
        self.characters = 0
        self.audio_s = 0.0
        self.first_byte_s: float | None = None
        self._clock = clock
        self._first_text_at: float | None = None

    def count_text(self, characters: int) -> None:
        """So much text came."""
        self.characters += characters
        if self._first_text_at is None:
            self._first_text_at = self._clock()

    def count_audio(self, seconds: float) -> None:
        """So much speech was sent."""
        if self.first_byte_s is None and self._first_text_at is not None:
            self.first_byte_s = self._clock() - self._first_text_at
        self.audio_s += seconds


class RequestLog:
    """Where requests are counted."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock

    @contextmanager
    def track(self, api: str, grant: Grant, request_id: str) -> Iterator[RequestRecord]:
        """Record a request: begun now, ended with the block, its outcome how the block ended."""
        record = RequestRecord(api, grant.key_id, request_id, self._clock)
        first_text_at = self._clock()
        active = self._metrics.active_requests.labels(api)
        active.inc()
        outcome = "failed"
        try:
            yield record
            outcome = "ok"
        except (BadRequest, Overloaded):
            outcome = "refused"
            raise
        except (asyncio.CancelledError, GeneratorExit, ClientDisconnect):
            outcome = "cancelled"
            raise
        finally:
            active.dec()
            self._end(record, outcome, self._clock() - first_text_at)

    def _end(self, record: RequestRecord, outcome: str, took_s: float) -> None:
        api, key = record.api, record.key_id
        self._metrics.requests.labels(api, key, outcome).inc()
        self._metrics.request_characters.labels(api, key).inc(record.characters)
        self._metrics.request_audio_seconds.labels(api, key).inc(record.audio_s)
        if record.first_byte_s is not None:
            self._metrics.first_byte.labels(api).observe(record.first_byte_s)
        first_ms = "-" if record.first_byte_s is None else f"{1000 * record.first_byte_s:.0f}"
        logger.info(
            "request %s: %s by key %s, voice %s: %s, %d characters, %.2f s of speech, "
            "first byte %s ms, took %.2f s",
            *(
                record.id,
                api,
                key,
                record.voice,
                outcome,
                record.characters,
                record.audio_s,
                first_ms,
                took_s,
            ),
        )
