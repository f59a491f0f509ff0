"""Pipecat text-to-speech services for tests: an engine, a service, and a running pipeline around it."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from shared.engine.standin_backend import StandInBackend
from vivavoce import Engine
from vivavoce.adapters.pipecat import VivavoceTTSService, VivavoceWebsocketTTSService
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy

LONG_TEXT = "One two three four five six, " * 20  # 24 s of the stand-in voice


class Collector(FrameProcessor):
    """Records the frames of one direction and passes all frames on."""

    def __init__(self, direction: FrameDirection) -> None:
        super().__init__()
        self.direction = direction
        self.frames: list[Frame] = []
        self.changed = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is self.direction:
            self.frames.append(frame)
            self.changed.set()
        await self.push_frame(frame, direction)


class StoppedClock(BaseClock):
    """A pipeline's clock that stands still, so that times of words do not depend on the machine."""

    def start(self) -> None:
        """Do nothing."""

    def get_time(self) -> int:
        return 0


class RunningPipeline:
    """Sends frames to the service and holds the frames that it pushed downstream and upstream."""

    def __init__(self, worker: PipelineWorker, upstream: Collector, downstream: Collector) -> None:
        self.worker = worker
        self.downstream = downstream
        self.upstream = upstream

    @property
    def frames(self) -> list[Frame]:
        return self.downstream.frames

    def of(self, *kinds: type[Frame]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kinds)]

    @property
    def audio(self) -> bytes:
        return b"".join(frame.audio for frame in self.of(TTSAudioRawFrame))

    @property
    def words(self) -> list[str]:
        return [frame.text.strip(",.;!?()") for frame in self.of(TTSTextFrame)]

    @property
    def errors(self) -> list[ErrorFrame]:
        return [frame for frame in self.upstream.frames if isinstance(frame, ErrorFrame)]

    async def send(self, *frames: Frame) -> None:
        await self.worker.queue_frames(list(frames))

    async def until(self, kind: type[Frame], count: int = 1) -> None:
        """Wait until ``count`` frames of a class have left downstream."""
        async with asyncio.timeout(60):
            while len(self.of(kind)) < count:
                self.downstream.changed.clear()
                await self.downstream.changed.wait()

    async def until_error(self, count: int = 1) -> None:
        async with asyncio.timeout(60):
            while len(self.errors) < count:
                self.upstream.changed.clear()
                await self.upstream.changed.wait()

    async def turn(self, text: str) -> None:
        """Send one LLM reply token by token and wait until its speech has ended."""
        stopped = len(self.of(TTSStoppedFrame))
        await self.send(*reply(text))
        await self.until(TTSStoppedFrame, stopped + 1)


def reply(text: str) -> list[Frame]:
    return [LLMFullResponseStartFrame(), *tokens(text), LLMFullResponseEndFrame()]


def tokens(text: str, size: int = 3) -> list[Frame]:
    return [LLMTextFrame(text[start : start + size]) for start in range(0, len(text), size)]


@asynccontextmanager
async def run_pipeline(
    service: FrameProcessor, *, sample_rate: int = 24_000, clock: BaseClock | None = None, **params: Any
) -> AsyncIterator[RunningPipeline]:
    """Start a pipeline around the service; end it with an EndFrame and wait until it has ended."""
    upstream, downstream = Collector(FrameDirection.UPSTREAM), Collector(FrameDirection.DOWNSTREAM)
    worker = PipelineWorker(
        Pipeline([upstream, service, downstream]),
        enable_rtvi=False,
        cancel_on_idle_timeout=False,
        clock=clock,
        params=PipelineParams(audio_out_sample_rate=sample_rate, **params),
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    pipeline = RunningPipeline(worker, upstream, downstream)
    try:
        await pipeline.until(StartFrame)
        yield pipeline
        await worker.queue_frame(EndFrame())
        async with asyncio.timeout(60):
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def open_engine(backend: StandInBackend | None = None, max_streams: int = 64) -> AsyncIterator[Engine]:
    """An engine with the voices tone-440 and tone-660."""
    config = EngineConfig(SchedulerPolicy(max_streams=max_streams))
    engine = await Engine.open(backend=backend or StandInBackend((440, 660)), config=config)
    async with engine:
        yield engine


def unpaced_service(engine: Engine, **arguments: Any) -> VivavoceTTSService:
    """A service that pushes audio as soon as it is rendered, so that tests do not wait for playback."""
    return VivavoceTTSService(engine=engine, lead_s=math.inf, **arguments)


def remote_service(served: Any, **arguments: Any) -> VivavoceWebsocketTTSService:
    """A service of the ``ServedApis`` that pushes audio as soon as it arrives."""
    url = str(served.client.base_url)
    return VivavoceWebsocketTTSService(**{"url": url, "lead_s": math.inf, **arguments})


async def until_idle(engine: Engine) -> None:
    """Wait until no stream is open; a cancelled stream closes within one step."""
    async with asyncio.timeout(30):
        while engine.active_streams:
            await asyncio.sleep(0.005)


class FailingBackend(StandInBackend):
    """Raises at the word "fail"."""

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        return [
            RuntimeError("the voice failed")
            if self._must_fail(turn)
            else super(FailingBackend, self).step(0, [turn])[0]
            for turn in turns
        ]

    def _must_fail(self, turn: SlotTurn) -> bool:
        slot = self._open[turn.slot]
        segment = turn.segment or slot.segment
        word = 0 if turn.segment is not None else slot.word
        return segment is not None and segment.words[word].text == "fail"
