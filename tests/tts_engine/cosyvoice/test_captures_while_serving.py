"""Graphs that are captured while streams are spoken: which and when, and the same samples with and without.

A processor has no graphs: a stand-in replays the function of a step into the outputs of its capture, and the
engine takes the paths of a card.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.engine.cosyvoice_sessions import TEXTS, SessionDriver  # noqa: E402
from shared.voices.tiny_cosyvoice import BRIEF, pcm, run, speak  # noqa: E402
from vivavoce.models.cosyvoice.flow import flow_graphs  # noqa: E402
from vivavoce.models.cosyvoice.lm import decode_graphs  # noqa: E402
from vivavoce.models.cosyvoice.vocoder import vocoder_graphs  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.vocoder_graphs import VocoderGraphs  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU  # noqa: E402
from vivavoce.models.networks import cuda_graphs  # noqa: E402
from vivavoce.models.networks.cuda_graphs import StepGraph  # noqa: E402
from vivavoce.models.networks.state import tensors  # noqa: E402
from vivavoce.tts_engine.backends.base import Stage  # noqa: E402
from vivavoce.tts_engine.cosyvoice import lm_runner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering import render_runner  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402

POLICY = replace(BRIEF, slots=4, max_render_rows=4)
ON_TWO_WORKERS = replace(POLICY, overlap=True)
_IN_LOCKSTEP = 1e-4  # in a batch, rows round otherwise than alone


class StandInGraph(StepGraph[Any]):
    """A replay as on a card: it reuses the outputs of the capture, which later replays overwrite."""

    captured, replayed = 0, 0
    fails = False

    def __init__(self, run: Any, device: object, pool: object) -> None:
        super().__init__(run, CPU, None)
        self._outputs = None
        if pool is None:
            return
        if StandInGraph.fails:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self._outputs = run()
        StandInGraph.captured += 1

    def replay(self) -> Any:
        if self._outputs is None:
            return self._run()
        StandInGraph.replayed += 1
        for output, part in zip(tensors(self._outputs), tensors(self._run()), strict=True):
            output.copy_(part)
        return self._outputs


@pytest.fixture(autouse=True)
def like_a_card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for graphs in (decode_graphs, flow_graphs, vocoder_graphs):
        monkeypatch.setattr(graphs, "StepGraph", StandInGraph)
    for module in (cuda_graphs, vocoder_graphs):
        monkeypatch.setattr(module, "new_graph_pool", lambda *_: "pool")
    monkeypatch.setattr(lm_runner, "_has_graphs", lambda lm: True)
    monkeypatch.setattr(render_runner, "supports_graphs", lambda flow: True)
    monkeypatch.setattr(
        render_runner,
        "_vocoder_graphs",
        lambda vocoder, device, policy: VocoderGraphs(vocoder, device, policy.max_render_rows),
    )
    monkeypatch.setattr(StandInGraph, "captured", 0)
    monkeypatch.setattr(StandInGraph, "replayed", 0)
    monkeypatch.setattr(StandInGraph, "fails", False)
    yield


def spoken_together(backend: CosyVoiceBackend, texts: Sequence[str]) -> list[np.ndarray]:
    driver = SessionDriver(backend)
    slots = [driver.add(text, seed=seed) for seed, text in enumerate(texts)]
    driver.speak()
    assert not driver.failures
    return [np.concatenate(driver.samples[slot]) for slot in slots]


def spoken_alone(backend: CosyVoiceBackend) -> list[np.ndarray]:
    return [spoken_together(backend, [text])[0] for text in TEXTS[:2]]


def capture_left(backend: CosyVoiceBackend) -> list[Stage]:
    """Take the captures that are left, on the only worker; their stages."""
    taken = []
    while (stage := backend.next_preparation) is not None:
        taken.append(stage)
        backend.prepare(0, stage)
    return taken


def test_a_loaded_bundle_has_captured_what_the_first_sound_of_one_stream_takes(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder, POLICY)
    # A step of the language model, of the flow's encoder and of its solver, and the vocoder's first chunk.
    assert StandInGraph.captured == 4
    lm, flow = backend._lm._graphs, backend._render_stage.runner._flow_runner._graphs
    assert lm is not None
    assert [(key.rows, key.columns) for key in lm.recorded] == [(1, 1)]
    assert {(key.part.name, key.rows, key.blocks) for key in flow._steps.keys} == {
        ("ENCODER", 1, 1),
        ("SOLVER", 1, 1),
    }
    assert backend._render_stage.runner._vocoder_graphs.recorded_count == 1


def test_the_other_steps_are_captured_for_one_stream_first_then_for_several(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, POLICY)
    queues = {Stage.DECODE: backend._lm.captures, Stage.RENDER: backend._render_stage.captures}
    streams = []
    while (stage := backend.next_preparation) is not None:
        streams.append(queues[stage].min_streams or 0)
        assert streams[-1] == min(queue.min_streams or 99 for queue in queues.values())
        backend.prepare(0, stage)
    assert streams == sorted(streams)
    assert {*streams} == {1, 2}
    lm = backend._lm._graphs
    assert lm is not None
    rows = [key.rows for key in lm.recorded]
    assert rows == sorted(rows)


def test_samples_are_the_same_before_amid_and_after_the_captures(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder, POLICY)
    before, together = spoken_alone(backend), spoken_together(backend, TEXTS)
    assert StandInGraph.captured == 4  # none of another size while streams speak
    while backend.next_preparation is not None:
        for _ in range(16):
            if (stage := backend.next_preparation) is not None:
                backend.prepare(0, stage)
        assert np.array_equal(spoken_together(backend, TEXTS[:1])[0], before[0])
    replayed = StandInGraph.replayed
    for found, expected in zip(spoken_alone(backend), before, strict=True):
        assert np.array_equal(found, expected)
    assert StandInGraph.replayed > replayed
    for found, expected in zip(spoken_together(backend, TEXTS), together, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < _IN_LOCKSTEP


def test_captures_between_the_steps_of_streams_change_no_sample(v2_folder: Path) -> None:
    expected = spoken_together(CosyVoiceBackend.load(v2_folder, POLICY), TEXTS[:2])
    backend = CosyVoiceBackend.load(v2_folder, POLICY)
    driver = SessionDriver(backend)
    slots = [driver.add(text, seed=seed) for seed, text in enumerate(TEXTS[:2])]
    while driver._open:
        driver.round()
        if (stage := backend.next_preparation) is not None:
            backend.prepare(0, stage)
    assert not driver.failures
    for slot, wanted in zip(slots, expected, strict=True):
        assert np.abs(np.concatenate(driver.samples[slot]) - wanted).max() < _IN_LOCKSTEP


def test_a_capture_that_fails_leaves_the_step_without_a_graph_and_one_sentence_in_the_log(
    v2_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = CosyVoiceBackend.load(v2_folder, POLICY)
    expected = spoken_alone(backend)
    monkeypatch.setattr(StandInGraph, "fails", True)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        count = len(capture_left(backend))
    assert count > 4
    assert len(caplog.records) == count
    assert all("was not captured and runs without a graph" in each.message for each in caplog.records)
    for found, wanted in zip(spoken_alone(backend), expected, strict=True):
        assert np.array_equal(found, wanted)
    assert spoken_together(backend, TEXTS[:2])


def test_an_engine_speaks_while_its_workers_capture_and_closes_amid_captures(v2_folder: Path) -> None:
    async def test() -> None:
        async with await Engine.open(backend=CosyVoiceBackend.load(v2_folder, ON_TWO_WORKERS)) as engine:
            expected = pcm(await speak(engine, TEXTS[:1], seed=3))  # with some captures or none
            while engine._backend.next_preparation is not None or engine._workers.are_preparing:  # type: ignore[attr-defined]
                await asyncio.sleep(0.002)
            assert pcm(await speak(engine, TEXTS[:1], seed=3)) == expected
        backend = CosyVoiceBackend.load(v2_folder, ON_TWO_WORKERS)
        captured = StandInGraph.captured
        engine = await Engine.open(backend=backend)
        while StandInGraph.captured == captured:
            await asyncio.sleep(0.001)
        await engine.aclose()
        assert not any(thread.is_alive() for thread in engine._threads)
        assert backend.next_preparation is not None

    run(test())
