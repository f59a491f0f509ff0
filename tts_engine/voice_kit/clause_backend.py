"""A backend for voices that render one clause at a time, piece by piece, each clause on its own.

A ``ClauseVoice`` gives a generator for a segment. The slot keeps it between steps, and a step takes its next
piece. The pieces' word times count from the segment's start; here they become times in the stream.
"""

import logging
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...models.phonemes.timed_sounds import TimedSounds
from ...models.rendering_identity import rendering_identity
from ...models.signal.room_tone import RoomTone
from ...models.signal.speaker_sound import SpeakerSound
from ..backends.base import ALL_STAGES, SlotRequest, SlotTurn, Stage, StepResult
from ..backends.voice_kind import NOTHING_KEPT, KeptSpeechConfig
from ..chunk import SAMPLE_RATE, Phoneme, Word
from ..process_limits import available_cores
from ..segmenter import Segment, Segmenter, SpokenWord
from ..voices.voices import Voices
from . import espeak
from .kept_speech import KeptLine, keep_speech
from .speech_files import Arrays, LineFormat
from .spoken_words import estimate_seconds, group_written_words

logger = logging.getLogger(__name__)

_MAX_WORKERS = 2
_MAX_RTF = 0.8  # computing time for 1 s of speech, beyond which pauses are heard
_SLOTS = 1024  # a slot holds some 500 kB between steps


@dataclass(frozen=True, slots=True)
class RenderedPiece:
    """Part of a segment. samples: (N,) float32 at 24 kHz. words: those that begin in it."""

    samples: NDArray[np.float32]
    words: tuple[Word, ...]  # in seconds from the segment's first sample
    last: bool


def clause_identity(sound: SpeakerSound, files: Iterable[Path]) -> str:
    """The ``rendering_identity`` of voices. sound: of one of them. files: their weights and their code."""
    measured = np.array([sound.gain], np.float32) if sound.room_tone is None else sound.room_tone.period
    code = (Path(__file__), Path(espeak.__file__))
    return rendering_identity(measured, [*code, *files], espeak.espeak_version())


class WordTimes:
    """The words of a segment that are not given out yet, with their times.

    Args:
        words: of the segment.
        times: (start, stop) of each spoken word, in seconds from the segment's first sample.
        sounds: of each spoken word, likewise; (): not known.
    """

    def __init__(
        self,
        words: Sequence[SpokenWord],
        times: Sequence[tuple[float, float]],
        sounds: Sequence[TimedSounds[float]] = (),
    ) -> None:
        self._waiting = deque(
            Word(
                "",
                max(0.0, times[written.spoken_range[0]][0]),
                max(0.0, times[written.spoken_range[-1]][1]),
                written.start,
                written.stop,
                tuple(
                    Phoneme(ipa, max(0.0, start_s), max(0.0, stop_s))
                    for spoken in (written.spoken_range if sounds else ())
                    for ipa, start_s, stop_s in sounds[spoken]
                ),
            )
            for written in group_written_words(words)
        )

    def take_until(self, end_s: float) -> tuple[Word, ...]:
        """The words that begin before ``end_s``, each once."""
        begun = []
        while self._waiting and self._waiting[0].start_s < end_s:
            begun.append(self._waiting.popleft())
        return tuple(begun)


def estimate_times(words: Sequence[SpokenWord], total_s: float) -> list[tuple[float, float]]:
    """(start, stop) of each word of a segment, from their usual lengths."""
    lengths = [estimate_seconds((word,)) for word in words]
    scale, at, times = total_s / max(sum(lengths), 1e-9), 0.0, []
    for length in lengths:
        times.append((at, at + scale * length))
        at += scale * length
    return times


def warn_if_slow(name: str, rtf: float) -> None:
    """Warn of a voice that renders speech slower than it is heard, with some reserve.

    rtf: seconds of computing for 1 s of speech.
    """
    if rtf > _MAX_RTF:
        logger.warning(
            "the voice %s cannot keep up with one call on this machine: it computes %.2f s for 1 s of "
            "speech; use it for recorded prompts, or on a faster machine",
            name,
            rtf,
        )


class ClauseVoice(Protocol):
    """A voice engine behind ``ClauseBackend``. Methods but ``close`` may be called from several threads."""

    @property
    def voices(self) -> Voices:
        """The loaded voices."""

    @property
    def warm_up_text(self) -> str:
        """As ``Backend.warm_up_text``."""

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """As ``Backend.segmenter``."""

    def render(
        self, segment: Segment, request: SlotRequest, noise: np.random.Generator
    ) -> Iterator[RenderedPiece]:
        """Render a segment; the last piece says so. No piece: the segment has nothing that can be spoken."""

    def room_tone(self, voice: str) -> RoomTone | None:
        """The tone of a voice's pauses, after its gain; None: they are digital silence."""

    def identity(self) -> str:
        """The ``rendering_identity`` of all voices."""

    def close(self) -> None:
        """Free everything, processes too."""


@dataclass(frozen=True, slots=True)
class _KeptPiece:
    """A piece of a segment whose text begins at character 0. noise_state: of the generator after it."""

    rendered: RenderedPiece
    noise_state: Mapping[str, Any]

    @property
    def last(self) -> bool:
        return self.rendered.last

    @property
    def nbytes(self) -> int:
        return self.rendered.samples.nbytes + 512


@dataclass(slots=True)
class _ClauseSlot:
    request: SlotRequest
    noise: np.random.Generator
    segment: KeptLine[_KeptPiece] | None = None
    pieces: int = 0  # of the segment, given out so far
    pause_s: float = 0.0
    samples: int = 0  # rendered so far
    segment_start_s: float = 0.0
    text_start: int = 0  # of the segment


class ClauseBackend:
    """``Backend`` over a ``ClauseVoice``.

    workers: None for one on each core, at most two.
    """

    slots = memory_slots = _SLOTS

    def __init__(
        self,
        voice: ClauseVoice,
        workers: int | None = None,
        kept_speech: KeptSpeechConfig = NOTHING_KEPT,
    ) -> None:
        self._voice = voice
        self._kept = keep_speech(kept_speech, lambda: LineFormat(voice.identity(), _encode, _decode))
        self._slots: dict[int, _ClauseSlot] = {}
        self._next_slot = 0
        self.voices, self.warm_up_text = voice.voices, voice.warm_up_text
        self.workers = (ALL_STAGES,) * (workers or min(_MAX_WORKERS, available_cores()))

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """The voice's segmenter."""
        return self._voice.segmenter(request)

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot."""
        self._next_slot += 1
        self._slots[self._next_slot] = _ClauseSlot(request, np.random.default_rng(request.seed))
        return self._next_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot."""
        del self._slots[slot]

    def close(self) -> None:
        """Close every slot and the voice."""
        self._slots.clear()
        self._kept.close()
        self._voice.close()

    def max_batch_size(self, stage: Stage) -> int:
        """One slot in each step."""
        return 1

    def stage(self, slot: int) -> Stage:
        """RENDER, the only stage."""
        return Stage.RENDER

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one piece of one slot."""
        (turn,) = turns
        slot = self._slots[turn.slot]
        if turn.segment is not None:
            slot.segment, slot.pieces = self._begin(slot, turn.segment), 0
            slot.pause_s, slot.segment_start_s = turn.pause_s, slot.samples / SAMPLE_RATE
            slot.text_start = turn.segment.start
        piece, repeated = slot.segment.piece(slot.pieces) if slot.segment is not None else (None, False)
        if piece is None:
            return [StepResult(np.zeros(0, np.float32), (), segment_done=True)]
        slot.pieces += 1
        slot.noise.bit_generator.state = piece.noise_state
        samples = piece.rendered.samples
        if piece.last:
            samples = np.concatenate([samples, self._pause(slot, slot.samples + len(samples))])
        slot.samples += len(samples)
        words = tuple(_moved(word, slot.segment_start_s, slot.text_start) for word in piece.rendered.words)
        is_from_file = repeated and slot.segment is not None and slot.segment.is_from_file
        return [StepResult(samples, words, piece.last, repeated=repeated, from_file=is_from_file)]

    def _begin(self, slot: _ClauseSlot, segment: Segment) -> KeptLine[_KeptPiece]:
        moved = tuple(
            replace(word, start=word.start - segment.start, stop=word.stop - segment.start)
            for word in segment.words
        )
        moved_segment = replace(segment, words=moved, start=0, stop=segment.stop - segment.start)
        request, noise = slot.request, slot.noise.bit_generator.state
        key: Hashable = None
        if request.keeps_speech:
            how = (request.voice, request.speed, request.delivery.language)
            key = (moved, segment.prosody.speed, segment.language, *how, repr(noise))
        return self._kept.line(key, partial(self._render, moved_segment, request, noise))

    def _render(
        self, segment: Segment, request: SlotRequest, noise_state: Mapping[str, Any]
    ) -> Iterator[_KeptPiece]:
        noise = np.random.default_rng()
        noise.bit_generator.state = noise_state
        for piece in self._voice.render(segment, request, noise):
            yield _KeptPiece(piece, noise.bit_generator.state)

    def _pause(self, slot: _ClauseSlot, start: int) -> NDArray[np.float32]:
        """The pause after a segment, at the sample ``start`` of the stream."""
        samples = round(slot.pause_s * SAMPLE_RATE)
        room_tone = self._voice.room_tone(slot.request.voice) if samples else None
        return np.zeros(samples, np.float32) if room_tone is None else room_tone.pause(start, samples)


def _encode(pieces: Sequence[_KeptPiece]) -> tuple[object, Arrays]:
    about = [(list(map(astuple, piece.rendered.words)), piece.last, piece.noise_state) for piece in pieces]
    return about, [piece.rendered.samples for piece in pieces]


def _decode(about: Any, arrays: Arrays) -> list[_KeptPiece]:
    return [
        _KeptPiece(RenderedPiece(samples, tuple(_word(*word) for word in words), last), noise_state)
        for samples, (words, last, noise_state) in zip(arrays, about, strict=True)
    ]


def _word(text: str, start_s: float, stop_s: float, start: int, stop: int, phonemes: Iterable[Any]) -> Word:
    return Word(text, start_s, stop_s, start, stop, tuple(Phoneme(*phoneme) for phoneme in phonemes))


def _moved(word: Word, by_s: float, by_characters: int) -> Word:
    start, stop = word.text_start + by_characters, word.text_stop + by_characters
    return replace(word.timed(lambda at_s: at_s + by_s), text_start=start, text_stop=stop)
