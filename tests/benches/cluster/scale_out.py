"""A step load on one replica until three serve, and back to one while streams are spoken.

The replicas are those of the stand-in voice, or render replicas beside a decode replica. They run
on a Ray cluster of this process, and are scaled by the policy that clusters use.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from ray import serve

from benches.cluster.deployed_cluster import Deployments, stages_apart, voice_replicas
from benches.cluster.listener import StreamListener, text_of
from shared.cluster.ray_replicas import CostlySettings, join_here
from shared.cluster.ray_stages import RENDERED_AGAIN
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.application import APPLICATION
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.waiting_streams import MAX_WAIT_S
from vivavoce.tts_engine.errors import Overloaded

_REPLICAS = 3
_MAX_SCALE_OUT_S = 10.0  # without the time in which replicas start
_WARM_UP_S = 8.0  # with few clients, until the cost of speech is measured
_SCALE_IN_AFTER_S = 3.0
_RETRY_S = 0.2
_POLL_S = 0.1
_GIVE_UP_S = 180.0
_WARM_UP_CLIENTS, _LONG_STREAMS = 2, 6


@dataclass(frozen=True, slots=True)
class _ScaledStage:
    """The deployment that is scaled, and the load that needs three replicas of it."""

    deployment: str
    deploy: Callable[[Deployments], AbstractContextManager[None]]
    others: Deployments  # of the application
    clients: int
    text: str
    long_text: str


# A word of 0.2 s costs 10 ms: 30 streams need 1.5 of a replica's time, of which one should have 0.7 at most.
_VOICE = _ScaledStage(
    "voice",
    lambda deployments: voice_replicas(
        CostlySettings(step_s=0.01, max_batch_size=1, reports_cost=True), deployments
    ),
    {},
    clients=30,
    text=text_of(8),
    long_text=text_of(60),
)
# A chunk of 1 to 2 s costs 0.2 s: 14 streams need 1.6 of a replica's time.
_RENDER = _ScaledStage(
    "render",
    lambda deployments: stages_apart(deployments, render_step_s=0.2),
    {"decode": {"num_replicas": 1}},
    clients=14,
    text=text_of(6),
    long_text=text_of(24),
)


def measure(stages: str) -> BenchReport:
    """Scale out and in. stages: "together" scales replicas of the voice, "apart" render replicas."""
    stage = _RENDER if stages == "apart" else _VOICE
    with stage.deploy({**stage.others, stage.deployment: {"autoscaling_config": _scaling()}}):
        figures = asyncio.run(_measure(stage))
    return BenchReport("scale-out", figures, {"clients": stage.clients, "deployment": stage.deployment})


def _scaling() -> dict[str, object]:
    return {
        **{"min_replicas": 1, "max_replicas": _REPLICAS, "upscale_delay_s": 0, "downscale_delay_s": 0},
        **{"metrics_interval_s": 1, "look_back_period_s": 2},
        "policy": {
            "policy_function": "vivavoce.gateway.cluster.ray.autoscaling:ListenerScaling",
            "policy_kwargs": {"scale_in_after_s": _SCALE_IN_AFTER_S},
        },
    }


@dataclass(slots=True)
class _Load:
    """Clients that ask for one utterance after the other."""

    engine: ClusterEngine
    text: str
    asked: int = 0
    refused: int = 0
    refused_early: int = 0  # before they had waited for ``MAX_WAIT_S``
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
            self.asked += 1
            begins = time.monotonic()
            await listener.listen()
            if isinstance(listener.error, Overloaded):
                self.refused += 1
                self.refused_early += time.monotonic() - begins < MAX_WAIT_S
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
                self.refused_early += 1
                await asyncio.sleep(_RETRY_S)


@dataclass(slots=True)
class _ScaleOut:
    """Seconds from the step of the load until three replicas serve; in some of them replicas started."""

    total_s: float
    starting_s: float


async def _measure(stage: _ScaledStage) -> tuple[BenchFigure, ...]:
    async with await join_here() as engine:
        load = _Load(engine, stage.text)
        load.add(_WARM_UP_CLIENTS)
        await asyncio.sleep(_WARM_UP_S)
        load.add(stage.clients - _WARM_UP_CLIENTS)
        grown = await _scale_out(engine, stage.deployment)
        long = [await load.open(stage.long_text) for _ in range(_LONG_STREAMS)]
        speaking = [asyncio.create_task(each.listen()) for each in long]
        while not all(each.has_heard for each in long):
            await asyncio.sleep(_POLL_S)
        await load.stop()
        stopped_at = time.monotonic()
        in_use = await _replicas_in_use(stage.deployment)
        await asyncio.gather(*speaking)
        spoken_s = time.monotonic() - stopped_at
        while await _replicas_in_use(stage.deployment) > 1:
            _check_time(stopped_at)
            await asyncio.sleep(_POLL_S)
        return (
            BenchFigure("from the load to 3 replicas that serve", grown.total_s, "s"),
            BenchFigure("of it, replicas started", grown.starting_s, "s"),
            BenchFigure("the rest", grown.total_s - grown.starting_s, "s", at_most=_MAX_SCALE_OUT_S),
            BenchFigure("streams meanwhile", load.asked, ""),
            BenchFigure("of them refused, and asked for again", load.refused, ""),
            BenchFigure(f"of these, before {MAX_WAIT_S:g} s", load.refused_early, "", at_most=0),
            BenchFigure("failed meanwhile", load.failed, "", at_most=0),
            BenchFigure("replicas when the load ends", in_use, "", at_least=_REPLICAS),
            BenchFigure("streams that go on", len(long), ""),
            BenchFigure("that failed", sum(each.error is not None for each in long), "", at_most=0),
            BenchFigure("that lost their replica", sum(len(each.tried) > 1 for each in long), "", at_most=0),
            BenchFigure("sentences rendered again", _rendered_again(engine.metrics.registry), "", at_most=0),
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


def _rendered_again(registry: CollectorRegistry) -> float:
    """Sentences that a render replica took over from another one."""
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "vivavoce_replica_refusals_total" and sample.labels["reason"] == RENDERED_AGAIN
    )


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
