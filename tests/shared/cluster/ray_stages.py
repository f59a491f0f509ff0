"""A Ray Serve application with its stages apart, on a small CosyVoice bundle with random weights.

In the place of flow and vocoder, a render replica has a stand-in that takes a given time for each chunk.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
from ray.serve import Application

from vivavoce.gateway.cluster.ray.application import build as build_application
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule
from vivavoce.models.devices.planned_captures import CaptureQueue
from vivavoce.tts_engine.backends.base import ALL_STAGES, Stages
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.conditioning import FlowPrompt
from vivavoce.tts_engine.cosyvoice.rendering.render_host import RenderHost
from vivavoce.tts_engine.cosyvoice.rendering.render_messages import ChunkRequest, RenderReply
from vivavoce.tts_engine.cosyvoice.rendering.render_stage import (
    LocalRenderStage,
    RenderInput,
    RenderStage,
    Samples,
)
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.scheduler import ComputeCost

from ..voices.tiny_cosyvoice import BRIEF, SAMPLES_PER_ID
from .ray_replicas import note_time

RENDERED_AGAIN = "rendered again"  # the reason under which ``vivavoce_replica_refusals_total`` counts it
_POLICY = replace(BRIEF, length=SpeechLengthRule(6, 6), slots=64)


class StagesApart(ReplicaSettings):
    """Settings of the replicas.

    render_step_s: for each chunk, of 1 to 2 s. closings: folder of the files "decode" and "render", to which
    the times of closed slots and released sentences are appended.
    """

    render_step_s: float = 0.0
    closings: Path | None = None

    async def open_decode_engine(self, render_stage: RenderStage) -> Engine:
        backend = await asyncio.to_thread(
            NotingDecoder.load_decoder, Path(self.bundle), _POLICY, render_stage
        )
        assert isinstance(backend, NotingDecoder)
        backend.closings = self.closings and self.closings / "decode"
        return await Engine.open(backend=backend, warm_up=False)

    def load_render_host(self, replica: str) -> RenderHost:
        closings = self.closings and self.closings / "render"
        return CostlyRenderHost(self.render_step_s, replica, self.digest(), closings)


class NotingDecoder(CosyVoiceBackend):
    """Notes when a slot is closed."""

    closings: Path | None = None

    def close_slot(self, slot: int) -> None:
        super().close_slot(slot)
        note_time(self.closings)


class CostlyRenderHost(RenderHost):
    """Renders one chunk at a time, counts sentences that another replica had begun, and notes releases."""

    def __init__(self, step_s: float, replica: str, digest: str, closings: Path | None = None) -> None:
        stage = LocalRenderStage(CostlyRenderer(step_s), _POLICY)
        super().__init__(stage, replica, digest, slots=_POLICY.slots, max_rows=1)
        self._cost = GivenCost(step_s)
        self._closings = closings

    def release(self, decoder: str, sentence: int) -> None:
        super().release(decoder, sentence)
        note_time(self._closings)

    def render(self, request: ChunkRequest) -> "Future[RenderReply]":
        if len(request.chunks) > 1:
            self.metrics.refusals.labels(RENDERED_AGAIN).inc()
        return super().render(request)


class GivenCost(ComputeCost):
    """Counts the time of a device for each step, which the processor's time says nothing of."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s = step_s

    def observe(self, compute_s: float, audio_s: float, now: float, stages: Stages = ALL_STAGES) -> None:
        super().observe(self._step_s, audio_s, now, stages)


class CostlyRenderer:
    """Takes its time and gives a tone; the runner of a ``LocalRenderStage``."""

    memory_ids, prepared_voice_ids = 1_000_000, 0

    def __init__(self, step_s: float) -> None:
        self._step_s, self.captures = step_s, CaptureQueue()

    def copied_voice_ids(self, flow_prompt: FlowPrompt) -> int:
        return 0

    def begin_sentence(self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator) -> None:
        return None

    def flow_batch_key(self, wanted: RenderInput) -> None:
        return None

    def run_flow(self, inputs: Mapping[int, RenderInput]) -> dict[int, int]:
        time.sleep(self._step_s)
        return {row: wanted.chunk.stop - wanted.chunk.start for row, wanted in inputs.items()}

    def vocoder_input(self, wanted: RenderInput, ids: int) -> int:
        return ids

    def vocoder_batch_key(self, ids: int) -> None:
        return None

    def run_vocoder(self, inputs: Mapping[int, int]) -> dict[int, Samples]:
        return {row: _tone(ids * SAMPLES_PER_ID) for row, ids in inputs.items()}

    def free(self, state: None) -> None:
        pass


def _tone(samples: int) -> Samples:
    return (0.2 * np.sin(2 * np.pi * 440 * np.arange(samples) / 24_000)).astype(np.float32)


def build(args: StagesApart) -> Application:
    return build_application(args)
