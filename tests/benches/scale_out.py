"""A step load on one replica until three serve, and back to one while streams are spoken.

The replicas run on a Ray cluster of this process and are scaled by the policy that clusters use. Scaled are
either whole replicas with the stand-in voice, or render replicas with a tiny CosyVoice, stages apart.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from prometheus_client import CollectorRegistry
from ray import serve

from benches.cluster_listener import StreamListener, text_of
from shared.ray_replicas import CostlySettings
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.application import APPLICATION
from vivavoce.gateway.cluster.ray.cluster_config import BUILDER
from vivavoce.gateway.cluster.ray.operations import bring_up
from vivavoce.gateway.cluster.ray.ray_connection import LOOPBACK, open_ray_engine
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.models.cosyvoice.checkpoint.random_bundle import BundleSize, write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.errors import Overloaded

_REPLICAS = 3
_MAX_SCALE_OUT_S = 10.0  # without the time in which replicas start
_WARM_UP_S = 8.0  # with few clients, until the cost of speech is measured
_SCALE_IN_AFTER_S = 3.0
_RETRY_S = 0.2
_POLL_S = 0.1
_GIVE_UP_S = 180.0
_OPTIONS: Mapping[str, Any] = {"ray_actor_options": {"num_cpus": 0.1}}
_SENTENCE = "Well, who is it, at night? It is me."


@dataclass(frozen=True, slots=True)
class ScaledDeployment:
    """What is scaled, and the load for which three replicas are needed."""

    name: str
    import_path: str
    args: Mapping[str, object]
    clients: int
    text: str  # of each utterance of the load
    long_text: str  # spoken while the replicas are removed
    long_streams: int
    warm_up_clients: int = 0  # of the clients, for the seconds before the step
    max_load: float = 0.7  # as of ``AutoscalingPolicy``
    fixed: tuple[str, ...] = ()  # deployments with one replica

    def config(self) -> str:
        """Ray Serve's configuration file."""
        scaling = {
            **{"min_replicas": 1, "max_replicas": _REPLICAS, "upscale_delay_s": 0, "downscale_delay_s": 0},
            **{"metrics_interval_s": 1, "look_back_period_s": 2},
            "policy": {
                "policy_function": "vivavoce.gateway.cluster.ray.autoscaling:ListenerScaling",
                "policy_kwargs": {"scale_in_after_s": _SCALE_IN_AFTER_S, "max_load": self.max_load},
            },
        }
        deployments = [{"name": self.name, "autoscaling_config": scaling, **_OPTIONS}]
        deployments += [{"name": name, "num_replicas": 1, **_OPTIONS} for name in self.fixed]
        application = {
            **{"name": APPLICATION, "import_path": self.import_path, "route_prefix": None},
            **{"args": dict(self.args), "deployments": deployments},
        }
        return json.dumps({"proxy_location": "Disabled", "applications": [application]})


def measure(render: bool) -> BenchReport:
    """Scale render replicas, or whole ones."""
    with tempfile.TemporaryDirectory() as folder:
        scaled = _render_replicas(Path(folder)) if render else _whole_replicas()
        file = Path(folder) / "cluster.yaml"
        file.write_text(scaled.config())
        ray.init(address="local", include_dashboard=True, dashboard_port=0, log_to_driver=False)
        try:
            bring_up(file, "auto", LOOPBACK)
            figures = asyncio.run(_measure(scaled))
        finally:
            serve.shutdown()
            ray.shutdown()
    return BenchReport("scale-out", figures, {"deployment": scaled.name, "clients": scaled.clients})


def _whole_replicas() -> ScaledDeployment:
    """A word of 0.2 s costs 10 ms: 30 streams need 1.5 of a replica's time, and one may have 0.7."""
    settings = CostlySettings(step_s=0.01, max_batch_size=1, reports_cost=True)
    return ScaledDeployment(
        name="voice",
        import_path="shared.ray_replicas:build",
        args=settings.model_dump(),
        clients=30,
        text=text_of(8),
        long_text=text_of(60),
        long_streams=2 * _REPLICAS,
        warm_up_clients=2,
    )


def _render_replicas(folder: Path) -> ScaledDeployment:
    """A tiny network costs little of a second's speech, so the limit of the load is low."""
    bundle = folder / "V2"
    write_random_bundle(bundle, CosyVoiceVersion.V2, BundleSize.TINY, seed=1)
    return ScaledDeployment(
        name="render",
        import_path=BUILDER,
        args={"bundle": str(bundle), "executor": "torch", "stages": "apart"},
        clients=4,
        text=_SENTENCE,
        long_text=" ".join([_SENTENCE] * 8),
        long_streams=_REPLICAS,
        max_load=0.01,
        fixed=("decode",),
    )


@dataclass(slots=True)
class _Load:
    """Clients that ask for one utterance after the other."""

    engine: ClusterEngine
    text: str
    refused: int = 0
    failed: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def add(self, clients: int) -> None:
        self.tasks += [asyncio.create_task(self._speak_on()) for _ in range(clients)]

    async def stop(self) -> None:
        """End the clients in the middle of their utterances."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _speak_on(self) -> None:
        while True:
            listener = await self.open(self.text)
            await listener.listen()
            if isinstance(listener.error, Overloaded):  # by the replica, which was full by then
                self.refused += 1
                await asyncio.sleep(_RETRY_S)
            else:
                self.failed += listener.error is not None

    async def open(self, text: str) -> StreamListener:
        """A listener, as soon as the engine takes one."""
        while True:
            try:
                return StreamListener(self.engine, text)
            except Overloaded:
                self.refused += 1
                await asyncio.sleep(_RETRY_S)


@dataclass(slots=True)
class _ScaleOut:
    """Seconds from the step of the load until three replicas serve; in some of them replicas started."""

    total_s: float
    starting_s: float


async def _measure(scaled: ScaledDeployment) -> tuple[BenchFigure, ...]:
    async with await open_ray_engine("auto", ReplicaSettings(), EngineConfig()) as engine:
        load = _Load(engine, scaled.text)
        if scaled.warm_up_clients:
            load.add(scaled.warm_up_clients)
            await asyncio.sleep(_WARM_UP_S)
        load.add(scaled.clients - scaled.warm_up_clients)
        grown = await _scale_out(engine, scaled.name)
        long = [await load.open(scaled.long_text) for _ in range(scaled.long_streams)]
        speaking = [asyncio.create_task(each.listen()) for each in long]
        while not all(each.has_heard for each in long):
            await asyncio.sleep(_POLL_S)
        await load.stop()
        stopped_at = time.monotonic()
        in_use = await _replicas_in_use(scaled.name)
        await asyncio.gather(*speaking)
        spoken_s = time.monotonic() - stopped_at
        while await _replicas_in_use(scaled.name) > 1:
            _check_time(stopped_at)
            await asyncio.sleep(_POLL_S)
        return (
            BenchFigure("from the load to 3 replicas that serve", grown.total_s, "s"),
            BenchFigure("of it, replicas started", grown.starting_s, "s"),
            BenchFigure("the rest", grown.total_s - grown.starting_s, "s", at_most=_MAX_SCALE_OUT_S),
            BenchFigure("refused meanwhile, and asked again", load.refused, ""),
            BenchFigure("failed meanwhile", load.failed, "", at_most=0),
            BenchFigure("replicas when the load ends", in_use, "", at_least=_REPLICAS),
            BenchFigure("streams that go on", len(long), ""),
            BenchFigure("that failed", sum(each.error is not None for each in long), "", at_most=0),
            BenchFigure("that lost their replica", sum(len(each.tried) > 1 for each in long), "", at_most=0),
            BenchFigure("their underruns", sum(each.underruns for each in long), ""),
            BenchFigure("from the end of the load to theirs", spoken_s, "s"),
            BenchFigure("from there to 1 replica", time.monotonic() - stopped_at - spoken_s, "s"),
        )


async def _scale_out(engine: ClusterEngine, deployment: str) -> _ScaleOut:
    begins = before = time.monotonic()
    rendered_before = _rendered_s(engine.metrics.registry, deployment)
    starting_s = 0.0
    while True:
        rendered_s = _rendered_s(engine.metrics.registry, deployment)
        serving = sum(each > rendered_before.get(replica, 0.0) for replica, each in rendered_s.items())
        if serving >= _REPLICAS:
            return _ScaleOut(time.monotonic() - begins, starting_s)
        _check_time(begins)
        await asyncio.sleep(_POLL_S)
        states = await _states(deployment)
        now = time.monotonic()
        starting_s += (now - before) if states.get("STARTING") else 0.0
        before = now


def _rendered_s(registry: CollectorRegistry, deployment: str) -> dict[str, float]:
    """Seconds of speech by replica, as the gateway's metrics show them."""
    return {
        sample.labels["replica"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "vivavoce_replica_audio_seconds_total" and sample.labels["deployment"] == deployment
    }


async def _replicas_in_use(deployment: str) -> int:
    """Replicas that run or finish their streams."""
    states = await _states(deployment)
    return sum(count for state, count in states.items() if state != "STARTING")


async def _states(deployment: str) -> dict[str, int]:
    """Replicas by state, as Ray Serve reports them."""
    status = await asyncio.to_thread(serve.status)
    states = status.applications[APPLICATION].deployments[deployment].replica_states
    return {str(getattr(state, "value", state)): count for state, count in states.items()}


def _check_time(since: float) -> None:
    if time.monotonic() - since > _GIVE_UP_S:
        raise TimeoutError(f"the replicas were not scaled within {_GIVE_UP_S:g} s")
