"""Decoding in one place and rendering in others: the same samples, after failures too; small messages."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.cluster.local_render_replicas import LocalRenderReplicas
from shared.engine.cosyvoice_sessions import TEXTS, RenderedSession, SessionDriver, render_together
from shared.voices.tiny_cosyvoice import BRIEF, recording
from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule
from vivavoce.tts_engine.backends.divided_stages import RenderReplicaLost
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.rendering.render_messages import ChunkRequest
from vivavoce.tts_engine.engine import Engine

# Sentences of several chunks; a voice whose recording is long enough to be prepared.
POLICY = replace(BRIEF, length=SpeechLengthRule(6, 6))
SESSIONS = ({"text": TEXTS[0], "seed": 1}, {"text": TEXTS[2], "seed": 2, "voice": "nobody"})


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[RenderedSession]:
    """The sessions, rendered in one process."""
    return render(CosyVoiceBackend.load(folder, POLICY))


@contextmanager
def apart(folder: Path, count: int) -> Iterator[tuple[CosyVoiceBackend, LocalRenderReplicas]]:
    """A decoding backend and its render replicas."""
    replicas = LocalRenderReplicas(folder, POLICY, count)
    backend = CosyVoiceBackend.load_decoder(folder, POLICY, replicas.stage())
    try:
        yield backend, replicas
    finally:
        replicas.close()


def render(backend: CosyVoiceBackend) -> list[RenderedSession]:
    clone = backend.voices.enroll(recording(), 16_000, "a tone that wobbles").id
    return render_together(backend, [{"voice": clone, **session} for session in SESSIONS])


def assert_equal(rendered: list[RenderedSession], expected: list[RenderedSession]) -> None:
    for one, other in zip(rendered, expected, strict=True):
        assert one.ids == other.ids
        assert one.samples.shape == other.samples.shape
        assert np.abs(one.samples - other.samples).max() < 1e-4


def test_samples_rendered_apart_equal_those_of_one_process(
    folder: Path, expected: list[RenderedSession]
) -> None:
    with apart(folder, 2) as (backend, replicas):
        assert_equal(render(backend), expected)
        assert set(replicas.rendered_by()) == {"render-1", "render-2"}
        assert len(set(replicas.voices_sent)) == len(replicas.voices_sent)  # each once to a replica
        chunks = [request for _, request in replicas.requests]
        assert any(len(request.chunks) == 1 and request.noise is None for request in chunks)
        assert replicas.bytes_sent / len(chunks) < 2_000  # ids and a key: no conditioning
        assert all(host.describe("decode-1").sentences == 0 for host in replicas.hosts.values())


def test_a_sentence_goes_on_at_another_replica_without_a_repeated_or_a_missing_sample(
    folder: Path, expected: list[RenderedSession]
) -> None:
    with apart(folder, 2) as (backend, replicas):

        def die(replica: str, request: ChunkRequest) -> None:
            if request.noise is None:  # in the middle of a sentence
                replicas.dead = replicas.dead or {replica}

        replicas.before_answer = die
        assert_equal(render(backend), expected)
        assert len(replicas.dead) == 1
        again = [request for _, request in replicas.requests if len(request.chunks) > 1]
        assert again and all(request.first_id == 0 for request in again)


def test_a_replica_that_forgot_a_sentence_is_sent_it_again(
    folder: Path, expected: list[RenderedSession]
) -> None:
    with apart(folder, 1) as (backend, replicas):
        forgotten: list[int] = []

        def forget(replica: str, request: ChunkRequest) -> None:
            if not forgotten and not request.chunks[-1].final:
                forgotten.append(request.sentence)
                replicas.hosts[replica].release(request.decoder, request.sentence)

        replicas.before_answer = forget
        assert_equal(render(backend), expected)
        assert forgotten


def test_without_a_replica_a_session_ends_with_an_error_and_no_stream_is_admitted(v2_folder: Path) -> None:
    with apart(v2_folder, 1) as (backend, replicas):
        assert backend.memory_slots == POLICY.slots
        driver = SessionDriver(backend)
        slot = driver.add(TEXTS[1])
        replicas.dead = {"render-1"}
        driver.speak()
        assert isinstance(driver.failures[slot], RenderReplicaLost)
        assert backend.memory_slots == 0
        replicas.dead = set()
        replicas.update(backend._render_stage)
        assert backend.memory_slots == POLICY.slots


def test_a_replica_that_does_not_answer_is_given_up_when_it_is_silent(v2_folder: Path) -> None:
    with apart(v2_folder, 2) as (backend, replicas):
        stage = backend._render_stage

        def fall_silent(replica: str) -> None:
            if replica == "render-1":
                replicas.silent = {replica}
                for _ in range(2):
                    replicas.clock_s += 3.0
                    replicas.update(stage)

        replicas.before_request = fall_silent
        driver = SessionDriver(backend)
        driver.add(TEXTS[1])
        driver.speak()
        assert not driver.failures
        assert stage.replicas == ("render-2",)
        assert "render-1" in replicas.rendered_by()


def test_a_cancelled_stream_frees_its_place_at_a_replica_that_is_busy(v2_folder: Path) -> None:
    with apart(v2_folder, 1) as (backend, replicas):
        (host,) = replicas.hosts.values()
        busy, go_on = threading.Event(), threading.Event()
        run_flow = host._stage.runner.run_flow

        def slow(inputs: object) -> object:
            busy.set()
            assert go_on.wait(60)
            return run_flow(inputs)

        async def test() -> None:
            async with await Engine.open(backend=backend, warm_up=False) as engine:
                host._stage.runner.run_flow = slow
                first = engine.stream()
                first.push_text(TEXTS[1])
                first.end_input()
                assert await asyncio.to_thread(busy.wait, 60)
                second = engine.stream()
                second.push_text(TEXTS[1])
                second.end_input()
                while len(host._jobs) < 1:
                    await asyncio.sleep(0.001)
                second.cancel()
                while backend.open_slots > 1:  # before the replica has rendered anything
                    await asyncio.sleep(0.001)
                assert host._jobs == []
                assert len(host._sentences) == 1
                go_on.set()
                assert [chunk async for chunk in first][-1].final

        asyncio.run(asyncio.wait_for(test(), 120))


def test_a_replica_with_another_bundle_is_refused(v2_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    replicas = LocalRenderReplicas(v2_folder, POLICY, 1)
    try:
        (host,) = replicas.hosts.values()
        stage = replicas.stage()
        other = replace(host.describe("decode-1"), replica="render-2", bundle_digest="other")
        stage.update([other])
        stage.update([other])
        assert stage.replicas == ("render-1",)
        assert caplog.text.count("render replica render-2 is refused") == 1
    finally:
        replicas.close()


def test_the_requests_to_a_replica_name_the_trace_of_their_stream(v2_folder: Path) -> None:
    async def test(backend: CosyVoiceBackend) -> None:
        opening = Engine.open(backend=backend, warm_up=False)
        async with await opening as engine, engine.stream(trace_id="4bf9") as stream:
            stream.push_text(TEXTS[1])
            stream.end_input()
            assert [chunk async for chunk in stream][-1].final

    with apart(v2_folder, 1) as (backend, replicas):
        asyncio.run(asyncio.wait_for(test(backend), 120))
        assert {request.trace_id for _, request in replicas.requests} == {"4bf9"}
