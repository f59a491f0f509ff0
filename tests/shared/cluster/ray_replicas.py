"""A Ray Serve application whose replicas speak with the stand-in voice, at a given cost."""

import functools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import ray
from pydantic import BaseModel
from ray import serve
from ray.serve import Application

from vivavoce.gateway.cluster.ray.application import bind_replicas
from vivavoce.gateway.cluster.ray.finding import messages
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
    release: str | None = None  # that the replica says it is
    deployment: str = "voice"  # its name
    closings: Path | None = None  # a file to which the time of each closed slot is appended
    steps: Path | None = None  # a folder; a replica notes its steps in a file of its name


class CostlyBackend(StandInBackend):
    """The stand-in voice on a device that takes ``step_s`` for each step."""

    def __init__(self, settings: CostlySettings) -> None:
        super().__init__(max_batch_size=settings.max_batch_size)
        self._settings = settings
        self._begun: set[int] = set()  # slots that had a step

    def close_slot(self, slot: int) -> None:
        super().close_slot(slot)
        note_time(self._settings.closings)

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        begins = time.monotonic()
        time.sleep(self._settings.step_s)
        results = super().step(worker, turns)
        if self._settings.steps is not None:
            self._note_step(self._settings.steps, begins, turns[0].slot)
        if not self._settings.reports_cost:
            return results
        device_s = self._settings.step_s / len(turns)
        return [replace(each, device_s=device_s) for each in results if isinstance(each, StepResult)]

    def _note_step(self, folder: Path, begins: float, slot: int) -> None:
        replica = serve.get_replica_context().replica_id.unique_id
        with (folder / replica).open("a") as opened:
            opened.write(f"{begins} {time.monotonic()} {int(slot not in self._begun)}\n")
        self._begun.add(slot)


@dataclass(frozen=True, slots=True)
class NotedStep:
    """A step of a replica. Times are monotonic seconds."""

    begins: float
    ends: float
    is_first: bool  # of its stream


def read_steps(folder: Path, since: float) -> dict[str, list[NotedStep]]:
    """The steps that began after a time, by replica."""
    found = {}
    for file in folder.iterdir():
        rows = [line.split() for line in file.read_text().splitlines()]
        steps = [NotedStep(float(begins), float(ends), first == "1") for begins, ends, first in rows]
        found[file.name] = [each for each in steps if each.begins > since]
    return found


def note_time(file: Path | None) -> None:
    """Append a line with the monotonic time in seconds, which is the same in all processes of a machine."""
    if file is not None:
        with file.open("a") as opened:
            opened.write(f"{time.monotonic()}\n")


async def open_costly_engine(settings: CostlySettings) -> tuple[Engine, str]:
    if settings.release is not None:
        messages.RELEASE = settings.release
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
