"""Whole bots on real calls: what an LLM writes, what a phone hears, what the conversation remembers."""

import asyncio
import contextlib
import random
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat warns of old classes of its own
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )
    from pipecat.processors.aggregators.llm_response_universal import (
        LLMContextAggregatorPair,
        LLMUserAggregatorParams,
    )
    from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from shared.engine.standin_backend import StandInBackend
from shared.event_loop import in_loop
from vivavoce import Engine
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
)
from vivavoce.adapters.pipecat import (
    AudioSocketTransport,
    PipecatAudioSocketServer,
    VivavoceTTSService,
    VivavoceWebsocketTTSService,
)
from vivavoce.gateway.calls.agents.agent import llm_tokens
from vivavoce.gateway.cli.bench.processes import run_server_process
from vivavoce.tts_engine.chunk import Word

TOKENS_PER_S = 40
PACKET_S = 0.02
PREEMPTED_SHARE = 0.001  # of the callbacks of the event loop
STORY = (
    "alpha bravo charlie delta echo, foxtrot golf hotel india juliet. "
    "kilo lima mike november oscar papa; quebec romeo sierra tango uniform. victor whiskey xray yankee zulu."
)


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    logger.disable("pipecat")
    logger.disable("vivavoce")
    yield
    logger.enable("pipecat")
    logger.enable("vivavoce")


class Call:
    """A phone, the bot that answers it, and what both know afterwards."""

    def __init__(self) -> None:
        self.context = LLMContext()
        self.worker: PipelineWorker
        self.transport: AudioSocketTransport
        self.connected = asyncio.Event()
        self.packets: list[bytes] = []
        self.loud: list[int] = []  # numbers of packets with anything in them
        self.came = asyncio.Event()

    @property
    def said(self) -> list[str]:
        """Words that the conversation remembers the bot to have said."""
        spoken = [str(m["content"]) for m in self.context.get_messages() if m["role"] == "assistant"]
        return " ".join(spoken).split()

    @property
    def heard_s(self) -> float:
        """From the first loud packet to the last, as the phone received them."""
        return (self.loud[-1] - self.loud[0] + 1) * PACKET_S if self.loud else 0.0

    async def listen(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connection = AudioSocketConnection(AudioSocketRole.CALLER)
        call_id = uuid.uuid4()
        writer.write(connection.send(CallId(call_id)))
        try:
            while data := await reader.read(65_536):
                connection.receive_data(data)
                for event in connection.events():
                    if isinstance(event, AudioSocketAudio):
                        if any(event.payload):
                            self.loud.append(len(self.packets))
                        self.packets.append(event.payload)
                self.came.set()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def until_heard(self, seconds: float) -> None:
        async with asyncio.timeout(180):
            while self.heard_s < seconds:
                self.came.clear()
                await self.came.wait()

    async def until_silent(self, packets: int = 25) -> None:
        async with asyncio.timeout(180):
            while not self.loud or len(self.packets) - self.loud[-1] <= packets:
                self.came.clear()
                await self.came.wait()

    async def until_said(self, text: str) -> None:
        """Until it is remembered as said: whole, and not as soon as there is a gap in it."""
        async with asyncio.timeout(180):
            while self.said != text.split():
                await asyncio.sleep(0.02)

    async def write(self, text: str) -> None:
        """An LLM's reply, token by token."""
        await self.worker.queue_frame(LLMFullResponseStartFrame())
        for token in llm_tokens(text):
            await self.worker.queue_frame(LLMTextFrame(token))
            await asyncio.sleep(1 / TOKENS_PER_S)
        await self.worker.queue_frame(LLMFullResponseEndFrame())


class Bots:
    """Answers calls in the order in which they come."""

    def __init__(self, make_tts: Callable[[], TTSService], calls: list[Call]) -> None:
        self._make_tts = make_tts
        self._calls = iter(calls)

    async def __call__(self, transport: AudioSocketTransport) -> None:
        call = next(self._calls)
        call.transport = transport
        # Nobody listens to these callers; the default strategies load a network for each of them.
        nobody = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
        pair = LLMContextAggregatorPair(call.context, user_params=nobody)
        call.worker = PipelineWorker(
            Pipeline(
                [
                    transport.input(),
                    self._make_tts(),
                    transport.output(),
                    pair.assistant(),
                ]
            ),
            params=PipelineParams(audio_in_sample_rate=8_000, audio_out_sample_rate=8_000),
            cancel_on_idle_timeout=False,
        )

        @transport.event_handler("on_client_connected")  # type: ignore[untyped-decorator]
        async def on_client_connected(*_: object) -> None:
            call.connected.set()

        @transport.event_handler("on_client_disconnected")  # type: ignore[untyped-decorator]
        async def on_client_disconnected(*_: object) -> None:
            await call.worker.cancel()

        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(call.worker)
        await runner.run()


@contextlib.asynccontextmanager
async def calls(count: int, speaker: Engine | str) -> AsyncIterator[list[Call]]:
    """Calls that are up, and hung up by their bots in the end."""

    def make_tts() -> TTSService:
        if isinstance(speaker, Engine):
            return VivavoceTTSService(engine=speaker)
        return VivavoceWebsocketTTSService(url=speaker)

    up = [Call() for _ in range(count)]
    async with PipecatAudioSocketServer(Bots(make_tts, up), port=0) as bots:
        listening = [asyncio.create_task(call.listen(bots.port)) for call in up]
        try:
            async with asyncio.timeout(180):
                await asyncio.gather(*(call.connected.wait() for call in up))
            yield up
            await asyncio.gather(*(call.worker.queue_frame(EndFrame()) for call in up))
            await asyncio.wait(listening, timeout=60)
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)


async def words_of(engine: Engine, text: str) -> list[Word]:
    """When each word of a text is said; the voice is the same for the same text."""
    async with engine.stream() as stream:
        stream.push_text(text)
        stream.end_input()
        return [word async for chunk in stream for word in chunk.words]


async def interrupt(up: list[Call]) -> None:
    """Interrupt a story on each call, at any moment of it."""
    moments = random.Random(7)

    async def talk_over(call: Call) -> None:
        writing = asyncio.create_task(call.write(STORY))
        await call.until_heard(moments.uniform(0.1, 3.0))
        writing.cancel()
        await call.worker.queue_frame(InterruptionFrame())
        await call.until_silent()

    for first in range(0, len(up), 5):  # five at once: the words are counted here, not the load borne
        await asyncio.gather(*(talk_over(call) for call in up[first : first + 5]))


def words_heard(call: Call, words: list[Word]) -> int:
    """By the speech that the transport sent."""
    sent_s = call.transport.stats.speech_packets * PACKET_S
    return sum((word.start_s + word.stop_s) / 2 < sent_s for word in words)


async def check_what_is_remembered(up: list[Call], words: list[Word]) -> None:
    """Remembered: by the assistant's context, which is told of an interruption behind the silence."""
    for call in up:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                while abs(len(call.said) - words_heard(call, words)) > 1:
                    await asyncio.sleep(0.02)
        assert abs(len(call.said) - words_heard(call, words)) <= 1, (words_heard(call, words), call.said)
        assert (
            call.said == STORY.split()[: len(call.said)]
            or call.said[:-1] == (STORY.split()[: len(call.said) - 1])
        )


@in_loop
async def test_the_conversation_remembers_what_was_heard_in_25_of_25_interruptions() -> None:
    async with await Engine.open(backend=StandInBackend()) as engine, calls(25, engine) as up:
        words = await words_of(engine, STORY)
        await interrupt(up)
        await check_what_is_remembered(up, words)


def test_a_process_without_processor_time_remembers_nothing_that_was_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with await Engine.open(backend=StandInBackend()) as engine, calls(20, engine) as up:
            words = await words_of(engine, STORY)
            with monkeypatch.context() as patch:
                preempt_callbacks(patch)
                await interrupt(up)
            await asyncio.sleep(1)
            remembered = [(len(call.said), words_heard(call, words)) for call in up]
            assert [pair for pair in remembered if pair[0] > pair[1] + 1] == []

    asyncio.run(test())


def preempt_callbacks(patch: pytest.MonkeyPatch) -> None:
    """Delay callbacks of the event loop at random, as other processes do that take the processor."""
    run, delays = asyncio.events.Handle._run, random.Random(3)

    def run_delayed(handle: asyncio.Handle) -> None:
        if delays.random() < PREEMPTED_SHARE:
            time.sleep(delays.uniform(0.05, 0.3))
        run(handle)

    patch.setattr(asyncio.events.Handle, "_run", run_delayed)


def test_the_conversation_remembers_what_was_heard_of_a_server() -> None:
    async def test(url: str) -> None:
        async with await Engine.open() as engine:  # the same voice
            words = await words_of(engine, STORY)
        async with calls(5, url) as up:
            await interrupt(up)
            await check_what_is_remembered(up, words)

    with run_server_process() as url:
        asyncio.run(test(url))


@in_loop
async def test_a_writer_that_stops_in_mid_reply_does_not_move_words_before_their_sound() -> None:
    """Behind a gap, a word must not be remembered before it is heard."""
    async with await Engine.open(backend=StandInBackend()) as engine, calls(1, engine) as (call,):
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("alpha bravo. charlie"))
        await call.until_silent(50)
        gap = len(call.packets)
        await call.worker.queue_frame(LLMTextFrame(" delta echo foxtrot golf hotel india. "))
        await call.worker.queue_frame(LLMTextFrame("juliet kilo. "))
        async with asyncio.timeout(30):
            while call.loud[-1] < gap:
                call.came.clear()
                await call.came.wait()
        await call.worker.queue_frame(InterruptionFrame())
        await call.until_silent()
        heard = sum(number >= gap for number in call.loud) * PACKET_S
        assert len(call.said) - 2 <= heard / 0.2 + 1


@in_loop
async def test_twenty_bots_in_one_process_are_each_heard_whole() -> None:
    async with await Engine.open(backend=StandInBackend()) as engine, calls(20, engine) as up:
        words = await words_of(engine, STORY)
        await asyncio.gather(*(call.write(STORY) for call in up))
        await asyncio.gather(*(call.until_heard(words[-1].stop_s - 0.05) for call in up))
        await asyncio.gather(*(call.until_said(STORY) for call in up))


@in_loop
async def test_the_packaged_voice_says_the_text_as_it_was_written() -> None:
    text = "Well, that's $42.50, Dr. Who. Call 555-0123 for 3-4 items, e.g. at 7 p.m.; ok? Thanks!"
    async with await Engine.open() as engine, calls(1, engine) as (call,):
        await call.write(text)
        await call.until_said(text)
