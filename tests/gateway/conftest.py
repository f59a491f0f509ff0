"""Fixtures of the gateway's tests: virtual time, a stand-in voice, and an environment without settings."""

import asyncio
import os
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from shared.standin_backend import StandInBackend
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.voices.recording_decoder import answer_bytes

T = TypeVar("T")


class InstantSelector(selectors.DefaultSelector):
    """Advances a virtual clock to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "the test waits without a timer"
            self.now += max(timeout, 0.0)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now

    def pass_time(self, seconds: float) -> None:
        """Advance the clock like a stall of the loop: due timers run late."""
        self._instant.now += seconds


@pytest.fixture
def run_virtually() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine on a loop whose time is virtual; ``loop.time`` is the clock to inject."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(coroutine)

    return run


@pytest.fixture
def stand_in_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every engine opened has the stand-in backend, whose words are tones of 0.2 s."""
    real_open = Engine.open

    async def open_stand_in(*args: object, **keywords: object) -> Engine:
        return await real_open(backend=StandInBackend((440, 880)))

    monkeypatch.setattr(Engine, "open", open_stand_in)


@pytest.fixture
def decoded_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode recordings in this process, which is faster; the decoder's tests start processes."""
    monkeypatch.setattr("vivavoce.tts_engine.voices.recording._decode_in_subprocess", answer_bytes)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("VIVAVOCE_"):
            monkeypatch.delenv(name)
