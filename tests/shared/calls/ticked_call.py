"""A call in virtual time for tests, with an engine that renders one second for each sentence."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from vivavoce.adapters.media.paced_media import PacedMedia, SpeechDetector
from vivavoce.adapters.playback.playout import Playout
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.pressure.call_pressure import CallPressure
from vivavoce.gateway.calls.pressure.processor_load import ProcessorLoad
from vivavoce.gateway.calls.pressure.processor_time import ProcessorQuota, ProcessorUse
from vivavoce.gateway.calls.recordings import CallRecordings
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from vivavoce.tts_engine.errors import BadText, Overloaded, StreamClosed, SynthesisFailed
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.reading.pronunciation.lexicon import Lexicon, Pronunciation
from vivavoce.tts_engine.reading.prosody import Prosody
from vivavoce.tts_engine.scheduler import Admission
from vivavoce.tts_engine.stream_request import Delivery, StreamRequest

RunVirtually = Callable[[Coroutine[Any, Any, None]], None]
SENTENCE_S = 1.0
LEAD_S = 0.6


class FakeStream:
    """Renders a second of the constant ``level`` for each sentence; the sentence "Fail." raises."""

    def __init__(self, level: int, now: Callable[[], float]) -> None:
        self.pushed = ""
        self.ended = self.cancelled = False
        self.rate = 1.0
        self.taken_at: list[float] = []
        self.deadlines: list[float] = []
        self.on_chunk: Callable[[], object] = lambda: None
        self._level = level
        self._now = now
        self._rendered = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "FakeStream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        if self.cancelled or self.ended:
            raise StreamClosed("no more")
        if "\x00" in text:
            raise BadText("a zero")
        self.pushed += text
        self._changed.set()

    def set_prosody(self, prosody: Prosody) -> None:
        self.rate = prosody.speed

    def set_language(self, language: str | None) -> None: ...

    def end_input(self) -> None:
        self.ended = True
        self._changed.set()

    def cancel(self) -> None:
        self.cancelled = True
        self._changed.set()

    def set_deadline(self, runs_dry_at: float) -> None:
        self.deadlines.append(runs_dry_at)

    def __aiter__(self) -> "FakeStream":
        return self

    async def __anext__(self) -> AudioChunk:
        while True:
            if self.cancelled:
                raise StopAsyncIteration
            stop = self.pushed.find(".", self._rendered) + 1
            if stop:
                chunk = self._speak(self._rendered, stop)
                self.on_chunk()
                return chunk
            if self.ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def _speak(self, start: int, stop: int) -> AudioChunk:
        if self.pushed[start:stop].strip() == "Fail.":
            raise SynthesisFailed("the voice failed")
        index = len(self.taken_at)
        self._rendered = stop
        self.taken_at.append(self._now())
        samples = round(SENTENCE_S * SAMPLE_RATE)
        pcm = np.full(samples, self._level, "<i2").tobytes()
        at = (index * samples, (index + 1) * samples)
        return AudioChunk(pcm, index, at, (start, stop), (), Provenance(None, None, 0, 0), final=False)


class FakeEngine:
    """Opens fake streams; ``requested`` has (voice, speed, seed) of each. Refuses streams while ``full``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.metrics = Metrics()
        self.process_ids: tuple[int, ...] = ()
        self.streams: list[FakeStream] = []
        self.requested: list[tuple[str | None, float, int]] = []
        self.lexicons: tuple[Lexicon, ...] = ()  # of the last stream
        self.delivery = Delivery()  # of the last stream
        self.full = False
        self._now = now

    def refusal(self, admission: Admission) -> Overloaded | None:
        return Overloaded("256 streams are open", reason="streams", retry_after_s=1.0) if self.full else None

    def open_stream(self, request: StreamRequest, admission: Admission) -> FakeStream:
        if self.full:
            raise Overloaded("256 streams are open", reason="streams", retry_after_s=1.0)
        self.requested.append((request.voice, request.speed, request.seed))
        self.lexicons, self.delivery = request.lexicons, request.delivery
        self.streams.append(FakeStream(1000 * (len(self.streams) + 1), self._now))
        return self.streams[-1]


class TickedCall:
    """A call that ticks every 20 ms; ``sent`` has all packets, ``sent_levels`` the level of each."""

    def __init__(
        self, detector: SpeechDetector | None = None, recordings: CallRecordings | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.engine = FakeEngine(loop.time)
        self.sent = bytearray()
        self.sent_levels: list[int] = []
        self.reasons: list[str] = []
        playout = Playout(start=loop.time(), sample_rate=SAMPLE_RATE)
        self.media = PacedMedia(playout, self._send, now=loop.time, detector=detector)
        self.pressure = CallPressure(
            ProcessorLoad(ProcessorUse.read, lambda: 0.0, lambda: 0, ProcessorQuota(1.0, is_shared=True))
        )
        self.call = Call(
            "call-1",
            engine=self.engine,  # type: ignore[arg-type]
            media=self.media,
            close=self._close,
            recordings=recordings,
            lead_s=LEAD_S,
            pressure=self.pressure,
            now=loop.time,
        )
        self.on_close = self.call.on_closed

    def _send(self, packet: bytes) -> None:
        self.sent += packet
        samples = np.frombuffer(packet, "<i2")
        self.sent_levels.append(int(samples[len(samples) // 2]))

    def _close(self, reason: str) -> None:
        if not self.reasons:
            self.reasons.append(reason)
            self.on_close()

    async def tick(self) -> None:
        start = self.now()
        for number in range(100_000):
            await asyncio.sleep(start + number * 0.02 - self.now())
            self.media.tick(self.now())

    def seconds_of(self, level: int) -> float:
        return self.sent_levels.count(level) * 0.02

    def metric(self, name: str) -> float | None:
        return self.engine.metrics.registry.get_sample_value(f"vivavoce_{name}")


@asynccontextmanager
async def open_call(
    detector: SpeechDetector | None = None, recordings: CallRecordings | None = None
) -> AsyncIterator[TickedCall]:
    ticked = TickedCall(detector, recordings)
    ticking = asyncio.create_task(ticked.tick())
    yield ticked
    ticking.cancel()
    await asyncio.wait({ticking})
    left_over = asyncio.all_tasks() - {asyncio.current_task()}
    assert left_over == set()


async def deltas(*texts: str, every_s: float = 0.0) -> AsyncIterator[str]:
    for text in texts:
        await asyncio.sleep(every_s)
        yield text
