"""CosyVoice sessions that tests step by hand."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vivavoce.tts_engine.backends.base import Backend, SlotRequest, SlotTurn, Stage, StepResult
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.segmenter import Segment
from vivavoce.tts_engine.stream_request import Delivery

TEXTS = (
    "Well, who is it, at night? It is me.",
    "It is me.",
    "Nobody said so, and so I went home.",
    "And then? Then it was late.",
)


class SessionDriver:
    """Steps the sessions of a backend by hand. ``delay``: rounds before a session takes part."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.segments: dict[int, list[Segment]] = {}
        self.delay: dict[int, int] = {}
        self.samples: dict[int, list[np.ndarray]] = {}
        self.failures: dict[int, Exception] = {}
        self._open: list[int] = []
        self._current: dict[int, Segment] = {}

    def add(
        self,
        text: str,
        voice: str = "nobody",
        seed: int = 0,
        delay: int = 0,
        delivery: Delivery | None = None,
    ) -> int:
        request = SlotRequest(voice, 1.0, seed, delivery or Delivery())
        slot = self.backend.open_slot(request)
        segmenter = self.backend.segmenter(request)
        self.segments[slot] = [*segmenter.push(text), *segmenter.flush()]
        self.samples[slot], self.delay[slot] = [], delay
        self._open.append(slot)
        return slot

    def remove(self, slot: int) -> None:
        self._open.remove(slot)
        self._current.pop(slot, None)
        self.backend.close_slot(slot)

    def round(self) -> None:
        """Run one step of each stage."""
        for slot in self._open:
            self.delay[slot] -= 1
        for stage in Stage:
            ready = [slot for slot in self._open if self.delay[slot] < 0]
            chosen_slots = [slot for slot in ready if self.backend.stage(slot) is stage]
            chosen_slots = chosen_slots[: self.backend.max_batch_size(stage)]
            if chosen_slots:
                self._step(chosen_slots)

    def speak(self) -> None:
        while self._open:
            self.round()

    def _step(self, slots: Sequence[int]) -> None:
        turns = [self._turn(slot) for slot in slots]
        for slot, result in zip(slots, self.backend.step(0, turns), strict=True):
            if isinstance(result, Exception):
                self.failures[slot] = result
                self.remove(slot)
            else:
                self._record(slot, result)
        # Sessions that were stepped go to the end of the queue.
        self._open = [slot for slot in self._open if slot not in slots] + [
            slot for slot in slots if slot in self._open
        ]

    def _turn(self, slot: int) -> SlotTurn:
        if slot in self._current:
            return SlotTurn(slot, None)
        self._current[slot] = self.segments[slot].pop(0)
        return SlotTurn(slot, self._current[slot])

    def _record(self, slot: int, result: StepResult) -> None:
        self.samples[slot].append(result.samples)
        if result.segment_done:
            del self._current[slot]
            if not self.segments[slot]:
                self.remove(slot)


@dataclass(frozen=True)
class RenderedSession:
    """The speech ids and samples of one session."""

    ids: list[int]
    samples: np.ndarray


def render_together(
    backend: CosyVoiceBackend, sessions: Sequence[Mapping[str, Any]]
) -> list[RenderedSession]:
    """Render sessions in common steps; returns their results in the same order."""
    driver = SessionDriver(backend)
    choose = backend._lm.choose
    ids: defaultdict[int, list[int]] = defaultdict(list)

    def recorded_choose(turns: Mapping[int, Any]) -> dict[int, int]:
        chosen = choose(turns)
        for slot, row in backend._rows.items():
            if row in chosen:
                ids[slot].append(chosen[row])
        return chosen

    backend._lm.choose = recorded_choose  # type: ignore[method-assign]
    try:
        slots = [driver.add(**session) for session in sessions]
        driver.speak()
    finally:
        backend._lm.choose = choose  # type: ignore[method-assign]
    assert driver.failures == {}
    assert backend.open_slots == 0
    return [RenderedSession(ids[slot], np.concatenate(driver.samples[slot])) for slot in slots]
