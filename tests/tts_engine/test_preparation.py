"""Kinds of steps that are prepared while the engine serves: when, in which order, and what ends it."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

import pytest

from shared.engine.engine_streams import TEXT, collect, content, run, speak
from shared.engine.standin_backend import StandInBackend
from vivavoce.tts_engine.backends.base import SlotTurn, Stage, StepResult
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.threads import step_preparations

BOTH = (Stage.DECODE, Stage.RENDER, Stage.RENDER, Stage.DECODE)
OF_IDLE_WORKER = (Stage.DECODE, Stage.DECODE)  # steps of the stand-in are of the other stage
UNLIMITED = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9, max_unread_s=1e9))


class PreparingStandIn(StandInBackend):
    """Logs steps and preparations, and lets a test block either. One worker runs each stage."""

    def __init__(self, left: Sequence[Stage] = BOTH) -> None:
        super().__init__()
        self.workers = (frozenset({Stage.DECODE}), frozenset({Stage.RENDER}))
        self.left = list(left)
        self.log: list[str] = []
        self.preparing, self.stepping = threading.Event(), threading.Event()
        self.may_prepare, self.may_step = threading.Event(), threading.Event()
        self.may_prepare.set()
        self.may_step.set()
        self.fails = False

    @property
    def next_preparation(self) -> Stage | None:
        return self.left[0] if self.left else None

    def prepare(self, worker: int, stage: Stage) -> None:
        assert stage is self.left.pop(0)
        assert stage in self.workers[worker]
        self.log.append(f"begin {stage.value}")
        self.preparing.set()
        assert self.may_prepare.wait(60)
        self.log.append(f"end {stage.value}")
        if self.fails:
            raise RuntimeError("no room")

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        self.log.append("step")
        self.stepping.set()
        assert self.may_step.wait(60)
        return super().step(worker, turns)


class NotPreparing(PreparingStandIn):
    """The same without anything to prepare, for what streams say then."""

    def __init__(self) -> None:
        super().__init__(())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparations take no time, as far as the engine knows before the first one."""
    monkeypatch.setattr(step_preparations, "_ASSUMED_S", 0.01)


async def all_prepared(backend: PreparingStandIn) -> None:
    while backend.left or not backend.log[-1].startswith("end"):
        await asyncio.sleep(0.002)


def test_an_idle_engine_prepares_in_order_one_at_a_time_after_its_warm_up() -> None:
    async def test() -> None:
        backend = PreparingStandIn()
        async with await Engine.open(backend=backend):
            await all_prepared(backend)
        first = backend.log.index("begin decode")
        assert set(backend.log[:first]) == {"step"}  # of the warm-up
        assert backend.log[first:] == [f"{edge} {stage.value}" for stage in BOTH for edge in ("begin", "end")]

    run(test())


def test_an_engine_that_is_not_warmed_up_prepares_nothing() -> None:
    async def test() -> None:
        backend = PreparingStandIn()
        async with await Engine.open(backend=backend, warm_up=False) as engine:
            await speak(engine, TEXT)
        assert backend.left == list(BOTH)

    run(test())


def test_nothing_is_prepared_while_a_stream_waits_for_its_first_sound(soon: None) -> None:
    async def test() -> None:
        backend = PreparingStandIn(OF_IDLE_WORKER)
        backend.may_prepare.clear()
        async with await Engine.open(backend=backend) as engine:
            assert await asyncio.to_thread(backend.preparing.wait, 60)
            backend.may_step.clear()
            backend.stepping.clear()
            speaking = asyncio.create_task(speak(engine, "One."))
            assert await asyncio.to_thread(backend.stepping.wait, 60)  # on the other worker
            backend.may_prepare.set()
            await asyncio.sleep(0.2)  # four times the interval of checks
            assert backend.left == list(OF_IDLE_WORKER[1:])
            backend.may_step.set()
            await speaking
            await all_prepared(backend)

    run(test())


def test_nothing_is_prepared_while_a_listener_is_about_to_run_dry_and_it_is_once_it_has_a_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_preparations, "_ASSUMED_S", 5.0)

    async def test() -> None:
        backend = PreparingStandIn(OF_IDLE_WORKER)
        backend.may_prepare.clear()
        async with await Engine.open(backend=backend, config=UNLIMITED) as engine:
            assert await asyncio.to_thread(backend.preparing.wait, 60)
            async with engine.stream() as stream:
                stream.push_text("one two three four five six seven eight nine ten. " * 4)  # 8 s of speech
                first = await anext(stream)
                assert first.seconds == pytest.approx(0.2)
                backend.may_step.clear()
                backend.may_prepare.set()
                await asyncio.sleep(0.2)
                assert backend.left == list(OF_IDLE_WORKER[1:])
                stream.set_deadline(time.monotonic() + 60.0)
                while backend.left == list(
                    OF_IDLE_WORKER[1:]
                ):  # although the stream is not rendered to its end
                    await asyncio.sleep(0.002)
                backend.may_step.set()

    run(test())


def test_streams_say_the_same_while_steps_are_prepared(soon: None) -> None:
    async def test() -> None:
        async with await Engine.open(backend=NotPreparing()) as engine:
            expected = content(await speak(engine, TEXT))
        backend = PreparingStandIn(BOTH * 3)
        async with await Engine.open(backend=backend) as engine:
            while backend.left:
                assert content(await speak(engine, TEXT)) == expected
            assert content(await speak(engine, TEXT)) == expected

    run(test())


def test_a_preparation_that_fails_is_logged_and_the_engine_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        backend = PreparingStandIn(BOTH[:1])
        backend.fails = True
        async with await Engine.open(backend=backend) as engine:
            await all_prepared(backend)
            assert await speak(engine, "One.")

    with caplog.at_level(logging.ERROR):
        run(test())
    assert [record.message for record in caplog.records] == ["a kind of step was not prepared"]


def test_closing_waits_for_the_preparation_under_way_and_begins_no_other() -> None:
    async def test() -> None:
        backend = PreparingStandIn()
        backend.may_prepare.clear()
        engine = await Engine.open(backend=backend)
        assert await asyncio.to_thread(backend.preparing.wait, 60)
        stream = engine.stream()
        stream.push_text(TEXT)
        closing = asyncio.create_task(engine.aclose())
        await asyncio.sleep(0.05)
        assert not closing.done()
        backend.may_prepare.set()
        await closing
        assert backend.left == list(BOTH[1:])
        assert backend.log[-1] == "end decode"
        assert not any(thread.is_alive() for thread in engine._threads)
        assert not any([chunk async for chunk in stream])

    run(test())


def test_a_backend_in_a_child_process_prepares_there() -> None:
    async def test() -> None:
        backend = ProcessBackend.start_backend(PreparingStandIn)
        assert backend.next_preparation is Stage.DECODE
        async with await Engine.open(backend=backend) as engine:
            expected = content(await speak(engine, TEXT))
            while backend.next_preparation is not None:
                await asyncio.sleep(0.002)
            async with engine.stream() as stream:
                stream.push_text(TEXT)
                stream.end_input()
                assert content(await collect(stream)) == expected

    run(test())


def test_a_child_that_died_has_nothing_to_prepare() -> None:
    backend = ProcessBackend.start_backend(PreparingStandIn)
    backend._child.kill()
    while not backend._child.has_ended():
        pass
    died = backend._child
    assert died.next_preparation is Stage.DECODE
    assert backend.next_preparation is None or backend._child is not died
    backend.close()
