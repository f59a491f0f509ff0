"""The record of a request: numbers and an outcome, never the text."""

import asyncio
import logging

import pytest
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect

from vivavoce.gateway.access.access_control import Grant
from vivavoce.gateway.web.request_log import RequestLog
from vivavoce.tts_engine.errors import BadText, SynthesisFailed
from vivavoce.tts_engine.metrics import Metrics

GRANT = Grant("3f9c2a71", frozenset())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"vivavoce_{name}", labels)


def test_a_request_is_counted_by_api_and_key(caplog: pytest.LogCaptureFixture) -> None:
    metrics, now = Metrics(), [10.0]
    log = RequestLog(metrics, clock=lambda: now[0])
    with caplog.at_level(logging.INFO), log.track("openai", GRANT, "req-1") as record:
        assert value(metrics, "active_requests", api="openai") == 1
        record.voice = "heart"
        record.count_text(5)
        now[0] += 0.04
        record.count_audio(0.5)
        record.count_text(7)
        now[0] += 1
        record.count_audio(1.5)
    by = {"api": "openai", "key": "3f9c2a71"}
    assert value(metrics, "requests_total", outcome="ok", **by) == 1
    assert value(metrics, "request_characters_total", **by) == 12
    assert value(metrics, "request_audio_seconds_total", **by) == 2.0
    assert value(metrics, "active_requests", api="openai") == 0
    assert value(metrics, "first_byte_seconds_sum", api="openai") == pytest.approx(0.04)
    assert "req-1: openai by key 3f9c2a71, voice heart: ok, 12 characters, 2.00 s of speech" in caplog.text
    assert "first byte 40 ms" in caplog.text
    assert caplog.text.rstrip().endswith(f"trace {GRANT.trace_id}")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BadText("too long"), "refused"),
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (ClientDisconnect(), "cancelled"),
        (WebSocketDisconnect(1006), "cancelled"),
        (TimeoutError("the client reads nothing"), "cancelled"),
        (SynthesisFailed("the voice failed"), "failed"),
        (RuntimeError("broken"), "failed"),
    ],
)
def test_the_outcome_follows_from_the_exception_that_ends_the_block(
    error: BaseException, outcome: str
) -> None:
    metrics = Metrics()
    with pytest.raises(type(error)), RequestLog(metrics).track("dashscope", GRANT, "t"):
        raise error
    assert value(metrics, "requests_total", api="dashscope", key="3f9c2a71", outcome=outcome) == 1
    assert value(metrics, "active_requests", api="dashscope") == 0


def test_a_request_without_audio_has_no_first_byte() -> None:
    metrics = Metrics()
    with RequestLog(metrics).track("openai", GRANT, "t") as record:
        record.count_text(3)
    assert not value(metrics, "first_byte_seconds_count", api="openai")
