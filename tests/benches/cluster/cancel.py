"""The way of a cancel from a gateway to replicas on Ray, with the answer that they no longer have the stream.

A decode or voice replica reports its load when a stream has left; a render replica is asked for its sentences
again and again. So the figures have the way back as well.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
from ray import serve
from ray.serve.handle import DeploymentHandle

from benches.cluster.deployed_cluster import stages_apart, voice_replicas
from benches.cluster.listener import text_of
from shared.ray_replicas import CostlySettings
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.application import APPLICATION
from vivavoce.gateway.cluster.ray.ray_connection import open_ray_engine
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.tts_engine.cosyvoice.rendering.render_messages import RenderReplicaDescription
from vivavoce.tts_engine.engine import EngineConfig

_MAX_CANCEL_MS = 50.0
_RENDER_STEP_S = 0.05
_ASK_INTERVAL_S = 0.001
_DECODER = "bench"  # in the place of a decode replica that asks
_TEXT = text_of(20)


def measure(stages: str, streams: int) -> BenchReport:
    """Cancel streams that speak, one after the other. stages: "together" or "apart"."""
    if stages == "apart":
        with stages_apart(_RENDER_STEP_S, {"decode": {}, "render": {}}):
            waits_ms = asyncio.run(_measure(streams, ("decode", "render")))
    else:
        with voice_replicas(CostlySettings(), {"voice": {}}):
            waits_ms = asyncio.run(_measure(streams, ("voice",)))
    figures = [
        figure
        for deployment, found in waits_ms.items()
        for figure in (
            BenchFigure(f"cancel to the report of the {deployment} replica, p50", np.median(found), "ms"),
            BenchFigure("the same, worst", max(found), "ms", at_most=_MAX_CANCEL_MS),
        )
    ]
    return BenchReport("cluster-cancel", tuple(figures), {"streams": streams})


async def _measure(streams: int, deployments: tuple[str, ...]) -> dict[str, list[float]]:
    """Milliseconds from the cancel to the report, by deployment."""
    found: dict[str, list[float]] = {name: [] for name in deployments}
    async with await open_ray_engine("auto", ReplicaSettings(), EngineConfig()) as engine:
        counts = {name: await _counter(engine, name) for name in deployments}
        for _ in range(streams):
            stream = engine.stream()
            stream.push_text(_TEXT)
            await anext(stream)
            begins = time.perf_counter()
            stream.cancel()
            waits = await asyncio.gather(*(_forgotten(counts[name], begins) for name in deployments))
            for name, wait_s in zip(deployments, waits, strict=True):
                found[name].append(1000 * wait_s)
    return found


async def _counter(engine: ClusterEngine, deployment: str) -> Callable[[], Awaitable[int]]:
    """What a replica of the deployment has open, as known here."""
    if deployment == "render":
        handle: DeploymentHandle[object] = serve.get_deployment_handle(deployment, APPLICATION)
        (first,) = await handle.broadcast("describe", _DECODER).results_async()
        ask = handle.options(method_name="answer_for")

        async def sentences() -> int:
            description: RenderReplicaDescription = await ask.remote(first.replica, _DECODER)
            return description.sentences

        return sentences

    async def streams() -> int:
        return engine.replica_streams

    return streams


async def _forgotten(count: Callable[[], Awaitable[int]], begins: float) -> float:
    """Seconds until a count is 0."""
    while await count():
        await asyncio.sleep(_ASK_INTERVAL_S)
    return time.perf_counter() - begins
