"""Runs the language model of CosyVoice for the sessions that need speech ids.

The inputs that precede a sentence's text are the same for every sentence of a prompt. They are prefilled once
and copied into the row of each new sentence:

    prompt      START t t t t t s s s ... s | inputs that depend on the text
                |<-  prefix, kept         ->|

On a CPU a step covers the rows that take part. On another device it is a recorded graph over the first rows,
and yields a few ids for each (``decode_graphs``). Policy, counters and text are in ``session``. Used by one
thread.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...models.cosyvoice.lm.decode_turn import DecodeTurn
from ...models.cosyvoice.lm.generation import Generation, LmInput, LmPrompt, SamplingRequest
from ...models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm
from ...models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ...models.devices.planned_captures import CaptureQueue
from ..backends.recently_used import RecentlyUsed
from ..voice_kit.kv_rows import KvRows

if TYPE_CHECKING:
    from ...models.cosyvoice.lm.decode_graphs import DecodeGraphs
    from ...models.cosyvoice.lm.speech_lm import LmNetwork

# Inputs of a request that can share a step: the last speech id and a block of text ids.
MAX_BATCHED_INPUTS = 8


@dataclass(slots=True)
class PromptPrefix:
    """The inputs with which every sentence of a prompt begins, and their cache.

    A sentence that waits for one keeps a reference, so it is prefilled to its end even if the runner drops
    it.
    """

    units: tuple[LmInput, ...]
    state: Any  # one row
    voice_id: str  # of the recording that it continues, for its file; "" if it has none
    prefilled_units: int = 0

    @property
    def is_prefilled(self) -> bool:
        """Whether all inputs are prefilled."""
        return self.prefilled_units == len(self.units)


class LmSteppable(Protocol):
    """Steps of the language model, of torch or ONNX Runtime.

    A state is a dataclass with ``kv`` (B, layers, 2, kv_heads, positions, width) and ``lengths`` (B,).
    """

    def init_state(self, rows: int, capacity: int, /) -> Any:
        """Empty memory for ``capacity`` ids a row."""

    def prefill(self, state: Any, inputs: Sequence[LmInput], /) -> Any:
        """Feed inputs to a state of one row."""

    def choose(self, state: Any, turns: Sequence[DecodeTurn | None], /) -> tuple[Any, dict[int, int]]:
        """Sample an id for each row with a request; the next state and the ids by row."""


class LmRunner:
    """The rows of the cache, and steps on them.

    new_generation: makes the generation of a prompt. context_ids: length of a row. max_prompt_prefixes: kept
    at once. prefill_chunk: inputs in one part. ids_per_step: ids that a recorded step yields for a row.
    voice_files: keeps the prefixes of enrolled voices.

    Attributes:
        captures: of recorded steps that are left.
    """

    def __init__(
        self,
        lm: "LmNetwork | ArraySpeechLm",
        new_generation: Callable[[LmPrompt], Generation],
        *,
        rows: int,
        context_ids: int,
        max_prompt_prefixes: int,
        prefill_chunk: int,
        ids_per_step: int,
        voice_files: PreparedVoiceFolder | None = None,
    ) -> None:
        self._name = type(lm).__name__
        self._lm = _steps_of(lm)
        has_graphs = _has_graphs(lm)
        self._voice_files = None if has_graphs else voice_files
        self._new_generation = new_generation
        self.rows = KvRows(self._lm.init_state(rows, context_ids))
        self._graphs = _decode_graphs(lm, self.rows.state, ids_per_step) if has_graphs else None
        self.captures = CaptureQueue()
        if self._graphs is not None:
            self.captures.add(*self._graphs.defer_captures(self.captures.add))
        self.captures.capture_for_first_sound()
        self._prefill_chunk = prefill_chunk
        self._prompt_prefixes: RecentlyUsed[LmPrompt, PromptPrefix] = RecentlyUsed(max_prompt_prefixes)

    @property
    def ids_per_step(self) -> int:
        """Ids that one ``choose`` decodes for a row; all but the first are read by ``decoded_ahead``."""
        return self._graphs.ids_per_step if self._graphs else 1

    def prompt_prefix(self, prompt: LmPrompt, voice_id: str) -> PromptPrefix:
        """The prefix of a prompt, which may not be prefilled yet. voice_id: of its recording."""
        return self._prompt_prefixes.get(prompt, lambda: self._new_prefix(prompt, voice_id))

    def prefill(self, prefix: PromptPrefix) -> None:
        """Prefill the next part of a prefix, for all sentences that wait for it."""
        units_part = prefix.units[prefix.prefilled_units :][: self._prefill_chunk]
        prefix.state = self._lm.prefill(prefix.state, units_part)
        prefix.prefilled_units += len(units_part)
        if prefix.is_prefilled and prefix.voice_id and self._voice_files is not None:
            self._voice_files.save(
                prefix.voice_id, self._file_part(prefix), {"kv": np.asarray(prefix.state.kv)}
            )

    def _new_prefix(self, prompt: LmPrompt, voice_id: str) -> PromptPrefix:
        units = _common_prefix(self._new_generation, prompt)
        state = self._lm.init_state(1, len(units))
        prefix = PromptPrefix(units, state, voice_id if prompt.speech_ids else "")
        self._load(prefix)
        return prefix

    def _file_part(self, prefix: PromptPrefix) -> str:
        """Name of a prefix's file: one for each network, transcript and way of speaking."""
        inputs = repr([(unit.kind.value, unit.id) for unit in prefix.units])
        return f"{self._name}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"

    def _load(self, prefix: PromptPrefix) -> None:
        """Take a prefix from its file, if it has one."""
        if not prefix.voice_id or self._voice_files is None:
            return
        kv = np.asarray(prefix.state.kv)
        if stored := self._voice_files.load(prefix.voice_id, self._file_part(prefix), {"kv": kv}):
            np.copyto(kv, stored["kv"])
            prefix.state.lengths[0] = len(prefix.units)
            prefix.prefilled_units = len(prefix.units)

    def copy_prefix(self, row: int, prefix: PromptPrefix) -> int:
        """Start a row with a copy of a prefix; the number of inputs copied."""
        return self.rows.begin(row, prefix.state)

    def prefill_row(self, row: int, units: Sequence[LmInput]) -> int:
        """Prefill the next part of a row's inputs, all but the last one; the number of inputs in it."""
        units_part = units[: min(self._prefill_chunk, len(units) - 1)]
        self.rows.commit([row], self._lm.prefill(self.rows.span([row]), units_part))
        return len(units_part)

    def clear_row(self, row: int) -> None:
        """Empty a row, so that attention is not computed over it."""
        self.rows.clear_row(row)
        if self._graphs is not None:
            self._graphs.discard_decoded_ahead(row)

    def choose(self, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        """Decode the next id of each row. If this raises, nothing has changed."""
        if self._graphs is not None:
            return self._graphs.choose(turns)
        first, stop = min(turns), max(turns) + 1
        after, chosen = self._lm.choose(
            self.rows.span(turns.keys()), [turns.get(row) for row in range(first, stop)]
        )
        self.rows.commit(turns.keys(), after)
        return {first + row: id for row, id in chosen.items()}

    def decoded_ahead(self, row: int, ask: SamplingRequest | None) -> int | None:
        """The answer to a row's next request if the last ``choose`` has decoded it already, else None."""
        return self._graphs.decoded_ahead(row, ask) if self._graphs else None


def _has_graphs(lm: "LmNetwork | ArraySpeechLm") -> bool:
    """Whether steps are recorded: on a device other than the CPU."""
    return not isinstance(lm, ArraySpeechLm) and lm.device.type != "cpu"


def _steps_of(lm: "LmNetwork | ArraySpeechLm") -> LmSteppable:
    if isinstance(lm, ArraySpeechLm):
        return lm
    from ...models.cosyvoice.lm.decoding import LmSteps

    return LmSteps(lm)


def _decode_graphs(lm: Any, state: Any, ids_per_step: int) -> "DecodeGraphs":
    from ...models.cosyvoice.lm.decode_graphs import DecodeGraphs

    return DecodeGraphs(lm, state, MAX_BATCHED_INPUTS, ids_per_step)


def _common_prefix(new_generation: Callable[[LmPrompt], Generation], prompt: LmPrompt) -> tuple[LmInput, ...]:
    """The inputs that do not depend on the text, found by comparing two generations of different text.

    The last input of a request is left out, because a decode step needs one.
    """
    one, other = (_first_inputs(new_generation(prompt), text_id) for text_id in (0, 1))
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one[:-1], other, strict=False))
    return tuple(unit for unit, _ in pairs)


def _first_inputs(generation: Generation, text_id: int) -> tuple[LmInput, ...]:
    generation.push_text((text_id,))
    generation.end_text()
    ask = generation.ask()
    assert ask is not None
    return ask.inputs
