"""The packaged voice as a backend: one slot in each step, one inference session for each worker.

A segment is rendered line by line, a line being what the phonemizer reads as one utterance. A line in the
middle of a sentence is encoded with the line before it and with words that could follow: its melody then goes
on. So is a question that yes or no would answer: its melody then rises, and ``melody.shape`` lifts its end as
far as it lacks. Pauses have the room tone of the voice, whose own pauses inside a line are not silent.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ...models.devices.onnx_providers import CPU, OnnxDevice
from ...models.hibari import voice as hibari_voice
from ...models.hibari.harmonic_vocoder import FRAME_S, NOISE_ROWS, SAMPLE_RATES, Band
from ...models.hibari.phonemizer import PhonemeLine, Phonemizer
from ...models.phonemes.english_ipa import SpelledWord
from ...models.signal.room_tone import RoomTone
from ..backends.base import ALL_STAGES, SlotRequest, SlotTurn, Stage, StepResult
from ..backends.voice_kind import NOTHING_KEPT, KeptSpeechConfig
from ..chunk import SAMPLE_RATE, Phoneme, Word
from ..process_limits import available_cores
from ..reading.clause_boundaries import BoundaryKind
from ..reading.normalizer import SpokenWord
from ..reading.prosody import NEUTRAL_PROSODY, Prosody
from ..segmenter import Segment, Segmenter
from ..stream_request import LIVELINESS
from ..voice_kit.kept_speech import KeptLine, KeptSpeech, keep_speech
from ..voice_kit.spoken_words import WrittenWord, group_written_words
from ..voices.voices import Voice, Voices
from . import intonation
from .line_files import line_format
from .lines import LinePiece, LineRequest, render_line

logger = logging.getLogger(__name__)

VOICE = Voice("heart", "en-US", "American English, female, 24 kHz")
_MAX_SENTENCE_WORDS = 60  # that are kept to tell what a question asks
_MAX_WORKERS = 2  # a step is 2-6 ms; more threads than this only contend for the interpreter
# Said after the words that follow a cut between phrases: of ten, those that change the pitch before it least
_AFTER_PHRASE = ("other", "one", "too")
# The end of a line's last word that is too quiet to be rendered, by its last sound or two
_TAIL_S = 0.055
_TAILS_S = {"fθ": 0.14, "sθ": 0.14, "θ": 0.07, "z": 0.03, "s": 0.03, "dʒ": 0.025}
_SLOTS = 1024  # a slot holds under 100 kB between steps


@dataclass(slots=True)
class _LineRendering:
    """The line being rendered. unreported_words: not given out yet. starts_at_s: in the stream."""

    line: KeptLine[LinePiece]
    unreported_words: list[WrittenWord]
    starts_at_s: float
    pieces: int = 0  # given out so far
    utterance: hibari_voice.EncodedLine | None = None  # without its hidden frames


@dataclass(slots=True)
class _HibariSlot:
    request: SlotRequest
    noise: np.random.Generator
    band: Band
    samples: int = 0  # rendered so far, at the band's rate
    lines: list[tuple[PhonemeLine, list[SpokenWord]]] = field(default_factory=list)
    before: PhonemeLine | None = None  # of the same sentence, the line before ``lines``
    after: PhonemeLine | None = None  # encoded after ``lines``, and not rendered
    goes_on: bool = False  # whether the sentence does after ``lines``
    sentence: list[SpokenWord] = field(default_factory=list)  # its words up to the end of ``lines``
    rises: bool = False  # whether ``lines`` end a question with rising pitch
    rendering: _LineRendering | None = None
    pause_s: float = 0.0
    speed: float = 1.0  # of the segment
    prosody: Prosody = NEUTRAL_PROSODY  # of the segment, besides the stream's
    steps: int = 0  # rendered so far


@dataclass(frozen=True, slots=True)
class _Continuations:
    """Words that are encoded after a line and not rendered, for its melody."""

    clause: PhonemeLine  # of ten, the one that changes the pitch before it least
    question: PhonemeLine  # of ten, the one before which questions rise most

    @classmethod
    def make(cls, phonemizer: Phonemizer) -> "_Continuations":
        return cls(
            clause=_phonemized(phonemizer, "which is what we want".split(), "."),
            question=_phonemized(phonemizer, ("and", "then"), "?"),
        )


def _phonemized(phonemizer: Phonemizer, words: Sequence[str], mark: str) -> PhonemeLine:
    """A short line of words, with a mark at its end."""
    *others, last = map(SpelledWord, words)
    line, *_ = phonemizer.phonemize([*others, SpelledWord(last.text, mark)])
    return line


class HibariBackend:
    """hibari's voice "heart", with one worker for each core, at most two."""

    voices = Voices((VOICE,))
    warm_up_text = "Thank you for calling, how can I help you today?"
    slots = memory_slots = _SLOTS
    varies_pauses = True

    def __init__(
        self,
        voices: Sequence[hibari_voice.HibariVoice],
        kept_speech: KeptSpeechConfig = NOTHING_KEPT,
    ) -> None:
        self._voices = voices
        self._continuations = _Continuations.make(voices[0].phonemizer)
        room_tone = voices[0].room_tone()
        self._kept = keep_speech(kept_speech, lambda: line_format(room_tone))
        self._room_tones = {rate: room_tone.at_rate(rate) for rate in SAMPLE_RATES}
        self._slots: dict[int, _HibariSlot] = {}
        self._next_slot = 0
        self._reported: set[str] = set()
        self.workers = (ALL_STAGES,) * len(voices)

    @classmethod
    def load(cls, device: OnnxDevice = CPU, kept_speech: KeptSpeechConfig = NOTHING_KEPT) -> "HibariBackend":
        """Load the voice from the installed package."""
        return cls(hibari_voice.HibariVoice.load(min(_MAX_WORKERS, available_cores()), device), kept_speech)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        return Segmenter(style=request.reading, pause_seed=request.seed)

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot."""
        self._next_slot += 1
        band = Band.heard_at(request.delivery.listener_rate or SAMPLE_RATE)
        self._slots[self._next_slot] = _HibariSlot(request, np.random.default_rng(request.seed), band)
        return self._next_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot."""
        del self._slots[slot]

    def close(self) -> None:
        """Close every slot."""
        self._slots.clear()
        self._kept.close()

    def max_batch_size(self, stage: Stage) -> int:
        """One slot in each step."""
        return 1

    def stage(self, slot: int) -> Stage:
        """RENDER, the only stage."""
        return Stage.RENDER

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one step of one slot."""
        (turn,) = turns
        voice, slot = self._voices[worker], self._slots[turn.slot]
        if turn.segment is not None:
            _begin_segment(voice, slot, turn.segment, turn.pause_s)
            slot.after = self._continuation(voice, slot, turn.segment.following)
        if not slot.lines:
            return [StepResult(np.zeros(0, np.float32), (), segment_done=True)]
        if slot.rendering is None:
            slot.rendering = _start_line(voice, slot, self._kept)
        result = _render(slot, slot.rendering, self._room_tones[slot.band.sample_rate])
        self._report_missing(voice.phonemizer.missing)
        return [result]

    def _continuation(
        self, voice: hibari_voice.HibariVoice, slot: _HibariSlot, following: Sequence[str]
    ) -> PhonemeLine | None:
        if slot.goes_on:
            if following:
                return _phonemized(voice.phonemizer, (*following, *_AFTER_PHRASE), ".")
            return self._continuations.clause
        return self._continuations.question if slot.rises else None

    def _report_missing(self, missing: set[str]) -> None:
        if new := missing - self._reported:
            self._reported |= new
            logger.warning("the voice has no sound for %s, which is left out", ", ".join(sorted(new)))


def _render(slot: _HibariSlot, rendering: _LineRendering, room_tone: RoomTone) -> StepResult:
    piece, repeated = rendering.line.piece(rendering.pieces)
    assert piece is not None  # the last one says so
    rendering.pieces += 1
    rendering.utterance = piece.line
    slot.steps += 1
    samples, words = piece.samples, _words_begun(rendering, piece)
    done = piece.last and _end_line(slot)
    if done:
        pause = room_tone.pause(slot.samples + len(samples), round(slot.pause_s * room_tone.sample_rate))
        samples = np.concatenate([samples, pause])
    slot.samples += len(samples)
    return StepResult(
        samples,
        words,
        done,
        mel_frames=piece.mel_frames,
        sample_rate=slot.band.sample_rate,
        repeated=repeated,
        from_file=repeated and rendering.line.is_from_file,
    )


def _begin_segment(
    voice: hibari_voice.HibariVoice, slot: _HibariSlot, segment: Segment, pause_s: float
) -> None:
    words = [SpelledWord(word.text, word.punctuation, word.phonemes) for word in segment.words]
    rest = list(segment.words)
    slot.lines = []
    for line in voice.phonemizer.phonemize(words):
        spoken, rest = rest[: len(line.words)], rest[len(line.words) :]
        if line.has_phonemes:
            slot.lines.append((line, spoken))
    slot.pause_s = pause_s
    slot.speed, slot.prosody = segment.speed_in(slot.request.speed), segment.prosody
    slot.goes_on = _goes_on(segment, pause_s)
    slot.sentence = [*slot.sentence, *segment.words][-_MAX_SENTENCE_WORDS:]
    slot.rises = not slot.goes_on and intonation.rises(slot.sentence)


def _goes_on(segment: Segment, pause_s: float) -> bool:
    """Whether the sentence goes on after a segment; the last segment of a stream has no pause."""
    if segment.ending in (BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS):
        return pause_s > 0 and bool(segment.words and segment.words[-1].punctuation)
    return segment.ending is BoundaryKind.FORCED


def _start_line(
    voice: hibari_voice.HibariVoice, slot: _HibariSlot, kept: KeptSpeech[LinePiece]
) -> _LineRendering:
    line, spoken = slot.lines[0]
    is_end = slot.rises and len(slot.lines) == 1
    request = LineRequest(
        line,
        slot.before,
        slot.lines[1][0] if len(slot.lines) > 1 else slot.after,
        slot.speed,
        intonation.melody_of(
            spoken, slot.request.delivery.liveliness or LIVELINESS, slot.prosody, rises=is_end
        ),
        int(slot.noise.integers(NOISE_ROWS)),
        slot.band,
        slot.steps,
    )
    key = request.key if slot.request.keeps_speech else None
    rendered = kept.line(key, partial(render_line, voice, request))
    return _LineRendering(rendered, group_written_words(spoken), slot.samples / slot.band.sample_rate)


def _end_line(slot: _HibariSlot) -> bool:
    """Drop the line just rendered; whether it was the segment's last."""
    slot.before, _ = slot.lines.pop(0)
    slot.rendering = None
    if not slot.lines and not slot.goes_on:
        slot.before = None
        slot.sentence = []
    return not slot.lines


def _words_begun(rendering: _LineRendering, piece: LinePiece) -> tuple[Word, ...]:
    """Words of the line that begin in the samples rendered so far and are not reported yet."""
    times, audible_s, begun = piece.word_times, _audible_s(piece), []
    while rendering.unreported_words and (
        piece.last or times[rendering.unreported_words[0].spoken_range[0]][0] < piece.rendered_s
    ):
        word = rendering.unreported_words.pop(0)
        start_s = rendering.starts_at_s + times[word.spoken_range[0]][0]
        stop_s = max(start_s, rendering.starts_at_s + min(times[word.spoken_range[-1]][1], audible_s))
        phonemes = _phonemes(piece, word.spoken_range, rendering.starts_at_s, audible_s)
        begun.append(Word("", start_s, stop_s, word.start, word.stop, phonemes))
    return tuple(begun)


def _phonemes(
    piece: LinePiece, spoken: Iterable[int], line_starts_at_s: float, audible_s: float
) -> tuple[Phoneme, ...]:
    """The sounds of some words of a line."""

    def heard_at(frame: int) -> float:
        return line_starts_at_s + min(max(0.0, frame * FRAME_S - piece.lead_s), audible_s)

    return tuple(
        Phoneme(ipa, heard_at(first), heard_at(stop))
        for index in spoken
        for ipa, first, stop in piece.line.phonemes[index]
    )


def _audible_s(piece: LinePiece) -> float:
    """Seconds from the line's first sample to its last audible one, estimated until that is rendered."""
    if piece.last:
        return piece.rendered_s
    sounds = next((word for word in reversed(piece.line.phonemes) if word), ())
    endings = ("".join(ipa for ipa, *_ in sounds[-count:]) for count in (2, 1))
    tail_s = next((_TAILS_S[ending] for ending in endings if ending in _TAILS_S), _TAIL_S)
    return piece.word_times[-1][1] - tail_s
