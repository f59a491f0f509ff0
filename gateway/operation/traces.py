"""Traces for an OpenTelemetry collector, with the extra ``otel``, if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.

    request cartesia                        from the request to its end
    |- first byte                           from its first text to its first byte of audio
    |- speech                               a stream of an engine, here or in a replica
       |- reading                           until the text of its first clause is complete and read
       |- first audio                       from there to its first audio

    call audiosocket                        from the answer to the hang-up
    |- speech                               each utterance, as above

The variables are OpenTelemetry's own; spans are sent in batches by a thread, as OTLP over HTTP.
"""

import os
from typing import TYPE_CHECKING, Any, Final

from ... import __version__
from ...tts_engine.errors import MissingExtra
from ...tts_engine.metrics import Metrics
from ...tts_engine.records.spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class SpanExporter:
    """Gives spans to a processor of OpenTelemetry, which sends them."""

    def __init__(self, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource

        self._processor = processor
        # The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES replace these.
        name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "vivavoce"}
        self._resource = Resource.create({**name, "service.version": __version__})

    def export(self, span: Span) -> None:
        """Queue a span; from any thread."""
        self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Send what is left, which takes as long as the collector needs, at most some seconds."""
        self._processor.shutdown()

    def _readable(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        def context(span_id: str) -> SpanContext:
            sampled = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(span.trace_number, int(span_id, 16), is_remote=False, trace_flags=sampled)

        return ReadableSpan(
            span.name,
            context(span.id),
            context(span.parent) if span.parent else None,
            self._resource,
            dict(span.attributes),
            start_time=span.unix_ns(span.start),
            end_time=span.unix_ns(span.stop),
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
        )


def export_traces(metrics: Metrics) -> SpanExporter | None:
    """Export the spans of an engine and of its requests, if a collector is named; the caller closes it.

    Raises MissingExtra.
    """
    if not any(os.environ.get(name) for name in _VARIABLES):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtra("exporting traces", "otel") from None
    exporter = SpanExporter(BatchSpanProcessor(OTLPSpanExporter()))
    metrics.on_span = exporter.export
    return exporter
