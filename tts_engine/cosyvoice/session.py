"""One CosyVoice session on the host: sentences, counters and random generators. No tensors.

    segments     |Well,|who is it?|          |Me.|        clauses are fed when they arrive
    sentences    |Well, who is it?|  pause   |Me.|        a sentence is one generation of the model
    speech ids   |.......................|   |....|
    chunks       |14|25|--50--|rest|         |rest|       as ``HopSchedule`` cuts them

A sentence ends where its segment ends it, or before a piece that would make it too long.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...models.cosyvoice.config import FRAMES_PER_SPEECH_ID, SPEECH_IDS_PER_S
from ...models.cosyvoice.lm.decode_turn import DecodeTurn
from ...models.cosyvoice.lm.generation import SamplingRequest
from ...models.cosyvoice.vocoder.normal_noise import noise_generator
from ...models.decoding.uniforms import seeded_uniforms
from ..backends.base import StepResult
from ..chunk import SAMPLE_RATE, Word
from ..segmenter import BoundaryKind, Segment
from ..voice_kit.word_timing import words_in_stream
from .conditioning import VoiceConditioning
from .rendering.render_stage import RenderInput, Samples
from .sentence import SentenceConfig, SpokenSentence, TextPiece
from .text_encoder import Words

SAMPLES_PER_ID = 960  # at 24 kHz


class CosyVoiceSession:
    """The sentences of one session, one after the other.

    Attributes:
        sentence: the current one.
        sampling_rng, vocoder_rng: the session's random generators, seeded alike; only version 2's vocoder
            draws from the second.
    """

    def __init__(
        self, config: SentenceConfig, conditioning: VoiceConditioning, seed: int, trace_id: str = "-"
    ) -> None:
        self.conditioning = conditioning
        self._trace_id = trace_id
        self.sentence: SpokenSentence | None = None
        self.sampling_rng, self.vocoder_rng = seeded_uniforms(seed), noise_generator(seed)
        self._config = config
        self._pieces: deque[TextPiece] = deque()
        self._samples = 0
        self._speech_ids = 0

    def begin(self, segment: Segment, pause_s: float) -> None:
        """Queue a segment with a pause in seconds, or start the conversion if there is one."""
        if self.conditioning.source_speech_ids is not None:
            self.sentence = SpokenSentence(self._config, self.conditioning)
        else:
            before = () if self.sentence is None or self.sentence.input_ended else self.sentence.last_word
            self._pieces += self._split_to_fit(segment, before, pause_s * self._config.pause_share)
        self.collect_and_feed()

    def collect_and_feed(self) -> None:
        """Collect speech ids, drop the current sentence if it is done, and feed pieces if possible."""
        self._collect_ids()
        while self._pieces and self._feed_piece(self._pieces[0]):
            self._pieces.popleft()
            self._collect_ids()

    @property
    def is_drained(self) -> bool:
        """Whether all text is rendered, apart from what the model holds back until more text arrives."""
        return not self._pieces and (self.sentence is None or self.sentence.needs_text)

    @property
    def sentence_ids(self) -> int:
        """Speech ids of the current sentence so far. May be called while a step is running."""
        sentence = self.sentence  # one read, because a step on another thread may clear it
        return sentence.spoken_ids if sentence is not None else 0

    @property
    def is_chunk_ready(self) -> bool:
        """Whether the next chunk's speech ids are complete."""
        return self.sentence is not None and self.sentence.next_chunk is not None

    def ask(self) -> SamplingRequest | None:
        """The next request to the language model."""
        return self.sentence.ask() if self.sentence is not None else None

    def decoding_turn(self) -> DecodeTurn | None:
        """The session's part in a decode step that runs now; None if it has no request."""
        sentence, ask = self.sentence, self.ask()
        if not sentence or not ask:
            return None
        sentence.note_text_given(ask)
        fed, sentence.prefilled_inputs = sentence.prefilled_inputs or 0, 0
        return DecodeTurn(sentence.generation, self.sampling_rng, self.conditioning.sampling, fed)

    def answer(self, id: int) -> None:
        """Take the speech id that the language model chose."""
        assert self.sentence is not None
        self.sentence.generation.answer(id)
        self.collect_and_feed()

    def render_input(self, runs_dry_at: float | None) -> RenderInput | None:
        """The chunk to render now; None if there is none. The sentence must have a render state.

        runs_dry_at: as of ``SlotTurn``.
        """
        sentence = self.sentence
        if sentence is None or sentence.next_chunk is None:
            return None
        assert sentence.render_state is not None
        return RenderInput(
            sentence.render_state, sentence.next_chunk, sentence.ids, runs_dry_at, self._trace_id
        )

    def empty_result(self) -> StepResult:
        """The result of a step that rendered nothing."""
        return StepResult(np.zeros(0, np.float32), (), segment_done=self.is_drained)

    def render_result(self, samples: Samples) -> StepResult:
        """The result of a step that rendered the next chunk to these samples."""
        sentence = self.sentence
        assert sentence is not None
        start_sample = self._samples - sentence.samples
        chunk = sentence.commit_chunk(len(samples))
        words = tuple(self._timed_words(sentence, start_sample))
        first, stop, needed = (
            max(0, place - sentence.prompt_tail_length) + self._speech_ids
            for place in (chunk.start, chunk.stop, chunk.lookahead_stop)
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
            mel_frames=(FRAMES_PER_SPEECH_ID * first, FRAMES_PER_SPEECH_ID * stop),
            text=sentence.text,
            speech_ids_needed=needed,
        )

    def _collect_ids(self) -> None:
        if self.sentence is not None:
            self.sentence.collect_ids()
            if self.sentence.done:
                self.sentence = None

    def _feed_piece(self, piece: TextPiece) -> bool:
        """Feed a piece to the current sentence; False if that has to be rendered to its end first."""
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
        """Split a segment into pieces that each fit into a sentence. before: the word that precedes it."""
        text_ids = self._config.text_encoder.encode(segment.words, before)
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
        """Split a single word that is longer than a sentence may be."""
        max_count = self._config.max_text_ids
        *parts, last = (text_ids[place : place + max_count] for place in range(0, len(text_ids), max_count))
        for part in parts:
            yield TextPiece(part, replace(segment, words=(), ending=BoundaryKind.FORCED), 0.0)
        yield TextPiece(last, segment, pause_s)

    def _timed_words(self, sentence: SpokenSentence, start_sample: int) -> Iterator[Word]:
        """Words that begin in the samples given out so far. start_sample: of the sentence, in the stream."""
        speed = self.conditioning.speed
        until_speech_id = sentence.samples * speed / SAMPLES_PER_ID
        total = sentence.spoken_ids if sentence.generation.finished else None
        generated = sentence.spoken_ids
        timed = sentence.word_times.take_words_until(
            generated if sentence.done else until_speech_id, total, generated
        )
        return words_in_stream(timed, start_sample, SPEECH_IDS_PER_S * speed)
