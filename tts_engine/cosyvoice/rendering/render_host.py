"""The render replica's side: renders sentences of several decode replicas in common steps, on one thread.

    requests of all decode replicas -> queue, by playout deadline -> a step of the flow and the vocoder

A sentence's state is kept between its chunks. It is dropped after the last one, when it is released, when its
decode replica is silent, and when another sentence needs the room of one whose listener is paused. A decode
replica that still wants it sends it once more.
"""

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....models.cosyvoice.flow.hop_schedule import SpeechIdChunk
from ...backends.base import Stage
from ...backends.divided_stages import RenderReplicaDescription
from ...chunk import SAMPLE_RATE
from ...errors import BadRequest, Overloaded, SynthesisFailed, VivavoceError
from ...metrics import Metrics
from ...scheduler import ComputeCost, SchedulerPolicy, admit, step_cost_s
from ...voice_kit.fault_isolation import FaultIsolation, is_device_lost, is_out_of_memory
from ..conditioning import FlowPrompt
from .render_messages import (
    ChunkRequest,
    RenderedChunk,
    RenderingFailed,
    RenderReply,
    SentenceMissing,
    VoiceMissing,
)
from .render_stage import LocalRenderStage, RenderInput, Samples

logger = logging.getLogger(__name__)

_MAX_SILENCE_S = 10.0  # of a decode replica, which asks every second
_MIN_PAUSE_S = 5.0  # without a request, before a sentence gives up its room; a chunk has 2 s at most
_MAX_VOICES = 256  # kept as they were sent; 170 kB each with a recording of 10 s
_MAX_REQUESTS = 1000  # that wait; each decode replica has a few under way
_SHORT_LEAD_S = 0.1  # a listener with less left when the samples leave soon hears nothing


@dataclass(slots=True, eq=False)
class HostedSentence:
    """A sentence of a decode replica."""

    number: int  # of this replica: a higher one was opened later
    flow_prompt: FlowPrompt
    speed: float
    noise: np.random.Generator
    ids: list[int] = field(default_factory=list)
    state: Any = None  # of the runner; None before the first chunk
    used_at: float = 0.0  # when its last request came or was answered
    trace_id: str = "-"  # of the stream, for logs
    chunks: int = 0  # answered
    samples: int = 0  # in these chunks
    answer_s: float = 0.0  # from the requests to the answers of these chunks, in all

    def render_input(self, stage: LocalRenderStage, chunk: SpeechIdChunk) -> RenderInput:
        """The stage's input for a chunk. Raises MemoryError."""
        if self.state is None:
            self.state = stage.begin_sentence(self.flow_prompt, self.speed, self.noise)
        return RenderInput(self.state, chunk, self.ids)


@dataclass(slots=True, eq=False)
class _Job:
    """A request that waits or is in a step."""

    key: tuple[str, int]
    sentence: HostedSentence
    chunks: deque[SpeechIdChunk]  # to render
    received_at: float
    lead_s: float | None
    answer: "Future[RenderReply]" = field(default_factory=Future)

    @property
    def urgency(self) -> tuple[bool, float]:
        """Sort key as the scheduler's: listeners who heard nothing yet, then those who run dry soonest."""
        return self.lead_s is not None, self.received_at + (self.lead_s or 0.0)


class RenderStats:
    """How late the answers are for listeners, for autoscaling. Not for several threads at once."""

    def __init__(self) -> None:
        self._first_s: list[float] = []
        self._short: list[bool] = []

    def observe(self, answer_s: float, lead_s: float | None) -> None:
        """Add an answer. lead_s: the listener's when the request came; None for the first audio."""
        if lead_s is None:
            self._first_s.append(answer_s)
        else:
            self._short.append(lead_s - answer_s < _SHORT_LEAD_S)

    def take(self) -> dict[str, float]:
        """The p95 of first audio in seconds and the share of short leads since the last call."""
        first_s, short = sorted(self._first_s), self._short
        self._first_s, self._short = [], []
        return {
            "first_audio_p95_s": first_s[math.ceil(0.95 * len(first_s)) - 1] if first_s else 0.0,
            "short_lead_share": sum(short) / max(1, len(short)),
        }


class RenderHost:
    """The render stage of a bundle for decode replicas. Its methods return at once, on any thread.

    replica: its id. bundle_digest: equal digests render equally. slots, max_rows: sentences at once, and in
    a step. clock: monotonic seconds.

    Attributes:
        metrics: steps, speech rendered, leads and failures; its streams are the sentences.
    """

    def __init__(
        self,
        stage: LocalRenderStage,
        replica: str,
        bundle_digest: str,
        *,
        slots: int,
        max_rows: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage, self._replica, self._bundle_digest = stage, replica, bundle_digest
        self._slots, self._max_rows, self._clock = slots, max_rows, clock
        self._condition = threading.Condition()
        self._voices: OrderedDict[str, FlowPrompt] = OrderedDict()
        self._sentences: dict[tuple[str, int], HostedSentence] = {}
        self._jobs: list[_Job] = []
        self._heard_at: dict[str, float] = {}  # by decode replica
        self._opened = 0
        self._cost = ComputeCost()
        self._stats = RenderStats()
        self.metrics = Metrics()
        self._closing = self._device_is_lost = False
        self._thread = threading.Thread(target=self._work, name="vivavoce-render", daemon=True)
        self._thread.start()

    @property
    def is_healthy(self) -> bool:
        """Whether it can render: its thread runs and its device has not failed."""
        return self._thread.is_alive() and not self._device_is_lost

    def describe(self, decoder: str) -> RenderReplicaDescription:
        """The replica as it is now. decoder: id of the decode replica that asks, which thereby is alive."""
        with self._condition:
            self._hear(decoder)
            self._drop_silent()
            self._condition.notify()  # a request may wait for the room of a sentence that has paused by now
            sentences, refusal = len(self._sentences), self._refusal()
            room = 0 if refusal else max(0, self._count_slots() - sentences)
            return RenderReplicaDescription(
                self._replica, self._bundle_digest, sentences, room, refusal is not None
            )

    def keep_voice(self, flow_prompt: FlowPrompt) -> None:
        """Keep a voice for the sentences to come."""
        with self._condition:
            self._voices[flow_prompt.key] = flow_prompt
            if len(self._voices) > _MAX_VOICES:
                self._voices.popitem(last=False)

    def render(self, request: ChunkRequest) -> "Future[RenderReply]":
        """Render the next chunk of a sentence."""
        with self._condition:
            self._hear(request.decoder)
            key = request.decoder, request.sentence
            if request.noise is not None and not self._open(key, request):
                return _answered(VoiceMissing())
            sentence = self._sentences.get(key)
            if sentence is None or len(sentence.ids) != request.first_id:
                return _answered(SentenceMissing())
            if len(self._jobs) >= _MAX_REQUESTS:
                return _answered(RenderingFailed(_overloaded(f"{_MAX_REQUESTS} chunks wait")))
            sentence.ids += request.ids
            sentence.used_at = self._clock()
            job = _Job(key, sentence, deque(request.chunks), self._clock(), request.lead_s)
            job.answer.set_running_or_notify_cancel()  # the asker cannot cancel it, but can release it
            self._jobs.append(job)
            self._condition.notify()
            return job.answer

    def release(self, decoder: str, sentence: int) -> None:
        """Drop a sentence; a request of it that waits is answered at once, one in a step after the step."""
        with self._condition:
            self._drop((decoder, sentence))

    def hears(self, decoder: str) -> bool:
        """Whether a decode replica has asked for something lately."""
        with self._condition:
            heard_at = self._heard_at.get(decoder)
            return heard_at is not None and self._clock() - heard_at < _MAX_SILENCE_S

    def listener_stats(self) -> dict[str, float]:
        """The statistics for autoscaling since the last call, by the names of ``StageReport``."""
        with self._condition:
            sentences = len(self._sentences)
            load = sentences * self._cost.compute_s_per_audio_s
            refused_share = float(sentences > 0 and self._refusal() is not None)
            counts = {"open_streams": float(sentences), "load": load, "refused_share": refused_share}
            return counts | self._stats.take()

    def close(self) -> None:
        """End all sentences and the thread."""
        with self._condition:
            self._closing = True
            for key in [*self._sentences]:
                self._drop(key)
            self._condition.notify()
        self._thread.join()

    # Under the lock

    def _open(self, key: tuple[str, int], request: ChunkRequest) -> bool:
        """Open a sentence, anew if it is there; False if its voice is missing."""
        flow_prompt = self._voices.get(request.voice)
        if flow_prompt is None or request.noise is None:
            return False
        self._voices.move_to_end(request.voice)
        self._drop(key)
        self._opened += 1
        sentence = HostedSentence(self._opened, flow_prompt, request.speed, request.noise)
        sentence.trace_id = request.trace_id
        self._sentences[key] = sentence
        self.metrics.active_streams.set(len(self._sentences))
        return True

    def _drop(self, key: tuple[str, int]) -> None:
        if self._sentences.pop(key, None) is None:
            return
        self.metrics.active_streams.set(len(self._sentences))
        for job in [job for job in self._jobs if job.key == key]:
            self._jobs.remove(job)
            job.answer.set_result(_released())
        self._condition.notify()  # another sentence may have waited for its slot

    def _hear(self, decoder: str) -> None:
        self._heard_at[decoder] = self._clock()

    def _drop_silent(self) -> None:
        silent_since = self._clock() - _MAX_SILENCE_S
        for decoder in [each for each, heard_at in self._heard_at.items() if heard_at <= silent_since]:
            del self._heard_at[decoder]
            for key in [key for key in self._sentences if key[0] == decoder]:
                self._drop(key)

    def _drop_paused(self) -> bool:
        """Drop the sentence that has paused longest; False if none has."""
        waiting = {job.key for job in self._jobs}
        paused = {
            key: sentence
            for key, sentence in self._sentences.items()
            if sentence.state is not None
            and key not in waiting
            and self._clock() - sentence.used_at >= _MIN_PAUSE_S
        }
        if not paused:
            return False
        self._drop(min(paused, key=lambda key: paused[key].used_at))
        return True

    def _count_slots(self) -> int:
        speech = [(each.flow_prompt, len(each.ids)) for each in self._sentences.values()]
        return min(self._slots, self._stage.memory_slots(speech))

    def _refusal(self) -> Overloaded | None:
        if self._device_is_lost:
            return _overloaded("its device failed")
        try:
            admit(
                len(self._sentences),
                slots=self._slots,
                memory_slots=self._count_slots(),
                cost=self._cost,
                policy=SchedulerPolicy(),
            )
        except Overloaded as refusal:
            return refusal
        return None

    def _next_batch(self) -> list[_Job]:
        """Take the most urgent requests; a sentence without a state needs a free slot."""
        batch: list[_Job] = []
        free_slots = self._count_slots() - sum(each.state is not None for each in self._sentences.values())
        for job in sorted(self._jobs, key=lambda job: job.urgency):
            if len(batch) == self._max_rows:
                break
            if job.sentence.state is None:
                if free_slots <= 0 and not self._drop_paused():
                    continue
                free_slots -= free_slots > 0
            batch.append(job)
        for job in batch:
            self._jobs.remove(job)
        return batch

    # On the thread

    def _work(self) -> None:
        while True:
            with self._condition:
                while not (batch := self._next_batch()):
                    if self._closing:
                        return
                    self._condition.wait()
            self._run(dict(enumerate(batch)))

    def _run(self, jobs: Mapping[int, _Job]) -> None:
        """Render one chunk of every request."""
        wall, cpu = time.monotonic(), time.thread_time()
        isolation = FaultIsolation(
            {row: job.sentence.number for row, job in jobs.items()},
            free_memory=lambda row: self._free(jobs[row].sentence),
        )
        render_inputs = isolation.run_each(
            jobs, lambda row, job: job.sentence.render_input(self._stage, job.chunks[0])
        )
        samples = self._stage.render(render_inputs, isolation)
        wall, cpu = time.monotonic() - wall, time.thread_time() - cpu
        self.metrics.steps.labels(Stage.RENDER.value).observe(wall)
        with self._condition:
            self._device_is_lost |= isolation.device_is_lost
            audio_s = sum(map(len, samples.values())) / SAMPLE_RATE
            self._cost.observe(step_cost_s(wall, cpu), audio_s, self._clock())
            self.metrics.audio_seconds.inc(audio_s)
            for row, job in jobs.items():
                self._commit(job, samples.get(row), isolation.failed.get(row))

    def _free(self, sentence: HostedSentence) -> None:
        if sentence.state is not None:
            self._stage.free(sentence.state)

    def _commit(self, job: _Job, samples: Samples | None, error: Exception | None) -> None:
        """Answer a request whose chunk was rendered, or queue its next chunk or part; the lock is held."""
        is_open = self._sentences.get(job.key) is job.sentence
        if samples is None and error is None and is_open:
            self._jobs.append(job)  # rendered in part
            return
        if error is not None:
            self.metrics.failures.inc()
            logger.error("trace %s: a chunk was not rendered: %s", job.sentence.trace_id, error)
            if is_open:
                self._drop(job.key)
            job.answer.set_result(RenderingFailed(_portable(error)))
            return
        if not is_open or samples is None:
            job.answer.set_result(_released())
            return
        chunk = job.chunks.popleft()
        if job.chunks:
            self._jobs.append(job)
            return
        if chunk.final:
            self._drop(job.key)
        job.sentence.used_at = self._clock()
        self._observe(job, len(samples), chunk.final)
        noise = job.sentence.noise if chunk.final else None
        job.answer.set_result(RenderedChunk(samples, noise, (*job.key, chunk.stop)))

    def _observe(self, job: _Job, samples: int, final: bool) -> None:
        """Count an answer in the statistics, the metrics and the log; the lock is held."""
        sentence, answer_s = job.sentence, job.sentence.used_at - job.received_at
        sentence.chunks, sentence.samples = sentence.chunks + 1, sentence.samples + samples
        sentence.answer_s += answer_s
        self._stats.observe(answer_s, job.lead_s)
        if job.lead_s is not None:
            self.metrics.playout_lead.observe(max(0.0, job.lead_s - answer_s))
        decoder, number = job.key
        logger.log(
            logging.INFO if final else logging.DEBUG,
            "trace %s: sentence %d of decoder %s: %d chunks, %.2f s of speech, rendered in %.0f ms",
            *(sentence.trace_id, number, decoder),
            *(sentence.chunks, sentence.samples / SAMPLE_RATE, 1000 * sentence.answer_s),
        )


def _answered(reply: RenderReply) -> "Future[RenderReply]":
    answer: Future[RenderReply] = Future()
    answer.set_result(reply)
    return answer


def _released() -> RenderingFailed:
    return RenderingFailed(SynthesisFailed("the sentence was released"))


def _overloaded(what: str) -> Overloaded:
    return Overloaded(f"the render replica is overloaded: {what}", reason="render", retry_after_s=2.0)


def _portable(error: Exception | None) -> VivavoceError:
    """An error that says nothing of the decode replica's own device and memory."""
    if error is None or is_device_lost(error):
        return SynthesisFailed("the device of the render replica failed")
    if is_out_of_memory(error):
        return _overloaded("its memory is full")
    if isinstance(error, BadRequest | Overloaded):
        return error.with_traceback(None)
    return SynthesisFailed(str(error) or type(error).__name__)
