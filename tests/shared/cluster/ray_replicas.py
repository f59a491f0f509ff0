"""A Ray Serve application whose replicas speak with the stand-in voice, at a given cost."""

import functools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import ray
from pydantic import BaseModel
from ray.serve import Application

from vivavoce.gateway.cluster.ray.application import bind_replicas
from vivavoce.gateway.cluster.ray.ray_engine import open_ray_engine
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine, StreamRouter
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.engine import Engine, EngineConfig

from ..engine.standin_backend import StandInBackend


class CostlySettings(BaseModel):
    step_s: float = 0.001  # of each step
    max_batch_size: int = 16  # words in a step
    digest: str = "stand-in"
    reports_cost: bool = False  # as time of a device, which admission and autoscaling count
    slow_marker: Path | None = None  # a file; the replica that makes it is slower
    slowness: float = 1.0  # how many times
    deployment: str = "voice"  # its name
    closings: Path | None = None  # a file to which the time of each closed slot is appended


class CostlyBackend(StandInBackend):
    """The stand-in voice on a device that takes ``step_s`` for each step."""

    def __init__(self, settings: CostlySettings) -> None:
        super().__init__(max_batch_size=settings.max_batch_size)
        self._settings = settings

    def close_slot(self, slot: int) -> None:
        super().close_slot(slot)
        note_time(self._settings.closings)

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        time.sleep(self._settings.step_s)
        results = super().step(worker, turns)
        if not self._settings.reports_cost:
            return results
        device_s = self._settings.step_s / len(turns)
        return [replace(each, device_s=device_s) for each in results if isinstance(each, StepResult)]


def note_time(file: Path | None) -> None:
    """Append a line with the monotonic time in seconds, which is the same in all processes of a machine."""
    if file is not None:
        with file.open("a") as opened:
            opened.write(f"{time.monotonic()}\n")


async def open_costly_engine(settings: CostlySettings) -> tuple[Engine, str]:
    if settings.slow_marker is not None:
        with suppress(FileExistsError):
            settings.slow_marker.touch(exist_ok=False)
            settings = settings.model_copy(update={"step_s": settings.step_s * settings.slowness})
    return await Engine.open(backend=CostlyBackend(settings), warm_up=False), settings.digest


async def join_here(routing: StreamRouter | None = None) -> ClusterEngine:
    """A gateway's engine of the Ray cluster that this process has joined; other tests may run another Ray."""
    address = ray.get_runtime_context().gcs_address
    return await open_ray_engine(address, ReplicaSettings(), EngineConfig(), routing=routing)


def build(args: CostlySettings) -> Application:
    return bind_replicas(functools.partial(open_costly_engine, args), args.deployment)
