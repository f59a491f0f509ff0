"""A backend without weights, in which every word is a tone, for tests of everything around a backend.

A voice is named after its pitch ("tone-440"), so that a test can recognise it in the samples. A word lasts
0.2 s, so lengths, word times and cuts are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vivavoce.tts_engine.backends.base import ALL_STAGES, SlotRequest, SlotTurn, Stage, StepResult
from vivavoce.tts_engine.chunk import SAMPLE_RATE, Word
from vivavoce.tts_engine.segmenter import Segment, Segmenter
from vivavoce.tts_engine.voices.voices import Voice, Voices

WORD_S = 0.2
AMPLITUDE = 0.25


@dataclass(slots=True)
class _ToneSlot:
    pitch_hz: float
    samples: int = 0
    segment: Segment | None = None
    pause_s: float = 0.0
    word: int = 0


class StandInBackend:
    """Renders one word in each step. pitches_hz: one voice each."""

    def __init__(
        self,
        pitches_hz: Sequence[int] = (440,),
        *,
        workers: int = 1,
        max_batch_size: int = 1,
        slots: int = 256,
        language: str = "zxx",
    ) -> None:
        voices = (Voice(f"tone-{pitch}", language, f"a tone of {pitch} Hz") for pitch in pitches_hz)
        self.voices = Voices(tuple(voices))
        self.warm_up_text = "Hello."
        self.workers = (ALL_STAGES,) * workers
        self._max_batch_size = max_batch_size
        self.slots = self.memory_slots = slots
        self._open: dict[int, _ToneSlot] = {}
        self._next_slot = 0

    @property
    def open_slots(self) -> int:
        """Number of open slots."""
        return len(self._open)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        return Segmenter()

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot."""
        self._next_slot += 1
        self._open[self._next_slot] = _ToneSlot(float(request.voice.removeprefix("tone-")))
        return self._next_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot."""
        del self._open[slot]

    def close(self) -> None:
        """Close every slot."""
        self._open.clear()

    def max_batch_size(self, stage: Stage) -> int:
        """The same for every stage."""
        return self._max_batch_size

    def stage(self, slot: int) -> Stage:
        """RENDER, the only stage."""
        return Stage.RENDER

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one word of each turn's slot."""
        return [_render_tone(self._open[turn.slot], turn) for turn in turns]


def _render_tone(slot: _ToneSlot, turn: SlotTurn) -> StepResult:
    if turn.segment is not None:
        slot.segment, slot.pause_s, slot.word = turn.segment, turn.pause_s, 0
    assert slot.segment is not None
    word = slot.segment.words[slot.word]
    slot.word += 1
    done = slot.word == len(slot.segment.words)
    begins = slot.samples
    time_s = (begins + np.arange(round(WORD_S * SAMPLE_RATE))) / SAMPLE_RATE
    samples = (AMPLITUDE * np.sin(2 * np.pi * slot.pitch_hz * time_s)).astype(np.float32)
    if done:
        samples = np.concatenate([samples, np.zeros(round(slot.pause_s * SAMPLE_RATE), np.float32)])
    slot.samples += len(samples)
    start_s = begins / SAMPLE_RATE
    return StepResult(samples, (Word("", start_s, start_s + WORD_S, word.start, word.stop),), done)
