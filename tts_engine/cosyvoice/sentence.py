"""TODO."""

from collections.abc import Callable
from dataclasses import dataclass

from ...models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk
from ...models.cosyvoice.lm.generation import (
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
)
from ...models.cosyvoice.lm.silence_filter import SilenceFilter
from ..segmenter import BoundaryKind, Segment, SpokenWord
from .conditioning import VoiceConditioning
from .lm_runner import PromptPrefix
from .render_runner import SentenceRenderState
from .voice_conversion import SourceSpeechGeneration
from .word_timing import WordTimeEstimator

Words = tuple[SpokenWord, ...]


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """How sentences are made in this house.

    encode: text to text ids. start: a generation from a prompt. new_filter: of speech ids, where the release
    has one. first_hop, max_hop: speech ids. max_text_ids: of a sentence. pause_share: of the pause that
    a text asks for.
    """

    encode_text: Callable[[str], list[int]]
    new_generation: Callable[[LmPrompt], Generation]
    new_filter: Callable[[], SilenceFilter] | None
    ids: SpecialIds
    first_hop: int
    max_hop: int
    max_text_ids: int
    pause_share: float


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text fed at once. pause_s: after the sentence, if it ends with this."""

    text_ids: tuple[int, ...]
    segment: Segment
    pause_s: float


class SpokenSentence:
    """One generation and what becomes of it.

    Attributes:
        ids: speech ids to render, behind the end of the voice's recording.
        tail: how many of them are the recording's.
        due: the next chunk, once its ids are there.
        opening: what the model has to hear before the sentence; None once it has.
        fed: inputs of the next ask that the model remembers already; None before the sentence has a memory.
        rendering: what flow and vocoder remember; None before the first chunk.
        samples: given out so far.
    """

    def __init__(self, config: SentenceConfig, conditioning: VoiceConditioning) -> None:
        self.ids = list(conditioning.flow_prompt.prompt_tail_ids)
        self.prompt_tail_length = len(self.ids)
        self.next_chunk: SpeechIdChunk | None = None
        self.prompt_prefix: PromptPrefix | None = None
        self.prefilled_inputs: int | None = None
        self.render_state: SentenceRenderState | None = None
        self.samples = 0
        self.done = self.input_ended = False
        self.pause_s = 0.0
        self.text_ids = 0
        self.text = (0, 0)
        self.last_word: Words = ()
        self.word_times = WordTimeEstimator()
        self.generation, self._filter = generation_for(config, conditioning)
        self._schedule = HopSchedule(hop=config.first_hop, max_hop=config.max_hop)
        self._collected = 0
        self._prompt_text_ids = len(conditioning.prompt.text_ids)

    @property
    def spoken_ids(self) -> int:
        """Speech ids so far, the recording's not among them."""
        return len(self.ids) - self.prompt_tail_length

    @property
    def needs_text(self) -> bool:
        """Whether nothing can be done until more text comes."""
        return self.next_chunk is None and self.generation.ask() is None and not self.generation.finished

    def add_text(self, piece: TextPiece) -> None:
        """Add text, and end the sentence if the piece does."""
        for (
            text_id
        ) in piece.text_ids:  # one by one, because the faults of CompatBistreamGeneration depend on it
            self.generation.push_text((text_id,))
        segment = piece.segment
        self.word_times.add(segment.words, len(piece.text_ids))
        self.text = (self.text[0] if self.text_ids else segment.start, segment.stop)
        self.text_ids += len(piece.text_ids)
        self.last_word = segment.words[-1:] or self.last_word
        if segment.ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH):
            self.end(piece.pause_s)

    def end(self, pause_s: float) -> None:
        """No more text comes; pause_s: after the sentence."""
        self.generation.end_text()
        self.input_ended, self.pause_s = True, pause_s

    def ask(self) -> SamplingRequest | None:
        """What the model is to be asked now; None where nothing is, or a chunk is due first."""
        return self.generation.ask() if self.next_chunk is None else None

    @property
    def remaining_inputs(self) -> tuple[LmInput, ...]:
        """Inputs of the ask that the model does not remember yet."""
        ask = self.ask()
        return ask.inputs[self.prefilled_inputs or 0 :] if ask else ()

    def note_text_given(self, ask: SamplingRequest) -> None:
        """The model is being asked: what text it is given with that is what it may say from here on."""
        text_ids_given = sum(unit.kind is LmInputKind.TEXT for unit in ask.inputs)
        prompt_part = min(text_ids_given, self._prompt_text_ids)
        self._prompt_text_ids -= prompt_part
        if text_ids_given > prompt_part:
            self.word_times.note_text_given(text_ids_given - prompt_part, self.spoken_ids)

    def collect_ids(self) -> None:
        """Take over what the model has said, and see whether a chunk can be rendered."""
        self.generation.ask()  # after the last answer this is what finishes it
        new = self.generation.speech_ids[self._collected :]
        self._collected += len(new)
        self.ids += self._filter.push(new) if self._filter else new
        if self.generation.finished and not self.spoken_ids:
            self.done = True
        elif self.next_chunk is None and not self.done:
            self.next_chunk = self._schedule.next(len(self.ids), self.generation.finished)

    def commit_chunk(self, samples: int) -> SpeechIdChunk:
        """So many samples of the chunk that is due are given out now."""
        assert self.next_chunk is not None
        chunk, self.next_chunk = self.next_chunk, None
        self.samples += samples
        self.done = chunk.final
        return chunk


def generation_for(
    config: SentenceConfig, conditioning: VoiceConditioning
) -> tuple[Generation, SilenceFilter | None]:
    if conditioning.source_speech_ids is not None:
        return SourceSpeechGeneration(config.ids, conditioning.source_speech_ids), None
    return config.new_generation(conditioning.prompt), config.new_filter and config.new_filter()
