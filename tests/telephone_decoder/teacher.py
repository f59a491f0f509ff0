"""The teacher: what the packaged voice's decoder makes of the lines that the product would render.

Texts go through the product's own backend, which cuts them, encodes each line between its neighbours and
shapes its melody. A voice that renders nothing notes each line; the decoder then runs on it at once. Kept are

    hidden.npy   (N, 130) float16   what a decoder is given
    parts.npy    (N, 4, 200) float16   of a telephone's bins: log magnitude and angle of the harmonic part,
                                    and of the part of free phase
    f0.npy       (N,) float32       Hz
    lines.npy    (L, 4) int64       of each line: its first frame of N, its frames, and the first and the stop
                                    of those that are rendered

The noise part is left out: below 4 kHz it has less than 0.01 % of the power.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telephone_decoder.texts import texts
from vivavoce.models.hibari import voice as hibari
from vivavoce.models.hibari.harmonic_vocoder import BINS, FRAME_S, PARTS, TELEPHONE_BAND
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn
from vivavoce.tts_engine.hibari.backend import VOICE, HibariBackend
from vivavoce.tts_engine.reading.pauses import usual_pause_s
from vivavoce.tts_engine.reading.prosody import Prosody
from vivavoce.tts_engine.segmenter import Segmenter
from vivavoce.tts_engine.stream_request import Delivery

_SHARD_HOURS = 0.25
_NAMES = ("hidden", "parts", "f0", "lines")

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the teacher makes of one line of F frames, of which ``rendered`` (first, stop) are heard."""

    hidden: Float  # (F, 130)
    parts: Float  # (F, 4, 200)
    f0: Float  # (F,) Hz
    rendered: tuple[int, int]


class LineRecorder(hibari.HibariVoice):
    """The packaged voice, which notes the lines that it is to render, and renders none.

    Attributes:
        lines: noted so far.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.lines: list[hibari.EncodedLine] = []

    def step(
        self, line: hibari.EncodedLine, state: hibari.HibariRenderState, frames: int
    ) -> tuple[Float, hibari.HibariRenderState]:
        """Note the line, and render it as nothing."""
        self.lines.append(line)
        end = hibari.decoded_frames(line, state.decoder)
        return np.zeros(0, np.float32), replace(state, decoded_frames=end, trimmed_lead_samples=0)


class Teacher:
    """The packaged voice on one thread."""

    def __init__(self) -> None:
        (voice,) = LineRecorder.load()
        assert isinstance(voice, LineRecorder)
        self.voice = voice
        self._backend = HibariBackend([self.voice])

    def lines(self, text: str, request: SlotRequest, prosody: Prosody) -> list[hibari.EncodedLine]:
        """The lines that the product renders of a text."""
        self.voice.lines.clear()
        segmenter = Segmenter(pause_seed=request.seed)
        slot = self._backend.open_slot(request)
        try:
            for segment in segmenter.push(text) + segmenter.flush():
                pause_s = usual_pause_s(segment.ending, request.speed)
                turn = SlotTurn(slot, replace(segment, prosody=prosody), pause_s)
                done = False
                while not done:
                    (result,) = self._backend.step(0, [turn])
                    if isinstance(result, Exception):
                        raise result
                    turn, done = SlotTurn(slot, None), result.segment_done
        finally:
            self._backend.close_slot(slot)
        return list(self.voice.lines)

    def lesson(self, line: hibari.EncodedLine) -> Lesson:
        """What the decoder makes of a line."""
        state = self.voice.init_state(replace(line, onset=0), 0)
        frames = hibari.decoded_frames(line, state.decoder)
        at_edge = frames == line.hidden.shape[2]
        spectrum, _ = state.decoder.decode(line.hidden[:, :, :frames], state.contexts, at_edge=at_edge)
        harmonic, theta, _, free, phi = spectrum.reshape(-1, PARTS, BINS)[
            :, :, : TELEPHONE_BAND.bins
        ].transpose(1, 0, 2)
        parts = np.stack([harmonic, np.float32(np.pi) * np.tanh(theta), free, np.angle(np.exp(1j * phi))], 1)
        return Lesson(
            line.hidden[0, :, :frames].T,
            np.pad(parts, ((0, frames - len(parts)), (0, 0), (0, 0))),
            line.f0[:frames],
            (line.onset, min(line.frames, len(parts))),
        )

    def lessons(self, seed: int) -> Iterator[Lesson]:
        """Endless lessons: most at the usual speed and melody, some at others."""
        draw = random.Random(seed)
        for index, text in enumerate(texts(seed)):
            speed = 1.0 if draw.random() < 0.7 else draw.uniform(0.7, 1.5)
            liveliness = None if draw.random() < 0.7 else draw.uniform(0.8, 1.6)
            pitch = 1.0 if draw.random() < 0.85 else draw.uniform(0.75, 1.33)
            request = SlotRequest(
                VOICE.id, speed=speed, seed=seed + index, delivery=Delivery(liveliness=liveliness)
            )
            yield from map(self.lesson, self.lines(text, request, Prosody(pitch=pitch)))


def record(folder: Path, hours: float, seed: int) -> None:
    """Write the lessons of so many hours of speech, in shards; those that exist are kept."""
    teacher: Teacher | None = None
    for shard in range(round(hours / _SHARD_HOURS)):
        path = folder / f"{shard:02}"
        if path.exists():
            continue
        teacher = teacher or Teacher()
        _write(path, teacher.lessons(seed * 1_000 + shard), round(_SHARD_HOURS * 3600 / FRAME_S))
        print(f"recorded {path}", flush=True)


def _write(path: Path, lessons: Iterator[Lesson], frames: int) -> None:
    held: list[Lesson] = []
    rows: list[tuple[int, int, int, int]] = []
    total = 0
    while total < frames:
        lesson = next(lessons)
        rows.append((total, len(lesson.f0), *lesson.rendered))
        held.append(
            replace(lesson, hidden=lesson.hidden.astype(np.float16), parts=lesson.parts.astype(np.float16))
        )
        total += len(lesson.f0)
    partial = path.with_name(f"{path.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    np.save(partial / "hidden.npy", np.concatenate([lesson.hidden for lesson in held]))
    np.save(partial / "parts.npy", np.concatenate([lesson.parts for lesson in held]))
    np.save(partial / "f0.npy", np.concatenate([lesson.f0 for lesson in held]))
    np.save(partial / "lines.npy", np.array(rows))
    partial.rename(path)


@dataclass(frozen=True, slots=True)
class Lessons:
    """Lessons on file, in the layout of the module's docstring; ``lines`` count the frames of all shards."""

    hidden: NDArray[np.float16]
    parts: NDArray[np.float16]
    f0: Float
    lines: NDArray[np.int64]

    @classmethod
    def read(cls, folder: Path, shards: slice = slice(None)) -> "Lessons":
        """Read shards into memory: 0.5 GB an hour of speech."""
        paths = sorted(path for path in folder.iterdir() if path.suffix != ".partial")[shards]
        arrays = {name: [np.load(path / f"{name}.npy") for path in paths] for name in _NAMES}
        starts = np.cumsum([0, *(len(f0) for f0 in arrays["f0"])])
        for lines, start in zip(arrays["lines"], starts, strict=False):
            lines[:, 0] += start
        return cls(*(np.concatenate(arrays[name]) for name in _NAMES))
