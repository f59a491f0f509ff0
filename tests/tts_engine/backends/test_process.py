"""Tests of a backend in a child process: equal samples, and the death of either process."""

import asyncio
import contextlib
import functools
import gc
import importlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from multiprocessing import popen_fork
from pathlib import Path
from typing import Any

import pytest

from shared.engine.simulated_backend import SimulatedBackend, StepCostModel
from shared.engine.standin_backend import StandInBackend
from vivavoce.tts_engine.backends.base import ProcessPolicy, SlotRequest, SlotTurn, Stage
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.backends.process_child import ErrorMessage
from vivavoce.tts_engine.chunk import AudioChunk
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BundleError, Overloaded, SynthesisFailed
from vivavoce.tts_engine.hibari.backend import HibariBackend
from vivavoce.tts_engine.segmenter import Segmenter

TEXT = "One two three four, five six seven eight nine ten. Then eleven and twelve follow!"
TIMEOUT_S = 30.0
TONES = functools.partial(StandInBackend, (440, 660))


def simulated(*, decode_s: float = 0.0, sleep: Callable[[Any], Any] = time.sleep) -> ProcessBackend:
    return ProcessBackend.start_backend(
        functools.partial(
            SimulatedBackend,
            StepCostModel(decode_s, 0.0, 0.0, 0.0),
            rows={Stage.DECODE: 4, Stage.RENDER: 2},
            slots=8,
            sleep=sleep,
        )
    )


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * TIMEOUT_S))


async def speak(engine: Engine, text: str = TEXT, **options: Any) -> list[AudioChunk]:
    async with engine.stream(**options) as stream:
        stream.push_text(text)
        stream.end_input()
        return [chunk async for chunk in stream]


def content(chunks: list[AudioChunk]) -> list[object]:
    """The chunks without their provenance."""
    return [(chunk.pcm, chunk.samples, chunk.text, chunk.words, chunk.final) for chunk in chunks]


def is_gone(pid: int) -> bool:
    """Whether the process has ended and been reaped."""
    return not Path(f"/proc/{pid}").exists()


def wait_until(condition: Callable[[], bool]) -> None:
    gives_up = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < gives_up
        time.sleep(0.01)


def kill(pid: int) -> None:
    """Kill a child of this process, and wait until it is dead and can be reaped."""
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # it is reaped already
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def niceness_of(pid: int) -> set[int]:
    """The niceness of every thread, relative to this one."""
    tasks = (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    return {os.getpriority(os.PRIO_PROCESS, task) - os.getpriority(os.PRIO_PROCESS, 0) for task in tasks}


@pytest.mark.parametrize("load", [TONES, HibariBackend.load], ids=["tones", "packaged"])
def test_samples_equal_those_of_the_same_backend_in_this_process(load: Callable[[], Any]) -> None:
    async def rendered(backend: Any) -> list[object]:
        async with await Engine.open(backend=backend) as engine:
            return [
                content(await speak(engine, seed=seed, speed=speed)) for seed, speed in ((0, 1.0), (7, 1.3))
            ]

    async def test() -> None:
        assert await rendered(ProcessBackend.start_backend(load)) == await rendered(load())

    run(test())


RECORDS_CLOSING = """
from shared.engine.standin_backend import StandInBackend

class RecordsClosing(StandInBackend):
    def __init__(self, note):
        super().__init__()
        self.note = note

    def close_slot(self, slot):
        super().close_slot(slot)
        with self.note.open("a") as note:
            note.write("closed ")
"""


def test_a_cancelled_slot_is_closed_in_the_child_without_another_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "records_closing.py").write_text(RECORDS_CLOSING)
    monkeypatch.syspath_prepend(tmp_path)
    closings = tmp_path / "closings"
    load = functools.partial(importlib.import_module("records_closing").RecordsClosing, closings)

    async def test() -> None:
        async with await Engine.open(backend=ProcessBackend.start_backend(load)) as engine:
            wait_until(lambda: closings.read_text().split() == ["closed"] * 2)  # to look at it, to warm it up
            stream = engine.stream()
            stream.push_text(TEXT * 20)
            await anext(stream)
            stream.cancel()
            wait_until(lambda: closings.read_text().split() == ["closed"] * 3)

    run(test())


def test_a_bundle_is_opened_in_a_child_process_on_request() -> None:
    async def test() -> None:
        async with await Engine.open(process=ProcessPolicy(niceness=3)) as engine:
            backend = engine._backend
            assert isinstance(backend, ProcessBackend)
            assert niceness_of(backend.pid) == {3}
            assert (await speak(engine, "Hello."))[-1].final
        assert is_gone(backend.pid)

    run(test())


def test_stages_and_batch_sizes_are_those_of_the_child() -> None:
    backend = simulated()
    in_process = SimulatedBackend(StepCostModel(), rows={Stage.DECODE: 4, Stage.RENDER: 2}, slots=8)
    request = SlotRequest("silence", 1.0, 0)
    slot, slot_in_process = backend.open_slot(request), in_process.open_slot(request)
    assert [backend.max_batch_size(stage) for stage in Stage] == [
        in_process.max_batch_size(stage) for stage in Stage
    ]
    (segment, *_) = [*Segmenter().push("one two three four five six. "), *Segmenter().flush()]
    stages: list[tuple[Stage, Stage]] = [(backend.stage(slot), in_process.stage(slot_in_process))]
    for step in range(40):
        begun = segment if step == 0 else None
        backend.step(0, [SlotTurn(slot, begun)])
        in_process.step(0, [SlotTurn(slot_in_process, begun)])
        stages.append((backend.stage(slot), in_process.stage(slot_in_process)))
    assert all(child_stage is stage for child_stage, stage in stages)
    assert {child_stage for child_stage, _ in stages} == set(Stage)
    backend.close()


def test_a_child_killed_during_a_step_fails_its_session_and_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        backend = simulated(decode_s=3600.0)
        engine = Engine(backend, *_defaults())
        spoken = asyncio.create_task(speak(engine))
        first = backend.pid
        await asyncio.to_thread(wait_until, lambda: backend._child._steps > 0)
        kill(first)
        with pytest.raises(SynthesisFailed, match="the voice's process died"):
            await spoken
        assert engine.active_streams == backend.open_slots == 0
        assert is_gone(first)
        assert f"the voice's process {first} died: signal 9" in caplog.text
        await asyncio.to_thread(wait_until, lambda: engine.refusal() is None)
        async with engine.stream() as stream:
            stream.push_text(TEXT)
            await asyncio.to_thread(wait_until, lambda: backend.pid != first and backend._child._steps > 0)
            assert not is_gone(backend.pid)
            kill(backend.pid)  # or its step would last an hour
            with pytest.raises(SynthesisFailed):
                await anext(stream)
        await engine.aclose()
        assert is_gone(backend.pid)

    run(test())


def _defaults() -> tuple[Any, Any]:
    from vivavoce.tts_engine.engine import EngineConfig
    from vivavoce.tts_engine.metrics import Metrics

    return EngineConfig(), Metrics()


async def speak_when_ready(engine: Engine) -> list[AudioChunk]:
    await asyncio.to_thread(wait_until, lambda: engine.refusal() is None)
    return await speak(engine)


def test_a_child_that_dies_while_idle_is_replaced_at_once() -> None:
    async def test() -> None:
        backend = ProcessBackend.start_backend(TONES, ProcessPolicy(max_restart_wait_s=TIMEOUT_S))
        async with await Engine.open(backend=backend) as engine:
            alone, first = content(await speak(engine)), backend.pid
            waiting, hurried = engine.stream(), engine.stream()
            kill(first)
            refusal = engine.refusal()
            assert refusal is not None and refusal.reason == "process"
            with pytest.raises(Overloaded, match="is being started again"):
                engine.stream()
            hurried.push_text("Hello. ")
            assert (await anext(hurried)).pcm  # it waited for the new child
            hurried.cancel()
            assert content(await speak_when_ready(engine)) == alone
            assert backend.pid != first and is_gone(first)
            waiting.push_text("Hello. ")
            assert (await anext(waiting)).pcm
            waiting.cancel()

    run(test())


def test_a_session_of_a_dead_child_fails_and_other_sessions_do_not() -> None:
    async def test() -> None:
        backend = ProcessBackend.start_backend(TONES)
        async with await Engine.open(backend=backend) as engine, engine.stream() as begun:
            begun.push_text("Hello there. ")
            begun.flush()
            await anext(begun)
            await anext(begun)
            kill(backend.pid)
            assert (await speak_when_ready(engine))[-1].final
            begun.push_text("Are you there? ")
            begun.end_input()
            with pytest.raises(SynthesisFailed, match="process died"):
                await anext(begun)
            assert (await speak(engine))[-1].final
        assert backend.open_slots == 0

    run(test())


def test_a_child_that_does_not_load_again_fails_waiting_sessions_in_time(tmp_path: Path) -> None:
    loads_once = functools.partial(load_once, tmp_path / "loaded")
    policy = ProcessPolicy(max_restart_wait_s=0.1)

    async def test() -> None:
        async with (
            await Engine.open(backend=ProcessBackend.start_backend(loads_once, policy)) as engine,
            engine.stream() as waiting,
        ):
            kill(engine.process_ids[0])
            waiting.push_text("Hello. ")
            with pytest.raises(SynthesisFailed, match="process died"):
                await anext(waiting)

    run(test())


def load_once(note: Path) -> StandInBackend:
    """A backend that loads, and from then on takes for ever to load."""
    if note.exists():
        time.sleep(3600)
    note.touch()
    return StandInBackend()


def test_slots_are_refused_after_too_many_deaths_until_the_window_ends() -> None:
    backend = ProcessBackend.start_backend(TONES, ProcessPolicy(max_starts=1, start_window_s=1000))
    request = SlotRequest("tone-440", 1.0, 0)
    first = backend.pid
    kill(first)
    wait_until(lambda: backend.pid != first and backend.refusal() is None)
    kill(backend.pid)
    with pytest.raises(Overloaded, match="died 2 times in 1000 s") as refusal:
        backend.open_slot(request)
    assert 900 < refusal.value.retry_after_s <= 1000
    backend.close()


def test_an_exception_in_a_step_ends_its_session_and_not_the_child() -> None:
    async def test() -> None:
        backend = simulated(sleep=_numbers_only)
        engine = Engine(backend, *_defaults())
        for _ in range(2):
            with pytest.raises(SynthesisFailed, match="must be str"):
                await speak(engine)
        assert not is_gone(backend.pid)
        await engine.aclose()

    run(test())


_numbers_only = bytes.fromhex  # raises TypeError for the seconds that it is given


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: StandInBackend(), "in a process of its own: .*pickle"),
        (functools.partial(StandInBackend, ("flat",), nothing=1), "nothing"),
        (functools.partial(StandInBackend, workers=9), "9 workers; at most 8"),
        (functools.partial(os._exit, 3), "died as it started: exit status 3"),
    ],
    ids=["not to be pickled", "raises", "too many workers", "dies"],
)
def test_a_backend_that_cannot_be_loaded_in_a_child_is_one_clear_error(
    load: Callable[[], Any], message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        ProcessBackend.start_backend(load)


def test_errors_with_one_message_keep_their_class_across_the_pipe() -> None:
    crossed = [
        ErrorMessage.from_exception(error, SynthesisFailed).to_exception()
        for error in (
            BundleError("no file"),
            Overloaded("full", reason="streams", retry_after_s=1.0),
            KeyError(),
        )
    ]
    assert [(type(error), str(error)) for error in crossed] == [
        (BundleError, "no file"),
        (SynthesisFailed, "full"),
        (SynthesisFailed, "KeyError"),
    ]


@pytest.mark.slow
def test_a_dozen_starts_leak_no_descriptor_thread_or_process() -> None:
    def left() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    ProcessBackend.start_backend(TONES).close()  # multiprocessing keeps a helper of its own from then on
    before, pids = left(), []
    for number in range(12):
        if number % 3:
            backend = ProcessBackend.start_backend(TONES)
            pids.append(backend.pid)
            if number % 3 == 2:
                kill(backend.pid)
            backend.close()  # perhaps while another child loads
            backend.close()
        else:
            with pytest.raises(BundleError):
                ProcessBackend.start_backend(functools.partial(os._exit, 3))
    assert all(now <= then for now, then in zip(left(), before, strict=True))
    assert all(is_gone(pid) for pid in pids)


def test_a_process_that_another_thread_reaps_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ProcessBackend.start_backend(TONES)
    pid, polls, poll = backend.pid, itertools.count(), popen_fork.Popen.poll

    def poll_late(popen: popen_fork.Popen, flag: int = os.WNOHANG) -> int | None:
        """Know no exit code in the first polls, as while another thread is in ``waitpid``."""
        if popen.pid == pid and next(polls) < 8:
            return None
        return poll(popen, flag)

    monkeypatch.setattr(popen_fork.Popen, "poll", poll_late)
    kill(pid)
    backend.close()
    assert next(polls) > 8
    assert is_gone(pid)


PARENT_PROGRAM = """
import functools, os, sys, time
from vivavoce.tts_engine.backends.process import ProcessBackend
from shared.engine.standin_backend import StandInBackend
if __name__ == "__main__":
    backend = ProcessBackend.start_backend(functools.partial(StandInBackend, (440,)))
    print(backend.pid, flush=True)
    if sys.argv[1:] == ["stays"]:
        time.sleep(3600)
    sys.stdin.read()
"""


def ignored_by(pid: int) -> set[int]:
    """Signals that a process ignores."""
    (mask,) = re.findall(r"SigIgn:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return {number for number in range(1, 32) if int(mask, 16) >> (number - 1) & 1}


@pytest.mark.parametrize("how", ["leaves", "stays"])
def test_the_child_ends_with_its_parent_and_ignores_signals(how: str, tmp_path: Path) -> None:
    program = tmp_path / "abandons.py"
    program.write_text(PARENT_PROGRAM)
    with subprocess.Popen(
        [sys.executable, "-W", "error", program, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        # A terminal or a supervisor signals both processes; the parent may still have streams to finish.
        ignored = ignored_by(pid)
        if how == "stays":
            parent.kill()
        assert parent.stdin
        parent.stdin.close()
        assert parent.wait(TIMEOUT_S) == (-signal.SIGKILL if how == "stays" else 0)
    wait_until(lambda: is_gone(pid))
    assert {signal.SIGINT, signal.SIGTERM} <= ignored
