"""Common steps of CosyVoice sessions: failures, cancellation, and leaks."""

import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.engine.cosyvoice_sessions import TEXTS, RenderedSession, SessionDriver, render_together  # noqa: E402
from shared.engine.standin_backend import StandInBackend  # noqa: E402
from shared.runtimes.simulated_device import FULL_CARD, fill_card  # noqa: E402
from shared.voices.tiny_cosyvoice import BRIEF  # noqa: E402
from vivavoce.models.cosyvoice import networks  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import BLOCK_IDS  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow_graphs import FlowGraphs  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_lm  # noqa: E402
from vivavoce.models.networks import layers  # noqa: E402
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult  # noqa: E402
from vivavoce.tts_engine.cosyvoice import loading  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering import flow_runner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering.flow_runner import GraphFlowRunner  # noqa: E402
from vivavoce.tts_engine.engine import Engine, EngineConfig  # noqa: E402
from vivavoce.tts_engine.engine_set import EngineSet, NamedEngine  # noqa: E402
from vivavoce.tts_engine.errors import BundleError, Overloaded, SynthesisFailed  # noqa: E402
from vivavoce.tts_engine.scheduler import SchedulerPolicy  # noqa: E402
from vivavoce.tts_engine.speech_engine import SpeechEngine  # noqa: E402
from vivavoce.tts_engine.voice_kit.fault_isolation import is_device_lost  # noqa: E402


class FailingCall:
    """Replaces the ``method`` of a runner; raises ``error`` if ``applies`` is true of the rows of a call."""

    def __init__(
        self, runner: Any, method: str, applies: Callable[[set[int]], bool], error: Exception
    ) -> None:
        self.work, self.applies, self.error = getattr(runner, method), applies, error
        setattr(runner, method, self)

    def __call__(self, parts: Mapping[int, Any]) -> Any:
        if self.applies(set(parts)):
            raise self.error
        return self.work(parts)


FOUR_ROWS = replace(BRIEF, max_render_rows=4)
FOUR_SESSIONS = [{"text": text, "seed": seed} for seed, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def expected(v2_folder: Path) -> list[RenderedSession]:
    return render_together(CosyVoiceBackend.load(v2_folder, FOUR_ROWS), FOUR_SESSIONS)


@pytest.mark.parametrize("work", ["choose", "run_flow", "run_vocoder"])
def test_a_failing_device_call_ends_only_the_session_at_fault(
    v2_folder: Path, expected: list[RenderedSession], work: str
) -> None:
    backend = CosyVoiceBackend.load(v2_folder, FOUR_ROWS)
    driver = SessionDriver(backend)
    slots = [driver.add(**session) for session in FOUR_SESSIONS]
    bad = slots[1]
    runner = backend._lm if work == "choose" else backend._render_stage.runner
    FailingCall(runner, work, lambda rows: backend._rows.get(bad) in rows, RuntimeError("bad row"))
    driver.speak()
    assert [str(failure) for failure in driver.failures.values()] == ["bad row"]
    assert [*driver.failures] == [bad]
    for slot, whole in zip(slots, expected, strict=True):
        if slot != bad:
            assert np.abs(np.concatenate(driver.samples[slot]) - whole.samples).max() < 1e-4
    assert backend.open_slots == 0


@pytest.mark.parametrize("method", ["begin", "decoding_turn", "answer", "render_result", "empty_result"])
def test_a_failure_of_a_session_on_the_host_ends_only_that_session(v2_folder: Path, method: str) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("bad session")

    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    driver = SessionDriver(backend)
    good, bad = (driver.add(TEXTS[1], seed=seed) for seed in range(2))
    setattr(backend._sessions[bad], method, fail)
    driver.speak()
    assert {slot: str(failure) for slot, failure in driver.failures.items()} == {bad: "bad session"}
    assert np.concatenate(driver.samples[good]).any()


def test_out_of_memory_ends_the_newest_sessions_and_stops_admission(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, slots=6))
    driver = SessionDriver(backend)
    slots = [driver.add(text, delay=index) for index, text in enumerate(TEXTS)]
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    FailingCall(backend._lm, "choose", lambda rows: len(rows) > 2, error)
    min_memory_slots = backend.memory_slots
    while driver._open:
        driver.round()
        min_memory_slots = min(min_memory_slots, backend.memory_slots)
    assert slots[0] not in driver.failures
    assert slots[1] not in driver.failures
    assert set(driver.failures) <= set(slots[2:])
    assert driver.failures
    assert 2 <= min_memory_slots <= 3
    assert backend.memory_slots == 6  # no session is open
    assert backend.open_slots == 0


@pytest.mark.parametrize(
    "fault",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA failure 719: unspecified launch failure ; GPU=0 ; hostname=a",
        "Triton Error [CUDA]: unspecified launch failure",
    ],
)
def test_a_card_that_fails_in_a_stream_ends_its_streams_and_other_voices_speak_on(
    v2_folder: Path, fault: str
) -> None:
    async def speak(engine: SpeechEngine, voice: str | None) -> float:
        async with engine.stream(voice=voice) as stream:
            stream.push_text(TEXTS[0])
            stream.end_input()
            return sum([chunk.seconds async for chunk in stream])

    async def test() -> None:
        backend = CosyVoiceBackend.load(v2_folder, BRIEF)
        card = await Engine.open(backend=backend)
        processor = await Engine.open(backend=StandInBackend((440,)))
        async with EngineSet((NamedEngine("card", card), NamedEngine("processor", processor))) as engine:
            assert engine.refusal() is None
            rendered = itertools.count(1)
            error = RuntimeError(fault)
            FailingCall(backend._render_stage.runner, "run_vocoder", lambda rows: next(rendered) > 1, error)
            *failed, other = await asyncio.gather(
                *(speak(engine, voice) for voice in (None, None, "tone-440")), return_exceptions=True
            )
            assert [type(each) for each in failed] == [SynthesisFailed] * 2
            assert isinstance(other, float) and other > 0
            refusal = engine.refusal()  # /readyz answers with it
            assert refusal is not None and refusal.reason == "device"
            with pytest.raises(Overloaded, match="its device failed"):
                await speak(engine, None)
            assert await speak(engine, "tone-440") == other

    asyncio.run(test())


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory.",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Triton Error [CUDA]: out of memory",
        "bad row",
    ],
)
def test_other_errors_are_no_lost_device(text: str) -> None:
    assert not is_device_lost(RuntimeError(text))


def test_a_card_that_is_full_when_the_weights_are_loaded_is_one_sentence(
    v2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_torch_device", lambda policy: torch.device("cuda", 0))
    monkeypatch.setattr(networks, "_prepare_device", lambda bundle, device: None)
    fill_card(monkeypatch)
    for load in (CosyVoiceBackend.load, loading.load_hosted_renderer):
        with pytest.raises(BundleError, match=FULL_CARD):
            load(v2_folder, BRIEF)
    with pytest.raises(BundleError, match=FULL_CARD):
        loading.load_render_host(v2_folder, BRIEF, "one", "digest")


def test_a_card_that_fails_when_modules_are_prepared_is_not_a_fault_of_the_weight_file(
    v2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(layers, "prepare_modules", fail)
    with pytest.raises(torch.OutOfMemoryError):
        networks.load_flow(open_bundle(v2_folder))


def test_pages_take_a_share_of_what_other_processes_and_the_language_model_leave(
    v2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    flow: Any = backend._render_stage.runner._flow
    page_bytes = flow_runner._bytes_per_id(flow) * BLOCK_IDS

    def pages(free: int, reserved: int = 0) -> float:
        monkeypatch.setattr(flow_runner, "free_bytes", lambda device: int(free * page_bytes))
        runner = GraphFlowRunner(
            flow,
            0.5,
            rows=1,
            sentences=4,
            max_prompt_ids=25,
            max_hop=50,
            reserved_bytes=int(reserved * page_bytes),
        )
        return runner.memory_ids / BLOCK_IDS

    assert (pages(free=8), pages(free=4), pages(free=8, reserved=4)) == (4, 2, 2)
    assert pages(free=2, reserved=4) == 1
    lm: Any = load_lm(open_bundle(v2_folder))
    on_card = SimpleNamespace(device=torch.device("cuda", 0), state_bytes=lm.state_bytes)
    policy = replace(BRIEF, slots=3, max_render_rows=2, overlap=True)
    state = lm.init_state(5, policy.lm_context_ids)
    assert loading.lm_memory_bytes(on_card, policy) == state.kv.nbytes  # type: ignore[arg-type]
    assert loading.lm_memory_bytes(lm, policy) == 0


def test_pages_of_a_failed_session_are_used_by_the_others_in_the_same_step(
    v2_folder: Path,
) -> None:
    policy = replace(BRIEF, slots=3, max_render_rows=3, length=SpeechLengthRule(10, 10))

    def render(sessions: int, pages: int) -> tuple[SessionDriver, int]:
        """Render that many sessions of equal length; returns the lowest number of free pages too."""
        backend = CosyVoiceBackend.load(v2_folder, policy)
        flow = backend._render_stage.runner._flow
        recorded = GraphFlowRunner(flow, 0.1, rows=3, sentences=3, max_prompt_ids=25, max_hop=50)
        recorded._graphs = FlowGraphs(flow, rows=3, slots=3, pages=pages)
        backend._render_stage.runner._flow_runner = recorded
        driver = SessionDriver(backend)
        for _ in range(sessions):
            driver.add(TEXTS[2])
        free = pages
        while driver._open:
            driver.round()
            free = min(free, recorded._graphs._pages.free)
        assert recorded._graphs._pages.free == pages
        return driver, free

    rendered_alone, free = render(1, 40)
    needed = 40 - free
    assert needed > 4
    together, _ = render(3, 3 * needed - 3)
    assert [*together.failures] == [3]
    assert "out of memory" in str(together.failures[3])
    whole = np.concatenate(rendered_alone.samples[1])
    for slot in (1, 2):
        assert np.abs(np.concatenate(together.samples[slot]) - whole).max() < 1e-4


SESSIONS = int(os.environ.get("VIVAVOCE_FUZZ", "60"))  # 2,000 before a release


@dataclass(frozen=True)
class Resources:
    """Resources in use while the engine is idle."""

    streams: int
    slots: int
    rows: int
    tasks: int
    threads: int
    objects: int  # of classes of vivavoce
    tensor_bytes: int  # of all tensors
    memory_mb: float  # of the process, after malloc_trim; it settles after some hundred sessions


def measure_resources(engine: Engine, backend: CosyVoiceBackend) -> Resources:
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    alive = gc.get_objects()
    tensors = (each for each in alive if issubclass(type(each), torch.Tensor))
    storages = [each.untyped_storage() for each in tensors if each.layout is torch.strided]
    status = Path("/proc/self/status").read_text()
    return Resources(
        streams=engine.active_streams,
        slots=backend.open_slots,
        rows=len(backend._rows) + len(backend._lm.rows.state.lengths) - len(backend._free_rows),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        objects=sum("vivavoce" in repr(type(each)) for each in alive),
        tensor_bytes=sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()),
        memory_mb=sum(int(size) for size in re.findall(r"(?:RssAnon|VmSwap):\s+(\d+) kB", status)) / 1024,
    )


async def settled_resources(engine: Engine, backend: CosyVoiceBackend) -> Resources:
    """The resources when they no longer change; a worker frees its last step after the session has ended."""
    now = measure_resources(engine, backend)
    while True:
        await asyncio.sleep(0.05)
        before, now = now, measure_resources(engine, backend)
        if replace(now, memory_mb=0) == replace(before, memory_mb=0):
            return now


@pytest.mark.parametrize("overlap", [False, True], ids=["one worker", "a worker a stage"])
def test_many_sessions_of_which_a_third_are_cancelled_leak_no_resource(
    v2_folder: Path, overlap: bool
) -> None:
    policy = replace(BRIEF, slots=8, max_render_rows=4, overlap=overlap)
    backend = CosyVoiceBackend.load(v2_folder, policy)
    rng = random.Random(5)

    async def session(engine: Engine, permits: asyncio.Semaphore, seed: int) -> None:
        # All slots are in use, so a cancelled session must free its slot at once.
        async with permits, engine.stream(seed=seed) as stream:
            stream.push_text(TEXTS[1])
            stream.end_input()
            if rng.random() < 1 / 3:
                await asyncio.sleep(rng.random() * 0.1)
            else:
                assert [chunk async for chunk in stream][-1].final

    async def run_sessions(engine: Engine, seeds: range) -> Resources:
        permits = asyncio.Semaphore(8)
        await asyncio.gather(*(session(engine, permits, seed) for seed in seeds))
        while backend.open_slots:
            await asyncio.sleep(0.001)
        return await settled_resources(engine, backend)

    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))
        async with await Engine.open(backend=backend, config=config) as engine:
            before = await run_sessions(engine, range(24))
            after = await run_sessions(engine, range(24, 24 + SESSIONS))
            print(f"\nbefore: {before}\nafter {SESSIONS} sessions: {after}")
            assert replace(after, memory_mb=0) == replace(before, memory_mb=0)
            assert (after.streams, after.slots, after.rows) == (0, 0, 0)
            assert after.memory_mb - before.memory_mb < 40  # torch's caches for shapes are half of it

    asyncio.run(asyncio.wait_for(test(), 3_000))


def test_a_cancelled_session_is_in_no_step_after_the_running_one(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    steps: list[set[int]] = []
    step = backend.step

    def recorded_step(worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        steps.append({turn.slot for turn in turns})
        return step(worker, turns)

    backend.step = recorded_step  # type: ignore[method-assign]

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            streams = [engine.stream(seed=seed) for seed in range(3)]
            for stream in streams:
                stream.push_text(TEXTS[0] * 20)
            cancelled = streams[1]
            await anext(cancelled)
            cancelled.cancel()
            started = len(steps)
            slot = cancelled._session.slot
            await anext(streams[0])
            await anext(streams[0])
            assert all(slot not in turns for turns in steps[started + 1 :])
            assert slot not in backend._sessions
            for stream in streams:
                stream.cancel()

    asyncio.run(asyncio.wait_for(test(), 120))


def test_text_that_stops_inside_a_word_takes_a_bounded_number_of_steps(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, BRIEF)
    request = SlotRequest("nobody", 1.0, 0)
    slot = backend.open_slot(request)
    results: list[StepResult | Exception] = []
    for segment in backend.segmenter(request).push("Nobody said so, and so I went home, to the ol"):
        turn = SlotTurn(slot, segment)
        while True:
            [result] = backend.step(0, [turn])
            assert isinstance(result, StepResult)
            results.append(result)
            turn = SlotTurn(slot, None)
            if result.segment_done:  # the engine steps it again with the next segment only
                break
    assert len(results) < 50
    assert backend._sessions[slot].sentence is not None
    backend.close_slot(slot)
