"""One sentence of a session on the host: text in, speech ids collected, chunks due. No tensors.

A sentence is one generation of the language model. It holds the runners' state of that generation, which only
the runners read.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from ...models.cosyvoice.config import SPEECH_IDS_PER_S
from ...models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk
from ...models.cosyvoice.lm.generation import (
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
)
from ...models.cosyvoice.lm.sampling import SilenceFilter
from ..segmenter import BoundaryKind, Segment
from ..voice_kit.word_timing import VoicePaces, WordTimeEstimator
from .conditioning import VoiceConditioning
from .lm_runner import PromptPrefix
from .text_encoder import CosyVoiceTextEncoder, Words


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """What all sentences of a backend share."""

    text_encoder: CosyVoiceTextEncoder
    new_generation: Callable[[LmPrompt], Generation]
    new_filter: Callable[[], SilenceFilter] | None  # CosyVoice 3 shortens long silences
    ids: SpecialIds
    first_hop: int  # speech ids of the first chunk
    max_hop: int  # speech ids of the longest chunk
    max_text_ids: int  # of one sentence
    pause_share: float  # of the pause that the text asks for
    paces: VoicePaces  # of the voices, measured as they speak


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text that is fed at once. pause_s: silence in seconds after the sentence, if the piece ends it."""

    text_ids: tuple[int, ...]
    segment: Segment
    pause_s: float


class SpokenSentence:
    """One generation, from its first text to its last chunk."""

    def __init__(self, config: SentenceConfig, conditioning: VoiceConditioning) -> None:
        # Speech ids to render; the first ones are the end of the voice's recording. Without one they repeat
        # the sentence's first id: speech begins with silence, and this way with more of it.
        self.ids = list(conditioning.flow_prompt.prompt_tail_ids)
        self.prompt_tail_length = conditioning.flow_prompt.prompt_tail_length
        self.next_chunk: SpeechIdChunk | None = None  # set when all its ids are in ``ids``
        self.prompt_prefix: PromptPrefix | None = None  # waited for; None once it is copied
        self.prefilled_inputs: int | None = None  # of the next request; None before the row is set up
        self.render_state: Any = None  # None before the first chunk
        self.samples = 0  # given out so far
        self.done = self.input_ended = False
        self.pause_s = 0.0  # silence after the sentence
        self.text_ids = 0  # fed so far
        self.text = (0, 0)  # characters of the text pushed
        self.last_word: Words = ()  # the context in which the next piece is encoded
        # An instruction may change the pace, so it is measured for each prompt.
        voice = (conditioning.flow_prompt.id, conditioning.prompt)
        self.word_times = WordTimeEstimator(
            SPEECH_IDS_PER_S, config.paces.pace_of(voice, conditioning.expected_pace)
        )
        self.generation, self._filter = generation_for(config, conditioning)
        self._schedule = HopSchedule(hop=conditioning.first_hop or config.first_hop, max_hop=config.max_hop)
        self._collected = 0
        self._prompt_text_ids = len(conditioning.prompt.text_ids)

    @property
    def spoken_ids(self) -> int:
        """Speech ids generated so far, without those of the recording."""
        return max(0, len(self.ids) - self.prompt_tail_length)

    @property
    def needs_text(self) -> bool:
        """Whether the generation can go on only with more text."""
        return self.next_chunk is None and self.generation.ask() is None and not self.generation.finished

    def add_text(self, piece: TextPiece) -> None:
        """Add text; a piece that ends in SENTENCE or PARAGRAPH also ends the input."""
        self.generation.push_text(piece.text_ids)
        segment = piece.segment
        self.word_times.add(segment.words, len(piece.text_ids))
        self.text = (self.text[0] if self.text_ids else segment.start, segment.stop)
        self.text_ids += len(piece.text_ids)
        self.last_word = segment.words[-1:] or self.last_word
        if segment.ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH):
            self.end(piece.pause_s)

    def end(self, pause_s: float) -> None:
        """End the input. pause_s: silence in seconds after the sentence."""
        self.generation.end_text()
        self.input_ended, self.pause_s = True, pause_s

    def ask(self) -> SamplingRequest | None:
        """The next request to the language model, None if there is none or a chunk is to be rendered."""
        return self.generation.ask() if self.next_chunk is None else None

    @property
    def remaining_inputs(self) -> tuple[LmInput, ...]:
        """Inputs of the next request that are not prefilled."""
        ask = self.ask()
        return ask.inputs[self.prefilled_inputs or 0 :] if ask else ()

    def note_text_given(self, ask: SamplingRequest) -> None:
        """Record that the request's text is given to the model now: no word of it can be spoken earlier."""
        text_ids_given = sum(unit.kind is LmInputKind.TEXT for unit in ask.inputs)
        prompt_part = min(text_ids_given, self._prompt_text_ids)
        self._prompt_text_ids -= prompt_part
        if text_ids_given > prompt_part:
            self.word_times.note_text_given(text_ids_given - prompt_part, self.spoken_ids)

    def collect_ids(self) -> None:
        """Take new speech ids from the generation, and schedule the next chunk if its ids are complete."""
        self.generation.ask()  # after the last answer, this call marks the generation as finished
        new = self.generation.speech_ids[self._collected :]
        self._collected += len(new)
        kept = [*self._filter.push(new)] if self._filter else new
        if kept and not self.ids:
            self.ids = [kept[0]] * self.prompt_tail_length
        self.ids += kept
        if self.generation.finished and not self.spoken_ids:
            self.done = True
        elif self.next_chunk is None and not self.done:
            self.next_chunk = self._schedule.next(len(self.ids), self.generation.finished)

    def commit_chunk(self, samples: int) -> SpeechIdChunk:
        """Record that the next chunk was rendered to that many samples; the chunk."""
        assert self.next_chunk is not None
        chunk, self.next_chunk = self.next_chunk, None
        self.samples += samples
        self.done = chunk.final
        return chunk


class SourceSpeechGeneration(Generation):
    """A generation with given speech ids, for voice conversion; it never asks the language model."""

    def __init__(self, ids: SpecialIds, source_speech_ids: Sequence[int]) -> None:
        super().__init__(ids)
        self.speech_ids = list(source_speech_ids)

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        yield from ()


def generation_for(
    config: SentenceConfig, conditioning: VoiceConditioning
) -> tuple[Generation, SilenceFilter | None]:
    """A new generation for a session, and the filter of its speech ids."""
    if conditioning.source_speech_ids is not None:
        return SourceSpeechGeneration(config.ids, conditioning.source_speech_ids), None
    return config.new_generation(conditioning.prompt), config.new_filter and config.new_filter()
