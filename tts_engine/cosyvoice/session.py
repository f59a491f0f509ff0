"""One session on the host: its sentences, counters and random numbers. No tensors.

    segments     |Well,|who is it?|          |Me.|        clauses are fed as they come
    sentences    |Well, who is it?|  pause   |Me.|        a sentence is one generation of the model
    speech ids   |.......................|   |....|
    chunks       |22|--50--|---50---|rest|   |rest|       as ``HopSchedule`` cuts them

A sentence ends where its segment says so, and before a piece that would make it too long.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...models.cosyvoice.lm.decoding import DecodeTurn
from ...models.cosyvoice.lm.generation import (
    SamplingRequest,
)
from ...models.cosyvoice.lm.sampling import seeded_uniforms
from ..backends.base import StepResult
from ..chunk import SAMPLE_RATE, Word
from ..reading.unicode_scripts import join_words
from ..segmenter import BoundaryKind, Segment
from .conditioning import VoiceConditioning
from .render_runner import RenderInput, Samples
from .sentence import SentenceConfig, SpokenSentence, TextPiece, Words
from .word_timing import IDS_PER_S

SAMPLES_PER_ID = 960
FRAMES_PER_ID = 2


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
