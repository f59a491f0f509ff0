"""A Pipecat text-to-speech service in a running pipeline, with the frames that leave it at both ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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


class Collector(FrameProcessor):
    """Records the frames of one direction and passes all frames on."""

    def __init__(self, direction: FrameDirection) -> None:
        super().__init__()
        self.direction = direction
        self.frames: list[Frame] = []
        self.came = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if direction is self.direction:
            self.frames.append(frame)
            self.came.set()
        await self.push_frame(frame, direction)


class Line:
    """A running pipeline with one service: sends frames in and gives access to the frames that leave."""

    def __init__(self, worker: PipelineWorker, above: Collector, below: Collector) -> None:
        self.worker = worker
        self.below = below
        self.above = above

    @property
    def frames(self) -> list[Frame]:
        return self.below.frames

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
        return [frame for frame in self.above.frames if isinstance(frame, ErrorFrame)]

    async def send(self, *frames: Frame) -> None:
        await self.worker.queue_frames(list(frames))

    async def until(self, kind: type[Frame], count: int = 1) -> None:
        """Wait until ``count`` frames of a class have left downstream."""
        async with asyncio.timeout(60):
            while len(self.of(kind)) < count:
                self.below.came.clear()
                await self.below.came.wait()

    async def until_error(self, count: int = 1) -> None:
        async with asyncio.timeout(60):
            while len(self.errors) < count:
                self.above.came.clear()
                await self.above.came.wait()

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
async def line(service: FrameProcessor, *, sample_rate: int = 24_000, **params: Any) -> AsyncIterator[Line]:
    """Start a pipeline around the service; end it with an EndFrame."""
    above, below = Collector(FrameDirection.UPSTREAM), Collector(FrameDirection.DOWNSTREAM)
    worker = PipelineWorker(
        Pipeline([above, service, below]),
        enable_rtvi=False,
        cancel_on_idle_timeout=False,
        params=PipelineParams(audio_out_sample_rate=sample_rate, **params),
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    end = Line(worker, above, below)
    try:
        await end.until(StartFrame)
        yield end
        await worker.queue_frame(EndFrame())
        async with asyncio.timeout(60):
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
