"""Spans as a collector on loopback receives them: of a request, and of a stream that a replica speaks."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from shared.cluster.local_replicas import open_cluster
from shared.served_apis import serve_every_api
from vivavoce.gateway.operation.traces import SpanExporter, export_traces
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.records.spans import Span, set_current_span

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP."""

    received: list[Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces"
        request = trace_service.ExportTraceServiceRequest.FromString(body)
        self.received += [
            span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans
        ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SpanExporter, dict[str, Any]]]:
    """An exporter, and the spans by name, which are filled at the end of the context."""
    handler = type("Handler", (Collector,), {"received": []})
    found: dict[str, Any] = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        metrics = Metrics()
        exporter = export_traces(metrics)
        assert exporter is not None
        try:
            yield exporter, found
        finally:
            exporter.close()
            server.shutdown()
    found |= {span.name: span for span in handler.received}


def test_a_request_is_one_tree_from_its_text_to_its_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    async def request(exporter: SpanExporter) -> None:
        async with serve_every_api() as served:
            served.apis.server.engine.metrics.on_span = exporter.export
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            body = {"model": "tts-1", "voice": "alloy", "input": "One two three.", "response_format": "pcm"}
            answer = await served.client.post("/v1/audio/speech", json=body, headers=headers)
            assert answer.status_code == 200

    with collected(monkeypatch) as (exporter, found):
        asyncio.run(request(exporter))
    assert found.keys() >= {"request openai", "first byte", "speech", "reading", "first audio"}
    assert {span.trace_id.hex() for span in found.values()} == {TRACE}
    root, speech = found["request openai"], found["speech"]
    assert root.parent_span_id == b""
    assert {found[name].parent_span_id for name in ("first byte", "speech")} == {root.span_id}
    assert {found[name].parent_span_id for name in ("reading", "first audio")} == {speech.span_id}
    times = [root.start_time_unix_nano, found["reading"].start_time_unix_nano]
    times += [found["first audio"].end_time_unix_nano, found["first byte"].end_time_unix_nano]
    clock_error_ns = 2_000_000  # two clocks are read for each
    assert all(after - before > -clock_error_ns for before, after in itertools.pairwise(times))
    attributes = {one.key: one.value for one in root.attributes}
    assert attributes["characters"].int_value == len("One two three.")
    assert "One two" not in str(found)


def test_a_stream_of_a_replica_belongs_to_the_span_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    async def speak(exporter: SpanExporter) -> None:
        set_current_span("00f067aa0ba902b7")
        async with open_cluster(1) as (engine, replicas), engine.stream(trace_id=TRACE) as stream:
            replicas.replicas[0].engine.metrics.on_span = exporter.export
            stream.push_text("One two three.")
            stream.end_input()
            async for _ in stream:
                pass

    with collected(monkeypatch) as (exporter, found):
        asyncio.run(speak(exporter))
    assert found["speech"].trace_id.hex() == TRACE
    assert found["speech"].parent_span_id.hex() == "00f067aa0ba902b7"


def test_without_a_collector_no_span_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    metrics = Metrics()
    assert export_traces(metrics) is None
    assert metrics.on_span is None


def test_the_trace_of_a_call_is_its_id() -> None:
    call = Span("speech", "7f0c2d1e-5a4b-4c3d-9e8f-112233445566", 0.0, 1.0)
    assert call.trace_number == 0x7F0C2D1E5A4B4C3D9E8F112233445566
    assert Span("speech", "CA-of-a-carrier", 0.0, 1.0).trace_number < 1 << 128
