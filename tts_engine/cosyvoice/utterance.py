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

from ...models.cosyvoice.bistream import Ask, Generation, Kind, Prompt, SpeechIds, Unit
from ...models.cosyvoice.decoding import Turn
from ...models.cosyvoice.hop_schedule import Chunk, HopSchedule
from ...models.cosyvoice.sampling import SamplingParameters, seeded
from ...models.cosyvoice.silent_ids import SilentFilter
from ..backend import Rendered
from ..chunk import SAMPLE_RATE, Word
from ..reading.scripts import join
from ..text import Ending, Segment, Segmenter, SpokenWord
from .lm_runner import Opening
from .render_runner import Part, Rendering, Samples, Timbre
from .word_clock import IDS_PER_S, WordClock

Words = tuple[SpokenWord, ...]

SAMPLES_PER_ID = 960
FRAMES_PER_ID = 2


@dataclass(frozen=True, slots=True)
class Manner:
    """How a session speaks, decided when it opens.

    source_ids: speech to be said again in the session's voice, instead of text.
    """

    timbre: Timbre
    prompt: Prompt
    sampling: SamplingParameters
    speed: float
    source_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Making:
    """How sentences are made in this house.

    encode: text to text ids. start: a generation from a prompt. new_filter: of speech ids, where the release
    has one. first_hop, longest_hop: speech ids. most_text_ids: of a sentence. pause_share: of the pause that
    a text asks for.
    """

    encode: Callable[[str], list[int]]
    start: Callable[[Prompt], Generation]
    new_filter: Callable[[], SilentFilter] | None
    ids: SpeechIds
    first_hop: int
    longest_hop: int
    most_text_ids: int
    pause_share: float


class NoText(Segmenter):
    """For what is said again: one segment of no words, once the stream's input has ended."""

    def flush(self) -> list[Segment]:
        """The segment that begins it."""
        return [Segment((), 0, 0, Ending.SENTENCE)]


class Heard(Generation):
    """Speech that was heard, to be said in another voice: nothing is asked, all is known."""

    def __init__(self, ids: SpeechIds, source_ids: Sequence[int]) -> None:
        super().__init__(ids)
        self.spoken = list(source_ids)

    def _ask_all(self) -> Generator[Ask | None, int, None]:
        yield from ()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text fed at once. pause_s: after the sentence, if it ends with this."""

    text_ids: tuple[int, ...]
    segment: Segment
    pause_s: float


class Sentence:
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

    def __init__(self, making: Making, manner: Manner) -> None:
        self.ids = list(manner.timbre.tail)
        self.tail = len(self.ids)
        self.due: Chunk | None = None
        self.opening: Opening | None = None
        self.fed: int | None = None
        self.rendering: Rendering | None = None
        self.samples = 0
        self.done = self.ended = False
        self.pause_s = 0.0
        self.text_ids = 0
        self.text = (0, 0)
        self.last_word: Words = ()
        self.clock = WordClock()
        self.generation, self._filter = _generation(making, manner)
        self._schedule = HopSchedule(hop=making.first_hop, longest=making.longest_hop)
        self._taken = 0
        self._prompt_text_ids = len(manner.prompt.text_ids)

    @property
    def spoken_ids(self) -> int:
        """Speech ids so far, the recording's not among them."""
        return len(self.ids) - self.tail

    @property
    def waits(self) -> bool:
        """Whether nothing can be done until more text comes."""
        return self.due is None and self.generation.ask() is None and not self.generation.finished

    def feed(self, piece: _Piece) -> None:
        """Add text, and end the sentence if the piece does."""
        for text_id in piece.text_ids:  # one by one, because the faults of CompatBistream depend on it
            self.generation.push_text((text_id,))
        segment = piece.segment
        self.clock.add(segment.words, len(piece.text_ids))
        self.text = (self.text[0] if self.text_ids else segment.start, segment.stop)
        self.text_ids += len(piece.text_ids)
        self.last_word = segment.words[-1:] or self.last_word
        if segment.ending in (Ending.SENTENCE, Ending.PARAGRAPH):
            self.end(piece.pause_s)

    def end(self, pause_s: float) -> None:
        """No more text comes; pause_s: after the sentence."""
        self.generation.end_text()
        self.ended, self.pause_s = True, pause_s

    def ask(self) -> Ask | None:
        """What the model is to be asked now; None where nothing is, or a chunk is due first."""
        return self.generation.ask() if self.due is None else None

    @property
    def unfed(self) -> tuple[Unit, ...]:
        """Inputs of the ask that the model does not remember yet."""
        ask = self.ask()
        return ask.inputs[self.fed or 0 :] if ask else ()

    def note_given(self, ask: Ask) -> None:
        """The model is being asked: what text it is given with that is what it may say from here on."""
        given = sum(unit.kind is Kind.TEXT for unit in ask.inputs)
        of_prompt = min(given, self._prompt_text_ids)
        self._prompt_text_ids -= of_prompt
        if given > of_prompt:
            self.clock.give(given - of_prompt, self.spoken_ids)

    def look(self) -> None:
        """Take over what the model has said, and see whether a chunk can be rendered."""
        self.generation.ask()  # after the last answer this is what finishes it
        new = self.generation.spoken[self._taken :]
        self._taken += len(new)
        self.ids += self._filter.push(new) if self._filter else new
        if self.generation.finished and not self.spoken_ids:
            self.done = True
        elif self.due is None and not self.done:
            self.due = self._schedule.next(len(self.ids), self.generation.finished)

    def take(self, samples: int) -> Chunk:
        """So many samples of the chunk that is due are given out now."""
        assert self.due is not None
        chunk, self.due = self.due, None
        self.samples += samples
        self.done = chunk.final
        return chunk


class Utterance:
    """One session's sentences, one after the other.

    Attributes:
        sentence: the one on its way.
        draws, noise: its random numbers, of sampling and of version 2's vocoder.
    """

    def __init__(self, making: Making, manner: Manner, seed: int) -> None:
        self.manner = manner
        self.sentence: Sentence | None = None
        self.draws, self.noise = seeded(seed), np.random.default_rng([seed, 1])
        self._making = making
        self._pieces: deque[_Piece] = deque()
        self._samples = 0
        self._speech_ids = 0

    def begin(self, segment: Segment, pause_s: float) -> None:
        """Take a segment on."""
        if self.manner.source_ids is not None:
            self.sentence = Sentence(self._making, self.manner)
        else:
            before = () if self.sentence is None or self.sentence.ended else self.sentence.last_word
            self._pieces += self._cut(segment, before, pause_s * self._making.pause_share)
        self.settle()

    def settle(self) -> None:
        """Take over what was said, leave a sentence that is spoken out, and feed what can be fed."""
        self._look()
        while self._pieces and self._feed(self._pieces[0]):
            self._pieces.popleft()
            self._look()

    @property
    def rests(self) -> bool:
        """Whether all text is spoken, but for what the model holds until more comes."""
        return not self._pieces and (self.sentence is None or self.sentence.waits)

    @property
    def sentence_ids(self) -> int:
        """Speech ids of the sentence on its way, so far."""
        sentence = self.sentence  # asked while a step may come to its end
        return sentence.spoken_ids if sentence is not None else 0

    @property
    def is_due(self) -> bool:
        """Whether a chunk can be rendered."""
        return self.sentence is not None and self.sentence.due is not None

    def ask(self) -> Ask | None:
        """What the model is to be asked now."""
        return self.sentence.ask() if self.sentence is not None else None

    def turn(self) -> Turn | None:
        """How to ask the model now; it is being asked."""
        sentence, ask = self.sentence, self.ask()
        if not sentence or not ask:
            return None
        sentence.note_given(ask)
        fed, sentence.fed = sentence.fed or 0, 0
        return Turn(sentence.generation, self.draws, self.manner.sampling, fed)

    def answer(self, id: int) -> None:
        """What the model was asked for."""
        assert self.sentence is not None
        self.sentence.generation.answer(id)
        self.settle()

    def part(self) -> Part | None:
        """What to render now; its sentence has a rendering."""
        sentence = self.sentence
        if sentence is None or sentence.due is None:
            return None
        assert sentence.rendering is not None
        return Part(sentence.rendering, sentence.due, sentence.ids)

    def nothing_rendered(self) -> Rendered:
        """The result of a step that made no sound."""
        return Rendered(np.zeros(0, np.float32), (), segment_done=self.rests)

    def rendered(self, samples: Samples) -> Rendered:
        """The result of a step that made the samples of the chunk that was due."""
        sentence = self.sentence
        assert sentence is not None
        starts_at = self._samples - sentence.samples
        chunk = sentence.take(len(samples))
        words = tuple(self._words(sentence, starts_at))
        first, stop = (
            max(0, place - sentence.tail) + self._speech_ids for place in (chunk.start, chunk.stop)
        )
        if chunk.final:
            self._speech_ids = stop
            samples = np.concatenate([samples, np.zeros(round(sentence.pause_s * SAMPLE_RATE), np.float32)])
        self._samples += len(samples)
        self.settle()
        return Rendered(
            samples,
            words,
            self.rests,
            speech_ids=(first, stop),
            mel_frames=(FRAMES_PER_ID * first, FRAMES_PER_ID * stop),
            text=sentence.text,
        )

    def _look(self) -> None:
        if self.sentence is not None:
            self.sentence.look()
            if self.sentence.done:
                self.sentence = None

    def _feed(self, piece: _Piece) -> bool:
        """Give the sentence a piece; False where it has to be spoken out first."""
        if self.sentence is None:
            if not piece.text_ids:
                return True
            self.sentence = Sentence(self._making, self.manner)
        elif self.sentence.ended:
            return False
        elif self.sentence.text_ids + len(piece.text_ids) > self._making.most_text_ids:
            self.sentence.end(0.0)
            return False
        self.sentence.feed(piece)
        return True

    def _cut(self, segment: Segment, before: Words, pause_s: float) -> Iterator[_Piece]:
        """A segment as pieces that fit into a sentence each; before: the word that it goes on from."""
        whole = join((*before, *segment.words))[len(join(before)) :]
        text_ids = tuple(self._making.encode(whole))
        half = len(segment.words) // 2
        if len(text_ids) <= self._making.most_text_ids:
            yield _Piece(text_ids, segment, pause_s)
        elif half:
            first, second = segment.words[:half], segment.words[half:]
            middle = second[0].start
            yield from self._cut(replace(segment, words=first, stop=middle, ending=Ending.CUT), before, 0.0)
            yield from self._cut(replace(segment, words=second, start=middle), first[-1:], pause_s)
        else:
            yield from self._shred(text_ids, segment, pause_s)

    def _shred(self, text_ids: tuple[int, ...], segment: Segment, pause_s: float) -> Iterator[_Piece]:
        """A word without end, in as many pieces as it takes."""
        most = self._making.most_text_ids
        *parts, last = (text_ids[place : place + most] for place in range(0, len(text_ids), most))
        for part in parts:
            yield _Piece(part, replace(segment, words=(), ending=Ending.CUT), 0.0)
        yield _Piece(last, segment, pause_s)

    def _words(self, sentence: Sentence, starts_at: int) -> Iterator[Word]:
        """Words that begin in what the sentence has given out now; starts_at: its first sample."""
        speed = self.manner.speed
        until = sentence.samples * speed / SAMPLES_PER_ID
        total = sentence.spoken_ids if sentence.generation.finished else None
        for timed in sentence.clock.told(sentence.spoken_ids if sentence.done else until, total):
            begin_s, end_s = (
                starts_at / SAMPLE_RATE + place / (IDS_PER_S * speed) for place in (timed.begin, timed.end)
            )
            yield Word("", begin_s, end_s, timed.word.start, timed.word.stop)


def _generation(making: Making, manner: Manner) -> tuple[Generation, SilentFilter | None]:
    if manner.source_ids is not None:
        return Heard(making.ids, manner.source_ids), None
    return making.start(manner.prompt), making.new_filter and making.new_filter()
