"""For tests of the gateway: time that costs none, and a clean environment."""

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
    """Where a loop would wait for its next timer, time passes at once instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "the test waits for something that never comes"
            self.now += max(timeout, 0.0)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now

    def pass_time(self, seconds: float) -> None:
        """As a stall does: timers find out afterwards."""
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
    """Every engine that is opened speaks in tones: a word is 0.2 s."""
    real_open = Engine.open

    async def open_stand_in(*args: object, **named: object) -> Engine:
        return await real_open(backend=StandInBackend((440, 880)))

    monkeypatch.setattr(Engine, "open", open_stand_in)


@pytest.fixture
def decoded_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each recording takes a while; the decoder's own tests start them."""
    monkeypatch.setattr("vivavoce.tts_engine.voices.recording._decode_in_subprocess", answer_bytes)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("VIVAVOCE_"):
            monkeypatch.delenv(name)
