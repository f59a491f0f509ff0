"""Steps the sessions of a CosyVoice bundle through its networks: the language model, then flow and vocoder.

Host state is in ``session`` and ``sentence``, device state in the language model's runner and in the render
stage. A render stage in other processes (``rendering/remote_render_stage``) has several workers that wait
for it.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, assert_never

from ...models.cosyvoice.config import CosyVoiceVersion, MixRatio
from ...models.cosyvoice.flow.hop_schedule import prompt_tail_ids
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.lm.decode_turn import DecodeTurn
from ...models.cosyvoice.lm.generation import (
    BistreamGeneration,
    Generation,
    LmPrompt,
    OneShotGeneration,
    SpecialIds,
)
from ...models.cosyvoice.lm.sampling import SilenceFilter
from ...models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm
from ...models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ..backends.base import SlotTurn, Stage
from ..voice_kit.fault_isolation import FaultIsolation
from ..voice_kit.session_renderer import Samples, SessionRenderer, row_count
from ..voice_kit.word_timing import VoicePaces
from .front_end import PreparedRequest
from .lm_runner import MAX_BATCHED_INPUTS, LmRunner
from .policy import CosyVoicePolicy, Interleave
from .rendering.render_stage import RenderInput, RenderStage
from .sentence import SentenceConfig
from .session import CosyVoiceSession
from .text_encoder import CosyVoiceTextEncoder

if TYPE_CHECKING:
    from ...models.cosyvoice.lm.speech_lm import LmNetwork


class CosyVoiceRenderer(SessionRenderer[CosyVoiceSession]):
    """The networks of one bundle and the sessions that use them. ``loading`` builds one."""

    def __init__(
        self,
        version: CosyVoiceVersion,
        lm: "LmNetwork | ArraySpeechLm",
        render_stage: RenderStage,
        tokenizer: TextTokenizer,
        policy: CosyVoicePolicy,
        voice_files: PreparedVoiceFolder | None = None,
    ) -> None:
        super().__init__(policy, lambda: _stream_of(lm), render_stage.workers)
        ids = SpecialIds(version, lm.config.codebook_size, tokenizer.end_of_prompt)
        new_generation = _generation_factory(ids, policy, lm.config.mix_ratio)
        self._sentence_config = SentenceConfig(
            text_encoder=CosyVoiceTextEncoder(tokenizer.encode_plain, tokenizer.marks),
            new_generation=new_generation,
            new_filter=SilenceFilter if version is CosyVoiceVersion.V3 else None,
            ids=ids,
            first_hop=policy.first_hop,
            max_hop=policy.max_hop,
            max_text_ids=policy.max_text_ids,
            pause_share=policy.pause_share,
            paces=VoicePaces(),
        )
        self._lm = LmRunner(
            lm,
            new_generation,
            rows=row_count(policy, render_stage.workers),
            context_ids=policy.lm_context_ids,
            max_prompt_prefixes=policy.max_prepared_voices,
            prefill_chunk=policy.prefill_chunk,
            ids_per_step=policy.ids_per_decode_step,
            voice_files=voice_files,
        )
        self.ids_per_call = self._lm.ids_per_step
        self._render_stage = render_stage
        self._version = version

    @property
    def chunk_policy(self) -> dict[str, int]:
        """As ``ChunkedBackend.chunk_policy``, in speech ids."""
        tail = prompt_tail_ids(self._version, speed=1.0)
        return {
            "first_hop": self._sentence_config.first_hop,
            "max_hop": self._sentence_config.max_hop,
            "prompt_tail": tail,
        }

    @property
    def memory_slots(self) -> int:
        """As ``SessionRenderer``, within the memory of the render stage."""
        slots = super().memory_slots
        if not slots:
            return 0
        sessions = [*self._sessions.values()]
        speech = [(session.conditioning.flow_prompt, session.sentence_ids) for session in sessions]
        return min(slots, self._render_stage.memory_slots(speech))

    def open_prepared(self, prepared: PreparedRequest) -> int:
        """Open a slot."""
        return self.open_session(
            CosyVoiceSession(self._sentence_config, prepared.conditioning, prepared.seed, prepared.trace_id)
        )

    def close_slot(self, slot: int) -> None:
        """Close a slot and discard its state."""
        self.interrupt(slot)
        super().close_slot(slot)

    def interrupt(self, slot: int) -> None:
        """End the slot's running step early if another process does it; nobody waits for the result."""
        sentence = self._sessions[slot].sentence  # one read, because a step on another thread may clear it
        if sentence is not None and sentence.render_state is not None:
            self._render_stage.release(sentence.render_state)

    @property
    def next_preparation(self) -> Stage | None:
        """As ``PreparingBackend``: the stage whose next capture the fewest streams need."""
        queues = {Stage.DECODE: self._lm.captures, Stage.RENDER: self._render_stage.captures}
        left = {stage: streams for stage, queue in queues.items() if (streams := queue.min_streams)}
        return None if self._device_is_lost else min(left, key=left.__getitem__, default=None)

    def prepare(self, worker: int, stage: Stage) -> None:
        """As ``PreparingBackend``: capture one step."""
        queue = self._lm.captures if stage is Stage.DECODE else self._render_stage.captures
        with self._device_streams[worker]:
            queue.capture_next()

    # DECODE

    def _begin_decoding(self, row: int, session: CosyVoiceSession) -> bool:
        """Take the ids that are decoded already; whether the row needs a prefill."""
        self._take_decoded_ahead(row, session)
        self._copy_prefix(row, session)
        return _needs_prefill(session)

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

    def _decode_turn(self, row: int, session: CosyVoiceSession) -> DecodeTurn | None:
        self._copy_prefix(row, session)  # a part for another session may have completed it
        return None if _needs_prefill(session) else session.decoding_turn()

    def _decode_rows(self, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        return self._lm.choose(turns)

    def _take_decoded(self, row: int, session: CosyVoiceSession, decoded: int) -> None:
        session.answer(decoded)
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

    # RENDER

    def _begin_rendering(self, session: CosyVoiceSession, turn: SlotTurn) -> RenderInput:
        """The session's next chunk; the first one of a sentence opens its render state."""
        sentence, conditioning = session.sentence, session.conditioning
        if sentence is not None and sentence.render_state is None:
            sentence.render_state = self._render_stage.begin_sentence(
                conditioning.flow_prompt, conditioning.speed, session.vocoder_rng
            )
        render_input = session.render_input(turn.runs_dry_at)
        assert render_input is not None
        return render_input

    def _render_rows(
        self, inputs: Mapping[int, RenderInput], isolation: FaultIsolation
    ) -> dict[int, Samples]:
        return self._render_stage.render(inputs, isolation)

    # Memory

    def _clear_row(self, row: int) -> None:
        self._lm.clear_row(row)

    def _free_render_memory(self, session: CosyVoiceSession) -> None:
        if session.sentence is not None and session.sentence.render_state is not None:
            self._render_stage.free(session.sentence.render_state)


def _stream_of(lm: "LmNetwork | ArraySpeechLm") -> AbstractContextManager[object]:
    """The device stream of a worker."""
    if isinstance(lm, ArraySpeechLm):
        return nullcontext()
    from ...models.devices.torch_devices import separate_stream

    return separate_stream(lm.device)


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
