"""One session on the host: its sentences, counters and random numbers. No tensors.

    segments     |Well,|who is it?|          |Me.|        clauses are fed as they come
    sentences    |Well, who is it?|  pause   |Me.|        a sentence is one generation of the model
    speech ids   |.......................|   |....|
    chunks       |22|--50--|---50---|rest|   |rest|       as ``HopSchedule`` cuts them

A sentence ends where its segment says so, and before a piece that would make it too long.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...models.cosyvoice.bistream import (
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
)
from ...models.cosyvoice.decoding import DecodeTurn
from ...models.cosyvoice.hop_schedule import HopSchedule, SpeechIdChunk
from ...models.cosyvoice.sampling import SamplingParameters, seeded_uniforms
from ...models.cosyvoice.silent_ids import SilenceFilter
from ..backend import StepResult
from ..chunk import SAMPLE_RATE, Word
from ..reading.scripts import join_words
from ..text import BoundaryKind, Segment, Segmenter, SpokenWord
from .lm_runner import PromptPrefix
from .render_runner import FlowPrompt, RenderInput, Samples, SentenceRenderState
from .word_clock import IDS_PER_S, WordTimeEstimator

Words = tuple[SpokenWord, ...]

SAMPLES_PER_ID = 960
FRAMES_PER_ID = 2


@dataclass(frozen=True, slots=True)
class VoiceConditioning:
    """How a session speaks, decided when it opens.

    source_speech_ids: speech to be said again in the session's voice, instead of text.
    """

    flow_prompt: FlowPrompt
    prompt: LmPrompt
    sampling: SamplingParameters
    speed: float
    source_speech_ids: tuple[int, ...] | None = None


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


class VoiceConversionSegmenter(Segmenter):
    """For what is said again: one segment of no words, once the stream's input has ended."""

    def flush(self) -> list[Segment]:
        """The segment that begins it."""
        return [Segment((), 0, 0, BoundaryKind.SENTENCE)]


class SourceSpeechGeneration(Generation):
    """Speech that was heard, to be said in another voice: nothing is asked, all is known."""

    def __init__(self, ids: SpecialIds, source_speech_ids: Sequence[int]) -> None:
        super().__init__(ids)
        self.speech_ids = list(source_speech_ids)

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        yield from ()


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


class CosyVoiceSession:
    """One session's sentences, one after the other.

    Attributes:
        sentence: the one on its way.
        draws, noise: its random numbers, of sampling and of version 2's vocoder.
    """

    def __init__(self, config: SentenceConfig, conditioning: VoiceConditioning, seed: int) -> None:
        self.conditioning = conditioning
        self.sentence: SpokenSentence | None = None
        self.sampling_rng, self.vocoder_rng = seeded_uniforms(seed), np.random.default_rng([seed, 1])
        self._config = config
        self._pieces: deque[TextPiece] = deque()
        self._samples = 0
        self._speech_ids = 0

    def begin(self, segment: Segment, pause_s: float) -> None:
        """Take a segment on."""
        if self.conditioning.source_speech_ids is not None:
            self.sentence = SpokenSentence(self._config, self.conditioning)
        else:
            before = () if self.sentence is None or self.sentence.input_ended else self.sentence.last_word
            self._pieces += self._split_to_fit(segment, before, pause_s * self._config.pause_share)
        self.collect_and_feed()

    def collect_and_feed(self) -> None:
        """Take over what was said, leave a sentence that is spoken out, and feed what can be fed."""
        self._collect_ids()
        while self._pieces and self._feed_piece(self._pieces[0]):
            self._pieces.popleft()
            self._collect_ids()

    @property
    def is_drained(self) -> bool:
        """Whether all text is spoken, but for what the model holds until more comes."""
        return not self._pieces and (self.sentence is None or self.sentence.needs_text)

    @property
    def sentence_ids(self) -> int:
        """Speech ids of the sentence on its way, so far."""
        sentence = self.sentence  # asked while a step may come to its end
        return sentence.spoken_ids if sentence is not None else 0

    @property
    def is_chunk_ready(self) -> bool:
        """Whether a chunk can be rendered."""
        return self.sentence is not None and self.sentence.next_chunk is not None

    def ask(self) -> SamplingRequest | None:
        """What the model is to be asked now."""
        return self.sentence.ask() if self.sentence is not None else None

    def decoding_turn(self) -> DecodeTurn | None:
        """How to ask the model now; it is being asked."""
        sentence, ask = self.sentence, self.ask()
        if not sentence or not ask:
            return None
        sentence.note_text_given(ask)
        fed, sentence.prefilled_inputs = sentence.prefilled_inputs or 0, 0
        return DecodeTurn(sentence.generation, self.sampling_rng, self.conditioning.sampling, fed)

    def answer(self, id: int) -> None:
        """What the model was asked for."""
        assert self.sentence is not None
        self.sentence.generation.answer(id)
        self.collect_and_feed()

    def render_input(self) -> RenderInput | None:
        """What to render now; its sentence has a rendering."""
        sentence = self.sentence
        if sentence is None or sentence.next_chunk is None:
            return None
        assert sentence.render_state is not None
        return RenderInput(sentence.render_state, sentence.next_chunk, sentence.ids)

    def empty_result(self) -> StepResult:
        """The result of a step that made no sound."""
        return StepResult(np.zeros(0, np.float32), (), segment_done=self.is_drained)

    def render_result(self, samples: Samples) -> StepResult:
        """The result of a step that made the samples of the chunk that was due."""
        sentence = self.sentence
        assert sentence is not None
        start_sample = self._samples - sentence.samples
        chunk = sentence.commit_chunk(len(samples))
        words = tuple(self._timed_words(sentence, start_sample))
        first, stop = (
            max(0, place - sentence.prompt_tail_length) + self._speech_ids
            for place in (chunk.start, chunk.stop)
        )
        if chunk.final:
            self._speech_ids = stop
            samples = np.concatenate([samples, np.zeros(round(sentence.pause_s * SAMPLE_RATE), np.float32)])
        self._samples += len(samples)
        self.collect_and_feed()
        return StepResult(
            samples,
            words,
            self.is_drained,
            speech_ids=(first, stop),
            mel_frames=(FRAMES_PER_ID * first, FRAMES_PER_ID * stop),
            text=sentence.text,
        )

    def _collect_ids(self) -> None:
        if self.sentence is not None:
            self.sentence.collect_ids()
            if self.sentence.done:
                self.sentence = None

    def _feed_piece(self, piece: TextPiece) -> bool:
        """Give the sentence a piece; False where it has to be spoken out first."""
        if self.sentence is None:
            if not piece.text_ids:
                return True
            self.sentence = SpokenSentence(self._config, self.conditioning)
        elif self.sentence.input_ended:
            return False
        elif self.sentence.text_ids + len(piece.text_ids) > self._config.max_text_ids:
            self.sentence.end(0.0)
            return False
        self.sentence.add_text(piece)
        return True

    def _split_to_fit(self, segment: Segment, before: Words, pause_s: float) -> Iterator[TextPiece]:
        """A segment as pieces that fit into a sentence each; before: the word that it goes on from."""
        whole = join_words((*before, *segment.words))[len(join_words(before)) :]
        text_ids = tuple(self._config.encode_text(whole))
        half = len(segment.words) // 2
        if len(text_ids) <= self._config.max_text_ids:
            yield TextPiece(text_ids, segment, pause_s)
        elif half:
            first, second = segment.words[:half], segment.words[half:]
            middle = second[0].start
            yield from self._split_to_fit(
                replace(segment, words=first, stop=middle, ending=BoundaryKind.FORCED), before, 0.0
            )
            yield from self._split_to_fit(replace(segment, words=second, start=middle), first[-1:], pause_s)
        else:
            yield from self._split_word(text_ids, segment, pause_s)

    def _split_word(self, text_ids: tuple[int, ...], segment: Segment, pause_s: float) -> Iterator[TextPiece]:
        """A word without end, in as many pieces as it takes."""
        max_count = self._config.max_text_ids
        *parts, last = (text_ids[place : place + max_count] for place in range(0, len(text_ids), max_count))
        for part in parts:
            yield TextPiece(part, replace(segment, words=(), ending=BoundaryKind.FORCED), 0.0)
        yield TextPiece(last, segment, pause_s)

    def _timed_words(self, sentence: SpokenSentence, start_sample: int) -> Iterator[Word]:
        """Words that begin in what the sentence has given out now; starts_at: its first sample."""
        speed = self.conditioning.speed
        until_speech_id = sentence.samples * speed / SAMPLES_PER_ID
        total = sentence.spoken_ids if sentence.generation.finished else None
        for timed in sentence.word_times.take_words_until(
            sentence.spoken_ids if sentence.done else until_speech_id, total
        ):
            begin_s, end_s = (
                start_sample / SAMPLE_RATE + place / (IDS_PER_S * speed)
                for place in (timed.start, timed.stop)
            )
            yield Word("", begin_s, end_s, timed.word.start, timed.word.stop)


def generation_for(
    config: SentenceConfig, conditioning: VoiceConditioning
) -> tuple[Generation, SilenceFilter | None]:
    if conditioning.source_speech_ids is not None:
        return SourceSpeechGeneration(config.ids, conditioning.source_speech_ids), None
    return config.new_generation(conditioning.prompt), config.new_filter and config.new_filter()
