"""The metrics of all replicas in one scrape, and a stream's trace id in the log of every hop."""

import asyncio
import logging
import time
from contextlib import aclosing

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from shared.cluster.local_replicas import open_cluster
from shared.event_loop import until
from shared.gateways.made_settings import make_settings
from vivavoce.gateway.cluster.replicas import replica_host
from vivavoce.gateway.cluster.replicas.cluster_metrics import ClusterMetrics, replica_families
from vivavoce.gateway.cluster.replicas.messages import ReplicaMetrics
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.metrics import Metrics

TEXT = "One two three four, five six seven. Eight nine ten, and eleven! Twelve thirteen fourteen fifteen."
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def scraped(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """What Prometheus reads: values by name and replica."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, each.labels["replica"]): each.value for each in samples if "replica" in each.labels}


def test_a_scrape_has_every_replica_that_reported_lately() -> None:
    now = 100.0
    one, other = Metrics(), Metrics()
    one.audio_seconds.inc(3.0)
    one.steps.labels("decode").observe(0.004)
    other.audio_seconds.inc(5.0)
    registry = CollectorRegistry()
    cluster = ClusterMetrics(registry, clock=lambda: now)
    cluster.take([ReplicaMetrics("a", "decode", replica_families(one))])
    now += 6
    cluster.take([ReplicaMetrics("b", "render", replica_families(other))])
    values = scraped(registry)
    assert values["vivavoce_replica_audio_seconds_total", "a"] == 3.0
    assert values["vivavoce_replica_audio_seconds_total", "b"] == 5.0
    assert values["vivavoce_replica_step_seconds_count", "a"] == 1.0
    assert values["vivavoce_replica_process_resident_memory_bytes", "a"] > 1e6
    assert ("vivavoce_replica_step_seconds_count", "b") not in values
    assert not any("packets" in name or "calls" in name for name, _ in values)
    now += 10
    assert {replica for _, replica in scraped(registry)} == {"b"}
    now += 5
    assert scraped(registry) == {}


def test_a_gateway_shows_what_its_replicas_rendered_and_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_host, "METRICS_INTERVAL_S", 0.02)

    async def run() -> None:
        async with open_cluster(2) as (engine, directory):
            registry = engine.metrics.registry
            stream = engine.stream()
            async with stream:
                stream.push_text(TEXT)
                stream.end_input()
                await asyncio.sleep(0)
                speaker = next(each for each in directory.replicas if each.name in stream.tried)
                spoken = [await anext(stream)]
                stream.set_deadline(time.monotonic() - 60.0)  # the listener has heard nothing for a minute
                spoken += [await anext(stream) for _ in range(6)]
                rendered = "vivavoce_replica_audio_seconds_total"
                await until(lambda: scraped(registry).get((rendered, speaker.name), 0.0) > 0)
                await until(lambda: scraped(registry)["vivavoce_replica_underruns_total", speaker.name] >= 1)
                speaker.kill()
                spoken += [chunk async for chunk in stream]
            assert len([word for chunk in spoken for word in chunk.words]) == len(TEXT.split())
            other = next(each for each in directory.replicas if each is not speaker)
            await until(lambda: (rendered, other.name) in scraped(registry))
            await until(
                lambda: (
                    scraped(registry)[rendered, other.name] == other.engine.metrics.audio_seconds._value.get()
                )
            )
            assert registry.get_sample_value("vivavoce_lost_replicas_total") == 1
            assert registry.get_sample_value("vivavoce_moved_streams_total") == 1

    asyncio.run(run())


def test_the_trace_of_a_request_is_in_the_log_of_the_gateway_and_of_each_replica_that_spoke(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with open_cluster(2) as (engine, directory):
            for each in directory.replicas:
                each.max_chunks = 4  # the first one dies, and the other one has enough for the rest
            settings = make_settings(http_port=0, audiosocket_port=0, agents_default="none")
            async with aclosing(await Gateway.open(settings, engine=engine)) as gateway:
                host, port = gateway.addresses.http
                speech = {"model": "vivavoce", "input": "One two three, four five six.", "voice": "tone-440"}
                headers = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01"}
                async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
                    answer = await client.post(
                        "/v1/audio/speech", json={**speech, "response_format": "pcm"}, headers=headers
                    )
                    assert answer.status_code == 200

    with caplog.at_level(logging.DEBUG, logger="vivavoce"):
        asyncio.run(run())
    traced = [record for record in caplog.records if TRACE_ID in record.getMessage()]
    steps = [(record.name.rpartition(".")[2], record.getMessage()) for record in traced]
    assert [text.rpartition(" ")[2] for name, text in steps if name == "request_log"] == [TRACE_ID]
    placed = [text.split()[-1] for name, text in steps if name == "cluster_engine" and "placed" in text]
    assert sorted(placed) == ["replica-1", "replica-2"]
    assert any("moves from" in text for name, text in steps if name == "cluster_engine")
    ended = [text for name, text in steps if name == "gateway_link" and " is " in text]
    assert len(ended) == 2 and any(f"trace {TRACE_ID}: stream 1 is spoken" in text for text in ended)
    assert any("came after" in text for name, text in steps if name == "cluster_stream")
