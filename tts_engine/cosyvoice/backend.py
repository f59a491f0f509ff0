"""CosyVoice 2 or 3 as a backend: many sessions' rows and sentences, two kinds of work.

    step    DECODE   a few speech ids for each session whose next chunk lacks some
            RENDER   flow and vocoder for each session whose next chunk is complete

A step is one small quantum of one kind for each turn, so that a cancelled session is gone soon. Sessions are
on the host (``utterance``), tensors with the runners. One worker does both kinds, or one each:

    worker 0    decode a b c |decode a b c |decode   c |       a session is at one place at a time; the two
    worker 1        render d     |  render a b    |            share no tensor, only what a session has said
"""

import heapq
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...models.cosyvoice.checkpoint.bundle import open_bundle
from ...models.cosyvoice.config import CosyVoiceVersion
from ...models.cosyvoice.devices import find_device, separate_stream
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.lm.generation import (
    BistreamGeneration,
    CompatBistreamGeneration,
    CompatOneShotGeneration,
    Generation,
    LmPrompt,
    OneShotGeneration,
    SpecialIds,
)
from ...models.cosyvoice.lm.silence_filter import SilenceFilter
from ...models.cosyvoice.networks import CosyVoiceNetworks, load_networks
from ..backends.base import ALL_STAGES, SlotRequest, SlotTurn, Stage, Stages, StepResult
from ..backends.process_child import HostedBackend
from ..bundles import bundle_errors
from ..segmenter import Segmenter
from .fault_isolation import FaultIsolation
from .front_end import CosyVoiceFrontEnd, PreparedRequest
from .lm_runner import MAX_BATCHED_INPUTS, LmRunner
from .policy import CosyVoicePolicy, Interleave
from .render_runner import RenderInput, RenderRunner
from .sentence import SentenceConfig
from .session import FRAMES_PER_ID, CosyVoiceSession
from .session_capacity import max_sessions_in_memory


class CosyVoiceRenderer:
    """The networks of a bundle, and the sessions that they speak in. Built by ``load_hosted_renderer``."""

    def __init__(
        self,
        version: CosyVoiceVersion,
        networks: CosyVoiceNetworks,
        tokenizer: TextTokenizer,
        policy: CosyVoicePolicy,
    ) -> None:
        ids = SpecialIds(version, networks.lm.config.codebook_size, tokenizer.end_of_prompt)
        new_generation = _generation_factory(ids, policy)
        self.slots = policy.slots
        one_each = tuple(frozenset({stage}) for stage in Stage)
        self.workers: Sequence[Stages] = one_each if policy.overlap else (ALL_STAGES,)
        self._queues = [separate_stream(networks.lm.device) for _ in self.workers]
        self._tokenizer = tokenizer
        self._policy = policy
        self._sentence_config = SentenceConfig(
            encode_text=tokenizer.encode_plain,
            new_generation=new_generation,
            new_filter=SilenceFilter if version is CosyVoiceVersion.V3 else None,
            ids=ids,
            first_hop=policy.first_hop,
            max_hop=policy.max_hop,
            max_text_ids=policy.max_text_ids,
            pause_share=policy.pause_share,
        )
        # A cancelled session keeps its row until its rendering ends, and another may decode in its place.
        rows = policy.slots + (policy.max_render_rows if policy.overlap else 0)
        self._lm = LmRunner(
            networks.lm,
            new_generation,
            rows=rows,
            context_ids=policy.lm_context_ids,
            max_prompt_prefixes=policy.max_prepared_voices,
            prefill_chunk=policy.prefill_chunk,
            ids_per_step=policy.ids_per_decode_step,
        )
        self._renderer = RenderRunner(networks, policy)
        self._free_rows = list(range(rows))
        self._sessions: dict[int, CosyVoiceSession] = {}
        self._rows: dict[int, int] = {}  # of the slots that have been stepped
        self._last_slot = 0
        self._memory_ids = self._renderer.memory_ids
        self._max_slots_now = policy.slots  # fewer after memory ran out, until nobody is there
        self.memory_slots = self._reckon_memory_slots()

    @property
    def open_slots(self) -> int:
        """Slots that are taken."""
        return len(self._sessions)

    def open_prepared(self, prepared: PreparedRequest) -> int:
        """Take a slot; a row with its first step, when those who were cancelled in the last have left."""
        self._last_slot += 1
        self._sessions[self._last_slot] = CosyVoiceSession(
            self._sentence_config, prepared.conditioning, prepared.seed
        )
        self.memory_slots = self._reckon_memory_slots()
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Give a slot back, and drop what was remembered of it."""
        del self._sessions[slot]
        if slot in self._rows:
            row = self._rows.pop(slot)
            self._lm.clear_row(row)
            heapq.heappush(self._free_rows, row)
        if not self._sessions:
            self._max_slots_now = self._policy.slots
        self.memory_slots = self._reckon_memory_slots()

    def _reckon_memory_slots(self) -> int:
        """Sessions that memory has room for now."""
        policy, sessions = self._policy, [*self._sessions.values()]
        window = policy.flow.window_frames
        max_ids = window // FRAMES_PER_ID if window else sys.maxsize
        voices = [self._renderer.copied_voice_ids(session.conditioning.flow_prompt) for session in sessions]
        ids_by_session = [
            min(max_ids, voice + max(policy.expected_ids, session.sentence_ids))
            for voice, session in zip(voices, sessions, strict=True)
        ]
        new_session_ids = min(max_ids, max(voices, default=0) + policy.expected_ids)
        fit = max_sessions_in_memory(
            self._memory_ids, self._renderer.prepared_voice_ids, ids_by_session, new_session_ids
        )
        return min(self.slots, self._max_slots_now, fit)

    def max_batch_size(self, stage: Stage) -> int:
        """As the policy has it."""
        policy = self._policy
        return policy.max_decode_rows if stage is Stage.DECODE else policy.max_render_rows

    def stage(self, slot: int) -> Stage:
        """RENDER when the next chunk's ids are there."""
        return Stage.RENDER if self._sessions[slot].is_chunk_ready else Stage.DECODE

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """One quantum of each turn's session."""
        with self._queues[worker]:
            return self._step(turns)

    def _step(self, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        stage = self.stage(turns[0].slot)
        turns_by_row = {self._row_of(turn.slot): turn for turn in turns}
        age = {row: turn.slot for row, turn in turns_by_row.items()}  # the newest has the highest slot
        isolation = FaultIsolation(
            age, free_memory=lambda row: self._free_render_memory(self._sessions[age[row]])
        )
        isolation.run_each(turns_by_row, self._begin)
        sessions_by_row = {
            row: self._sessions[turn.slot]
            for row, turn in turns_by_row.items()
            if row not in isolation.failed
        }
        rendered: dict[int, StepResult] = {}
        if stage is Stage.RENDER:
            rendered = self._render(sessions_by_row, isolation)
        else:
            self._decode(sessions_by_row, isolation)
        results: dict[int, StepResult | Exception] = {
            **{row: session.empty_result() for row, session in sessions_by_row.items()},
            **rendered,
            **isolation.failed,
        }
        if isolation.out_of_memory:
            self._max_slots_now = max(1, len(self._rows) - len(isolation.failed))
        self.memory_slots = self._reckon_memory_slots()
        return [results[row] for row in turns_by_row]

    def _row_of(self, slot: int) -> int:
        if slot not in self._rows:
            # The lowest, so that the rows in use are neighbours, which a step takes where they lie.
            self._rows[slot] = heapq.heappop(self._free_rows)
        return self._rows[slot]

    def _begin(self, row: int, turn: SlotTurn) -> None:
        if turn.segment is not None:
            self._sessions[turn.slot].begin(turn.segment, turn.pause_s)

    def _decode(self, rows: dict[int, CosyVoiceSession], isolation: FaultIsolation) -> None:
        """Feed a part of what is long, for the first that has it; and a few ids for all that are so far."""
        isolation.run_each(rows, self._take_decoded_ahead)
        isolation.run_each(rows, self._copy_prefix)
        needing_prefill = {
            row: row_session for row, row_session in rows.items() if _needs_prefill(row_session)
        }
        isolation.run_each(dict([*needing_prefill.items()][:1]), self._prefill_part)
        isolation.run_each(rows, self._copy_prefix)
        for _ in range(0, self._policy.ids_per_decode_step, self._lm.ids_per_step):
            ready = {
                row: row_session
                for row, row_session in rows.items()
                if row not in isolation.failed and not _needs_prefill(row_session)
            }
            turns = {row: turn for row, row_session in ready.items() if (turn := row_session.decoding_turn())}
            if not turns:
                return
            answers = isolation.run_batch(turns, self._lm.choose)
            isolation.run_each(answers, lambda row, id: rows[row].answer(id))
            isolation.run_each(answers, lambda row, _: self._take_decoded_ahead(row, rows[row]))

    def _take_decoded_ahead(self, row: int, session: CosyVoiceSession) -> None:
        while (id := self._lm.decoded_ahead(row, session.ask())) is not None:
            session.answer(id)

    def _copy_prefix(self, row: int, session: CosyVoiceSession) -> None:
        """Begin a sentence's row where all that it needs is a copy."""
        sentence = session.sentence
        if sentence is None or sentence.prefilled_inputs is not None or sentence.ask() is None:
            return
        prefix = sentence.prompt_prefix = sentence.prompt_prefix or self._lm.prompt_prefix(
            session.conditioning.prompt
        )
        if prefix.is_prefilled:
            sentence.prefilled_inputs, sentence.prompt_prefix = self._lm.copy_prefix(row, prefix), None

    def _prefill_part(self, row: int, session: CosyVoiceSession) -> None:
        """Feed a part of what a sentence needs before its next id."""
        sentence = session.sentence
        assert sentence is not None
        if sentence.prompt_prefix is not None:
            self._lm.prefill(sentence.prompt_prefix)
        else:
            sentence.prefilled_inputs = (sentence.prefilled_inputs or 0) + self._lm.prefill_row(
                row, sentence.remaining_inputs
            )

    def _render(
        self, due_sessions: dict[int, CosyVoiceSession], isolation: FaultIsolation
    ) -> dict[int, StepResult]:
        renderer = self._renderer
        render_inputs = isolation.run_each(due_sessions, self._render_input)
        mels = isolation.run_grouped(render_inputs, renderer.flow_batch_key, renderer.run_flow)
        vocoder_inputs = isolation.run_each(
            mels, lambda row, mel: renderer.vocoder_input(render_inputs[row], mel)
        )
        samples = isolation.run_grouped(vocoder_inputs, renderer.vocoder_batch_key, renderer.run_vocoder)
        return isolation.run_each(samples, lambda row, samples: due_sessions[row].render_result(samples))

    def _free_render_memory(self, session: CosyVoiceSession) -> None:
        if session.sentence is not None and session.sentence.render_state is not None:
            self._renderer.free(session.sentence.render_state)

    def _render_input(self, row: int, session: CosyVoiceSession) -> RenderInput:
        sentence, conditioning = session.sentence, session.conditioning
        if sentence is not None and sentence.render_state is None:
            sentence.render_state = self._renderer.begin_sentence(
                conditioning.flow_prompt, conditioning.speed, session.vocoder_rng
            )
        part = session.render_input()
        assert part is not None
        return part


class CosyVoiceBackend(CosyVoiceRenderer):
    """A bundle that speaks in this process. Built by ``load``."""

    warm_up_text = CosyVoiceFrontEnd.warm_up_text

    def __init__(
        self,
        front_end: CosyVoiceFrontEnd,
        version: CosyVoiceVersion,
        networks: CosyVoiceNetworks,
        tokenizer: TextTokenizer,
        policy: CosyVoicePolicy,
    ) -> None:
        super().__init__(version, networks, tokenizer, policy)
        self._front_end = front_end
        self.voices = front_end.voices

    @classmethod
    def load(
        cls, folder: Path, policy: CosyVoicePolicy | None = None, voices: Path | None = None
    ) -> "CosyVoiceBackend":
        """Check a checkpoint folder and load it; raises BundleError. voices: folder of a ``VoiceStore``."""
        policy = policy or CosyVoicePolicy()
        with bundle_errors():
            bundle = open_bundle(folder)
            tokenizer = bundle.text_tokenizer()
            front_end = CosyVoiceFrontEnd.from_bundle(bundle, tokenizer, policy, voices)
            networks = load_networks(bundle, policy.flow, policy.precision, find_device(policy.device))
            return cls(front_end, bundle.version, networks, tokenizer, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """As the front has it."""
        return self._front_end.segmenter(request)

    def open_slot(self, request: SlotRequest) -> int:
        """Take a slot; raises BadRequest for what the voice or the model cannot do."""
        return self.open_prepared(self._front_end.prepare_request(request))

    def close(self) -> None:
        """Forget every slot, and let go of the voices on file."""
        self._sessions.clear()
        self._front_end.close()


def load_hosted_renderer(folder: Path, policy: CosyVoicePolicy) -> HostedBackend:
    """What renders a bundle in a process of its own, beside a front; raises BundleError."""
    with bundle_errors():
        bundle = open_bundle(folder)
        networks = load_networks(bundle, policy.flow, policy.precision, find_device(policy.device))
        renderer = CosyVoiceRenderer(bundle.version, networks, bundle.text_tokenizer(), policy)
    return HostedBackend(renderer, renderer.open_prepared, Stage.DECODE)


def _needs_prefill(session: CosyVoiceSession) -> bool:
    """Whether its next id cannot be asked for together with those of others yet."""
    sentence = session.sentence
    if sentence is None or sentence.ask() is None:
        return False
    return sentence.prefilled_inputs is None or len(sentence.remaining_inputs) > MAX_BATCHED_INPUTS


def _generation_factory(ids: SpecialIds, policy: CosyVoicePolicy) -> Callable[[LmPrompt], Generation]:
    kinds: dict[Interleave, type[Generation]] = {
        Interleave.BISTREAM: BistreamGeneration,
        Interleave.ONE_SHOT: OneShotGeneration,
        Interleave.COMPAT_BISTREAM: CompatBistreamGeneration,
        Interleave.COMPAT_ONE_SHOT: CompatOneShotGeneration,
    }
    kind = kinds[policy.interleave]
    return lambda prompt: kind(ids, prompt, policy.length)
