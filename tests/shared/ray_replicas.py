"""A Ray Serve application whose replicas speak with the stand-in voice, at a given cost."""

import functools
import time
from collections.abc import Sequence

from pydantic import BaseModel
from ray.serve import Application

from vivavoce.gateway.cluster.ray.application import bind_replicas
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.engine import Engine

from .standin_backend import StandInBackend


class CostlyBackend(StandInBackend):
    """The stand-in voice on a device that takes ``step_s`` for a batch of up to 16 words."""

    def __init__(self, step_s: float) -> None:
        super().__init__(max_batch_size=16)
        self._step_s = step_s

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        time.sleep(self._step_s)
        return super().step(worker, turns)


class CostlySettings(BaseModel):
    step_s: float = 0.001
    digest: str = "stand-in"


async def open_costly_engine(settings: CostlySettings) -> tuple[Engine, str]:
    return await Engine.open(backend=CostlyBackend(settings.step_s), warm_up=False), settings.digest


def build(args: CostlySettings) -> Application:
    return bind_replicas(functools.partial(open_costly_engine, args))
