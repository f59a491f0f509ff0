"""A backend without weights whose steps have a given cost, to test and simulate scheduling.

It behaves like a language model of speech ids followed by a renderer: while text arrives, every 5 words allow
15 speech ids; when it has ended, all ids are allowed. A chunk of audio of 1 s needs 25 ids and 3 ids of
lookahead. Steps take no real time unless ``sleep`` is given.

    words       w w w w w | w w w w w | end
    ids         15 allowed  30          all
    chunks      |<- 25 ->|3|            silence, 1 s each
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vivavoce.tts_engine.backends.base import ALL_STAGES, SlotRequest, SlotTurn, Stage, StepResult
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.segmenter import BoundaryKind, Segmenter
from vivavoce.tts_engine.voices.voices import Voice, Voices

IDS_PER_S = 25
CHUNK_IDS = 25
LOOKAHEAD_IDS = 3
WORDS_PER_BLOCK, IDS_PER_BLOCK = 5, 15


@dataclass(frozen=True, slots=True)
class StepCostModel:
    """The cost of a step in seconds: a fixed part, and a part for each row."""

    decode_s: float = 0.002
    decode_row_s: float = 0.000_05
    render_s: float = 0.012
    render_row_s: float = 0.004

    def of(self, stage: Stage, rows: int) -> float:
        """The cost of a step of that many rows."""
        if stage is Stage.DECODE:
            return self.decode_s + rows * self.decode_row_s
        return self.render_s + rows * self.render_row_s


@dataclass(slots=True)
class _SimulatedSlot:
    ids_per_word: float
    words: int = 0
    ended: bool = False
    ids: int = 0
    chunks: int = 0

    @property
    def total(self) -> int:
        return round(self.words * self.ids_per_word)

    @property
    def allowed(self) -> int:
        return self.total if self.ended else self.words // WORDS_PER_BLOCK * IDS_PER_BLOCK

    @property
    def is_chunk_ready(self) -> bool:
        """Whether the next chunk can be rendered."""
        rendered_ids = self.chunks * CHUNK_IDS
        if self.ended and self.ids >= self.total:
            return rendered_ids < self.total
        return self.ids >= rendered_ids + CHUNK_IDS + LOOKAHEAD_IDS

    @property
    def is_drained(self) -> bool:
        return self.ids >= self.allowed and not self.is_chunk_ready


class SimulatedBackend:
    """Renders silence. rows: most slots in a step, by stage. speech_s_per_word: in seconds."""

    workers = (ALL_STAGES,)
    warm_up_text = ""

    def __init__(
        self,
        cost: StepCostModel,
        *,
        rows: Mapping[Stage, int],
        slots: int,
        speech_s_per_word: float = 0.25,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.cost = cost
        self.slots = self.memory_slots = slots
        self.voices = Voices((Voice("silence", "zxx", "nothing, as long as speech"),))
        self._rows = rows
        self._ids_per_word = speech_s_per_word * IDS_PER_S
        self._sleep = sleep
        self._open: dict[int, _SimulatedSlot] = {}
        self._next_slot = 0

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        return Segmenter()

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot."""
        self._next_slot += 1
        self._open[self._next_slot] = _SimulatedSlot(self._ids_per_word)
        return self._next_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot."""
        del self._open[slot]

    def close(self) -> None:
        """Close every slot."""
        self._open.clear()

    def max_batch_size(self, stage: Stage) -> int:
        """``rows`` of the stage."""
        return self._rows[stage]

    def stage(self, slot: int) -> Stage:
        """RENDER if the ids of the next chunk are complete, else DECODE."""
        return Stage.RENDER if self._open[slot].is_chunk_ready else Stage.DECODE

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Add one id to each slot, or render one chunk of silence for each; all slots are in one stage."""
        stage = self.stage(turns[0].slot)
        cost_s = self.cost.of(stage, len(turns))
        if self._sleep is not None:
            self._sleep(cost_s)
        return [_step_slot(self._open[turn.slot], turn, stage, cost_s / len(turns)) for turn in turns]


def words_needed(chunk: int, words: int) -> int:
    """Words that must be written before a chunk can be rendered. chunk: from 0. words: in the whole text."""
    ids = (chunk + 1) * CHUNK_IDS + LOOKAHEAD_IDS
    return min(words, -(-ids // IDS_PER_BLOCK) * WORDS_PER_BLOCK)


def _step_slot(slot: _SimulatedSlot, turn: SlotTurn, stage: Stage, cost_s: float) -> StepResult:
    if turn.segment is not None:
        slot.words += len(turn.segment.words)
        slot.ended = turn.segment.ending is BoundaryKind.SENTENCE
    samples = 0
    if stage is Stage.RENDER:
        ids = min(CHUNK_IDS, slot.total - slot.chunks * CHUNK_IDS) if slot.ended else CHUNK_IDS
        samples = ids * SAMPLE_RATE // IDS_PER_S
        slot.chunks += 1
    elif slot.ids < slot.allowed:
        slot.ids += 1
    return StepResult(np.zeros(samples, np.float32), (), slot.is_drained, device_s=cost_s)
