"""Size against quality: students of several sizes after the same number of steps, judged as one.

Students run in torch, a line in one step; only the one that the product has can be exported.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from telephone_decoder.listen import Judgement, Judges, Speakers, judged_texts, paired
from telephone_decoder.losses import log_spectral_distance_db
from telephone_decoder.student import PAIR, Student, StudentSize
from telephone_decoder.train import held_out_batches, with_weights
from vivavoce.models.hibari.decoder import Contexts, DecoderStart, TelephoneDecoder

Float = NDArray[np.float32]
_WHOLE = (100_000,)  # frames of a step
_PICTURE_INCHES = (7.0, 3.2)


class StudentDecoder:
    """A student as a decoder of whole lines."""

    row_frames = PAIR
    reader = TelephoneDecoder.reader

    def __init__(self, student: Student) -> None:
        self._student = student
        self._before, after = (PAIR * reach for reach in student.size.reach)
        self.lookahead_frames = after

    def start(self, onset: int) -> DecoderStart:
        """Begin with the line, whatever is before the onset."""
        return DecoderStart(0, 0, ())

    def decode(self, hidden: Float, contexts: Contexts, *, at_edge: bool) -> tuple[Float, Contexts]:
        """The spectra of a line; raises ValueError for a second step."""
        if contexts:
            raise ValueError("got a second step of a line")
        after = self.lookahead_frames + hidden.shape[2] % PAIR if at_edge else 0
        frames = np.pad(hidden[0].T, ((self._before, after), (0, 0)))
        with torch.no_grad():
            return self._student(torch.from_numpy(frames)[None])[0].numpy(), (hidden[:, :, :0],)


def load_student(checkpoint: Path, size: StudentSize) -> Student:
    """The student of a checkpoint, with its averaged weights."""
    saved = torch.load(checkpoint, weights_only=True)
    student = Student(size)
    student.load_state_dict(saved["network"])
    return with_weights(student, saved["average"])


def compare_sizes(out: Path, sizes: Mapping[str, StudentSize], steps: int, count: int) -> None:
    """Judge ``count`` sentences of each size that was trained for ``steps``; print a table and draw it."""
    checkpoints = {name: out / f"{name}-{steps}.pt" for name in sizes}
    students = {name: load_student(path, sizes[name]) for name, path in checkpoints.items() if path.exists()}
    speakers = Speakers({name: StudentDecoder(student) for name, student in students.items()})
    judges = Judges(out / "judged.json")
    found: dict[str, list[Judgement]] = {name: [] for name in speakers.decoders}
    for text in judged_texts()[:count]:
        lines = speakers.lines(text.text)
        for name, judgements in found.items():
            judgements.append(judges.judge(text, speakers.speak(name, lines, _WHOLE)))
    print(f"{steps} steps, {count} sentences; scores less the teacher's")
    rows = []
    for name, student in students.items():
        distance = log_spectral_distance_db(student, held_out_batches(out, student.size))
        products = student.size.products_per_frame / 1e6
        differences = [paired(found[name], found["teacher"], key) for key in ("wrong", "dnsmos", "plcmos")]
        print(f"{name}: {products:.2f} million products, {distance:.2f} dB, {', '.join(differences)}")
        scores = [np.mean([getattr(one, key) for one in found[name]]) for key in ("dnsmos", "plcmos")]
        rows.append((name, products, distance, *scores))
    _draw(out / "curve.png", rows)


def _draw(path: Path, rows: list[tuple[str, float, float, float, float]]) -> None:
    figure = Figure(figsize=_PICTURE_INCHES, layout="constrained")
    distances, scores = figure.subplots(1, 2)
    rows = sorted(rows, key=lambda row: row[1])
    products = [row[1] for row in rows]
    distances.plot(products, [row[2] for row in rows], "o-")
    distances.set_ylabel("distance from the teacher, dB")
    for column, name in ((3, "DNSMOS"), (4, "PLCMOS")):
        scores.plot(products, [row[column] for row in rows], "o-", label=name)
    scores.legend()
    for axes in (distances, scores):
        axes.set_xlabel("million products a frame")
        axes.set_xlim(0, 1.1 * max(products))
    for name, size, distance, *_ in rows:
        distances.annotate(name, (size, distance), xytext=(4, 4), textcoords="offset points")
    figure.savefig(path, dpi=110)
