"""Steps the sessions of a CosyVoice bundle through its networks, many sessions at once.

    step    DECODE   a few speech ids for each session whose next chunk needs more of them
            RENDER   flow and vocoder for each session whose next chunk has all its ids

A step does a small amount of work for each session, so that a cancelled session frees its slot soon. Host
state is in ``session`` and ``sentence``, device state in the language model's runner and in the render stage.
One worker runs both kinds of step, or workers run one kind each:

    worker 0    decode a b c |decode a b c |decode   c |       a session is in one step at a time; the workers
    worker 1        render d     |  render a b    |            share no tensor

A render stage in other processes (``rendering/remote_render_stage``) has several workers that wait for it.
"""

import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, assert_never

from ...models.cosyvoice.config import CosyVoiceVersion, MixRatio
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.lm.decode_turn import DecodeTurn
from ...models.cosyvoice.lm.generation import (
    BistreamGeneration,
    Generation,
    LmPrompt,
    OneShotGeneration,
    SpecialIds,
)
from ...models.cosyvoice.lm.silence_filter import SilenceFilter
from ...models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm
from ...models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ..backends.base import ALL_STAGES, SlotTurn, Stage, Stages, StepResult
from ..fault_isolation import FaultIsolation
from .front_end import PreparedRequest
from .lm_runner import MAX_BATCHED_INPUTS, LmRunner
from .policy import CosyVoicePolicy, Interleave
from .rendering.render_input import RenderInput
from .rendering.render_stage import RenderStage
from .sentence import SentenceConfig
from .session import CosyVoiceSession
from .text_encoder import CosyVoiceTextEncoder

if TYPE_CHECKING:
    from ...models.cosyvoice.lm.speech_lm import LmNetwork


logger = logging.getLogger(__name__)


class CosyVoiceRenderer:
    """The networks of one bundle and the sessions that use them. ``loading`` builds one.

    Implements ``SlotRenderer``. A slot is one session; a row is a session's place in the language model's
    memory, taken with its first step.
    """

    def __init__(
        self,
        version: CosyVoiceVersion,
        lm: "LmNetwork | ArraySpeechLm",
        render_stage: RenderStage,
        tokenizer: TextTokenizer,
        policy: CosyVoicePolicy,
        voice_files: PreparedVoiceFolder | None = None,
    ) -> None:
        ids = SpecialIds(version, lm.config.codebook_size, tokenizer.end_of_prompt)
        new_generation = _generation_factory(ids, policy, lm.config.mix_ratio)
        self.slots = policy.slots
        render_workers = [frozenset({Stage.RENDER})] * render_stage.workers
        one_stage_each = (frozenset({Stage.DECODE}), *render_workers)
        self.workers: Sequence[Stages] = one_stage_each if policy.overlap else (ALL_STAGES,)
        self._device_streams = [_stream_of(lm) for _ in self.workers]
        self._tokenizer = tokenizer
        self._policy = policy
        self._sentence_config = SentenceConfig(
            text_encoder=CosyVoiceTextEncoder(tokenizer.encode_plain, tokenizer.marks),
            new_generation=new_generation,
            new_filter=SilenceFilter if version is CosyVoiceVersion.V3 else None,
            ids=ids,
            first_hop=policy.first_hop,
            max_hop=policy.max_hop,
            max_text_ids=policy.max_text_ids,
            pause_share=policy.pause_share,
        )
        # A cancelled session keeps its row until its render step ends, while a new session decodes in its
        # slot.
        rows = policy.slots + (render_stage.workers * policy.max_render_rows if policy.overlap else 0)
        self._lm = LmRunner(
            lm,
            new_generation,
            rows=rows,
            context_ids=policy.lm_context_ids,
            max_prompt_prefixes=policy.max_prepared_voices,
            prefill_chunk=policy.prefill_chunk,
            ids_per_step=policy.ids_per_decode_step,
            voice_files=voice_files,
        )
        self._render_stage = render_stage
        self._free_rows = list(range(rows))
        self._sessions: dict[int, CosyVoiceSession] = {}
        self._rows: dict[int, int] = {}  # row by slot, for slots that have been stepped
        self._last_slot = 0
        self._max_slots_now = policy.slots  # lowered when memory runs out, until no session is open
        self._device_is_lost = False

    @property
    def open_slots(self) -> int:
        """Number of open slots."""
        return len(self._sessions)

    @property
    def memory_slots(self) -> int:
        """Sessions that memory has room for now, the open ones included; none on a device that failed."""
        if self._device_is_lost:
            return 0
        sessions = [*self._sessions.values()]
        speech = [(session.conditioning.flow_prompt, session.sentence_ids) for session in sessions]
        return min(self.slots, self._max_slots_now, self._render_stage.memory_slots(speech))

    def open_prepared(self, prepared: PreparedRequest) -> int:
        """Open a slot. Its row is taken with its first step, after cancelled sessions have left theirs."""
        self._last_slot += 1
        self._sessions[self._last_slot] = CosyVoiceSession(
            self._sentence_config, prepared.conditioning, prepared.seed
        )
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot and discard its state."""
        self.interrupt(slot)
        del self._sessions[slot]
        if slot in self._rows:
            row = self._rows.pop(slot)
            self._lm.clear_row(row)
            heapq.heappush(self._free_rows, row)
        if not self._sessions:
            self._max_slots_now = self._policy.slots

    def interrupt(self, slot: int) -> None:
        """End the slot's running step early if another process does it; nobody waits for the result."""
        sentence = self._sessions[slot].sentence  # one read, because a step on another thread may clear it
        if sentence is not None and sentence.render_state is not None:
            self._render_stage.release(sentence.render_state)

    def max_batch_size(self, stage: Stage) -> int:
        """The policy's number of rows for that stage."""
        policy = self._policy
        return policy.max_decode_rows if stage is Stage.DECODE else policy.max_render_rows

    def stage(self, slot: int) -> Stage:
        """RENDER if the speech ids of the next chunk are complete, else DECODE."""
        return Stage.RENDER if self._sessions[slot].is_chunk_ready else Stage.DECODE

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Run one step for every turn's session; all of them are in the same stage."""
        with self._device_streams[worker]:
            stage = self.stage(turns[0].slot)
            turns_by_row = {self._row_of(turn.slot): turn for turn in turns}
            isolation = FaultIsolation(
                {row: turn.slot for row, turn in turns_by_row.items()},  # slot numbers only grow
                free_memory=lambda row: self._free_render_memory(self._session(turns_by_row[row])),
            )
            rendered: dict[int, StepResult] = {}
            if stage is Stage.RENDER:
                rendered = self._render(turns_by_row, isolation)
            else:
                self._decode(turns_by_row, isolation)
            results = isolation.run_each(
                turns_by_row, lambda row, turn: rendered.get(row) or self._session(turn).empty_result()
            )
            if isolation.out_of_memory:
                self._max_slots_now = max(1, len(self._rows) - len(isolation.failed))
            if isolation.device_is_lost and not self._device_is_lost:
                self._device_is_lost = True
                logger.error("the device failed; no stream is admitted until the server is started again")
            return [isolation.failed.get(row) or results[row] for row in turns_by_row]

    # DECODE

    def _decode(self, turns: Mapping[int, SlotTurn], isolation: FaultIsolation) -> None:
        """Prefill one part of one long input, then decode a few ids for every session without one."""
        sessions = {row: self._session(turn) for row, turn in turns.items()}
        needs_prefill = isolation.run_each(turns, self._begin_decoding)
        first = [row for row, needed in needs_prefill.items() if needed][:1]
        isolation.run_each({row: sessions[row] for row in first}, self._prefill_part)
        # That part may have completed a prefix which several sentences wait for.
        isolation.run_each(sessions, self._copy_prefix)
        for _ in range(0, self._policy.ids_per_decode_step, self._lm.ids_per_step):
            decode_turns = isolation.run_each(sessions, _decode_turn)
            asking = {row: turn for row, turn in decode_turns.items() if turn is not None}
            if not asking:
                return
            chosen_ids = isolation.run_batch(asking, self._lm.choose)
            isolation.run_each(chosen_ids, lambda row, id: self._take_id(row, sessions[row], id))

    def _begin_decoding(self, row: int, turn: SlotTurn) -> bool:
        """Take the turn's segment and the ids that are decoded already; whether the row needs a prefill."""
        session = self._begin(turn)
        self._take_decoded_ahead(row, session)
        self._copy_prefix(row, session)
        return _needs_prefill(session)

    def _take_id(self, row: int, session: CosyVoiceSession, id: int) -> None:
        session.answer(id)
        self._take_decoded_ahead(row, session)

    def _take_decoded_ahead(self, row: int, session: CosyVoiceSession) -> None:
        while (id := self._lm.decoded_ahead(row, session.ask())) is not None:
            session.answer(id)

    def _copy_prefix(self, row: int, session: CosyVoiceSession) -> None:
        """Copy the prompt's prefix into the row of a sentence that has none, if the prefix is prefilled."""
        sentence = session.sentence
        if sentence is None or sentence.prefilled_inputs is not None or sentence.ask() is None:
            return
        prefix = sentence.prompt_prefix = sentence.prompt_prefix or self._lm.prompt_prefix(
            session.conditioning.prompt, session.conditioning.flow_prompt.id
        )
        if prefix.is_prefilled:
            sentence.prefilled_inputs, sentence.prompt_prefix = self._lm.copy_prefix(row, prefix), None

    def _prefill_part(self, row: int, session: CosyVoiceSession) -> None:
        """Prefill the next part of the prompt's prefix or, once that is copied, of the sentence's input."""
        sentence = session.sentence
        assert sentence is not None
        if sentence.prompt_prefix is not None:
            self._lm.prefill(sentence.prompt_prefix)
        else:
            sentence.prefilled_inputs = (sentence.prefilled_inputs or 0) + self._lm.prefill_row(
                row, sentence.remaining_inputs
            )

    # RENDER

    def _render(self, turns: Mapping[int, SlotTurn], isolation: FaultIsolation) -> dict[int, StepResult]:
        """Render one chunk for every session."""
        render_inputs = isolation.run_each(turns, self._begin_rendering)
        samples = self._render_stage.render(render_inputs, isolation)
        return isolation.run_each(samples, lambda row, made: self._session(turns[row]).render_result(made))

    def _begin_rendering(self, row: int, turn: SlotTurn) -> RenderInput:
        """Take the turn's segment, and open the sentence's render state with its first chunk."""
        session = self._begin(turn)
        sentence, conditioning = session.sentence, session.conditioning
        if sentence is not None and sentence.render_state is None:
            sentence.render_state = self._render_stage.begin_sentence(
                conditioning.flow_prompt, conditioning.speed, session.vocoder_rng
            )
        render_input = session.render_input(turn.runs_dry_at)
        assert render_input is not None
        return render_input

    # Both

    def _begin(self, turn: SlotTurn) -> CosyVoiceSession:
        session = self._session(turn)
        if turn.segment is not None:
            session.begin(turn.segment, turn.pause_s)
        return session

    def _session(self, turn: SlotTurn) -> CosyVoiceSession:
        return self._sessions[turn.slot]

    def _row_of(self, slot: int) -> int:
        if slot not in self._rows:
            # The lowest free row: rows in use stay adjacent, and a step reads them in place.
            self._rows[slot] = heapq.heappop(self._free_rows)
        return self._rows[slot]

    def _free_render_memory(self, session: CosyVoiceSession) -> None:
        if session.sentence is not None and session.sentence.render_state is not None:
            self._render_stage.free(session.sentence.render_state)


def _stream_of(lm: "LmNetwork | ArraySpeechLm") -> AbstractContextManager[object]:
    """The device stream of a worker."""
    if isinstance(lm, ArraySpeechLm):
        return nullcontext()
    from ...models.cosyvoice.devices import separate_stream

    return separate_stream(lm.device)


def _decode_turn(row: int, session: CosyVoiceSession) -> DecodeTurn | None:
    return None if _needs_prefill(session) else session.decoding_turn()


def _needs_prefill(session: CosyVoiceSession) -> bool:
    """Whether the inputs of the next id are too many for a step that several sessions share."""
    sentence = session.sentence
    if sentence is None or sentence.ask() is None:
        return False
    return sentence.prefilled_inputs is None or len(sentence.remaining_inputs) > MAX_BATCHED_INPUTS


def _generation_factory(
    ids: SpecialIds, policy: CosyVoicePolicy, mix_ratio: MixRatio
) -> Callable[[LmPrompt], Generation]:
    match policy.interleave:
        case Interleave.BISTREAM:
            return lambda prompt: BistreamGeneration(ids, prompt, policy.length, mix_ratio)
        case Interleave.ONE_SHOT:
            return lambda prompt: OneShotGeneration(ids, prompt, policy.length)
        case _:
            assert_never(policy.interleave)
