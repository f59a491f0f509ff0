"""The order of requests at a render replica, its room, and what it drops; with a renderer of a few lines."""

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import numpy as np
import pytest

from vivavoce.models.cosyvoice.flow.hop_schedule import SpeechIdChunk
from vivavoce.models.devices.planned_captures import CaptureQueue
from vivavoce.tts_engine.cosyvoice.conditioning import FlowPrompt
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy
from vivavoce.tts_engine.cosyvoice.rendering.render_host import RenderHost
from vivavoce.tts_engine.cosyvoice.rendering.render_messages import (
    ChunkRequest,
    RenderedChunk,
    RenderingFailed,
    RenderReply,
    SentenceMissing,
    VoiceMissing,
)
from vivavoce.tts_engine.cosyvoice.rendering.render_stage import LocalRenderStage, RenderInput
from vivavoce.tts_engine.errors import SynthesisFailed

VOICE = FlowPrompt("voice", np.zeros(192, np.float32), np.zeros(0, np.int32), np.zeros((80, 0), np.float32))
CHUNK, LAST = SpeechIdChunk(0, 25, 28, final=False), SpeechIdChunk(25, 30, 30, final=True)
WAIT_S = 60  # for a thread; only a test that fails takes as long


class StepRecorder:
    """A renderer whose samples are the speed of the sentence, and which waits for permits."""

    memory_ids, prepared_voice_ids = 100_000, 0

    def __init__(self) -> None:
        self.captures = CaptureQueue()
        self.steps: list[list[float]] = []
        self.permits = threading.Semaphore(1000)
        self.begun = threading.Semaphore(0)
        self.error: Exception | None = None

    def copied_voice_ids(self, flow_prompt: FlowPrompt) -> int:
        return 0

    def begin_sentence(self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator) -> float:
        noise.random()
        return speed

    def flow_batch_key(self, wanted: RenderInput) -> None:
        return None

    def run_flow(self, inputs: Mapping[int, RenderInput]) -> dict[int, float]:
        self.begun.release()
        assert self.permits.acquire(timeout=WAIT_S)
        if self.error is not None:
            raise self.error
        self.steps.append([each.render_state for each in inputs.values()])
        return {row: each.render_state for row, each in inputs.items()}

    def vocoder_input(self, wanted: RenderInput, mel: float) -> float:
        return mel

    def vocoder_batch_key(self, mel: float) -> None:
        return None

    def run_vocoder(self, mels: Mapping[int, float]) -> dict[int, np.ndarray]:
        return {row: np.full(960, mel, np.float32) for row, mel in mels.items()}

    def free(self, state: float) -> None:
        pass


class HostedReplica:
    """A host with a clock, and requests that differ in their speed."""

    def __init__(self) -> None:
        self.clock_s = 0.0
        self.renderer = StepRecorder()
        stage = LocalRenderStage(self.renderer, CosyVoicePolicy())
        self.host = RenderHost(stage, "r", "same", slots=2, max_rows=2, clock=lambda: self.clock_s)
        self.host.keep_voice(VOICE)

    def ask(
        self,
        sentence: int,
        lead_s: float | None = None,
        decoder: str = "d",
        *,
        opens: bool = True,
        trace_id: str = "",
    ) -> "Future[RenderReply]":
        first = 0 if opens else CHUNK.lookahead_stop
        chunk = CHUNK if opens else LAST
        ids = tuple(range(first, chunk.lookahead_stop))
        noise = np.random.default_rng(0) if opens else None
        request = ChunkRequest(
            *(decoder, sentence, VOICE.key, float(sentence), first, ids, (chunk,), lead_s, noise),
            trace_id,
        )
        return self.host.render(request)

    def hold(self) -> None:
        """Have the next step wait, and those after it."""
        self.renderer.permits = threading.Semaphore(0)


@pytest.fixture
def replica() -> Iterator[HostedReplica]:
    replica = HostedReplica()
    yield replica
    replica.renderer.permits.release(1000)
    replica.host.close()


def samples(answer: "Future[RenderReply]") -> float:
    reply = answer.result(WAIT_S)
    assert isinstance(reply, RenderedChunk)
    return float(reply.samples[0])


def error_of(answer: "Future[RenderReply]") -> Exception:
    reply = answer.result(WAIT_S)
    assert isinstance(reply, RenderingFailed)
    return reply.error


def test_listeners_without_audio_come_first_then_those_who_run_dry_soonest(replica: HostedReplica) -> None:
    replica.host._slots = 10
    replica.hold()
    answers = [replica.ask(1, decoder="a")]
    assert replica.renderer.begun.acquire(timeout=WAIT_S)
    leads = {2: 0.9, 3: 0.2, 4: 0.5}
    answers += [replica.ask(number, lead, decoder="ab"[number % 2]) for number, lead in leads.items()]
    replica.clock_s = 1.0
    answers.append(replica.ask(5))
    replica.renderer.permits.release(1000)
    assert [samples(answer) for answer in answers] == [1, 2, 3, 4, 5]
    assert replica.renderer.steps == [[1], [5, 3], [4, 2]]  # sentences of both decoders share steps


def test_a_new_sentence_waits_for_room_and_takes_that_of_a_paused_one(replica: HostedReplica) -> None:
    assert [samples(replica.ask(number)) for number in (1, 2)] == [1, 2]
    assert replica.host.describe("d").is_full
    replica.clock_s = 1.0
    waiting = replica.ask(3)
    assert samples(replica.ask(2, 0.5, opens=False)) == 2  # it ends, and leaves its room
    assert samples(waiting) == 3
    replica.clock_s = 3.0
    waiting = replica.ask(4)
    replica.host.describe("d")
    assert not waiting.done()
    replica.clock_s = 5.0
    replica.host.describe("d")
    assert samples(waiting) == 4
    assert isinstance(replica.ask(1, 0.5, opens=False).result(WAIT_S), SentenceMissing)
    assert samples(replica.ask(3, 0.5, opens=False)) == 3


def test_what_is_missing_is_said(replica: HostedReplica) -> None:
    assert isinstance(replica.ask(7, opens=False).result(WAIT_S), SentenceMissing)
    replica.host._voices.clear()
    assert isinstance(replica.ask(7).result(WAIT_S), VoiceMissing)


def test_the_generator_comes_back_with_the_last_chunk(replica: HostedReplica) -> None:
    first, last = replica.ask(1).result(WAIT_S), replica.ask(1, 0.5, opens=False).result(WAIT_S)
    assert isinstance(first, RenderedChunk) and first.noise is None
    assert isinstance(last, RenderedChunk) and last.noise is not None
    expected = np.random.default_rng(0)
    expected.random()
    assert last.noise.random() == expected.random()


def test_a_released_sentence_is_answered_at_once_while_it_waits(replica: HostedReplica) -> None:
    replica.hold()
    running = replica.ask(1)
    assert replica.renderer.begun.acquire(timeout=WAIT_S)
    waiting = replica.ask(2)
    replica.host.release("d", 2)
    assert isinstance(error_of(waiting), SynthesisFailed)
    replica.host.release("d", 1)
    assert not running.done()
    replica.renderer.permits.release(1000)
    assert "released" in str(error_of(running))
    assert replica.renderer.steps == [[1]]


def test_sentences_of_a_silent_decoder_are_dropped(replica: HostedReplica) -> None:
    assert samples(replica.ask(1, decoder="a")) == 1
    replica.clock_s = 9.0
    assert replica.host.describe("b").sentences == 1
    replica.clock_s = 10.0
    assert replica.host.describe("b").sentences == 0


def test_a_failed_device_is_reported_without_its_error(replica: HostedReplica) -> None:
    replica.renderer.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert "CUDA" not in str(error_of(replica.ask(1)))
    description = replica.host.describe("d")
    assert (description.is_full, description.free_sentences, replica.host.is_healthy) == (True, 0, False)


def test_late_answers_are_counted_for_autoscaling(replica: HostedReplica) -> None:
    replica.hold()
    replica.host._slots = 10
    answers = [replica.ask(1, None)]
    assert replica.renderer.begun.acquire(timeout=WAIT_S)
    answers += [replica.ask(2, 0.5), replica.ask(3, 0.2)]
    replica.clock_s = 0.3
    replica.renderer.permits.release(1000)
    assert [samples(answer) for answer in answers] == [1, 2, 3]
    stats = replica.host.listener_stats()
    assert stats == {
        "open_streams": 3.0,
        "load": 0.0,  # until 5 s of audio were rendered
        "first_audio_p95_s": 0.3,
        "short_lead_share": 0.5,
        "refused_share": 0.0,
    }
    assert replica.host.listener_stats()["short_lead_share"] == 0.0


def test_a_rendered_sentence_is_in_the_log_with_its_trace_and_in_the_metrics(
    replica: HostedReplica, caplog: pytest.LogCaptureFixture
) -> None:
    def value(name: str, **labels: str) -> float | None:
        return replica.host.metrics.registry.get_sample_value(f"vivavoce_{name}", labels)

    with caplog.at_level(logging.INFO):
        assert samples(replica.ask(7, trace_id="4bf9")) == 7
        assert value("active_streams") == 1 and caplog.messages == []
        assert samples(replica.ask(7, 0.5, opens=False, trace_id="4bf9")) == 7
    assert value("active_streams") == 0
    assert value("step_seconds_count", stage="render") == 2
    assert value("audio_seconds_total") == 2 * 960 / 24_000
    assert (value("playout_lead_seconds_count"), value("playout_lead_seconds_sum")) == (1, 0.5)
    expected = "trace 4bf9: sentence 7 of decoder d: 2 chunks, 0.08 s of speech, rendered in 0 ms"
    assert caplog.messages == [expected]
