"""The recipe of the decoder for telephones on a few texts: lessons, student, losses, and written weights."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small_voice.optimise import Schedule, optimise  # noqa: E402
from telephone_decoder import export  # noqa: E402
from telephone_decoder.losses import Windows, log_spectral_distance_db  # noqa: E402
from telephone_decoder.quantise import _rounded  # noqa: E402
from telephone_decoder.student import PAIR, Student, StudentSize  # noqa: E402
from telephone_decoder.teacher import Lessons, Teacher, _write  # noqa: E402
from telephone_decoder.texts import texts  # noqa: E402
from telephone_decoder.train import FRAMES, StudentTask, new_student  # noqa: E402
from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS  # noqa: E402
from vivavoce.models.hibari.decoder import TelephoneDecoder, TelephoneLayout  # noqa: E402
from vivavoce.models.hibari.telephone_graph import make_telephone_decoder, read_weights  # noqa: E402


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Lessons:
    folder = tmp_path_factory.mktemp("lessons")
    _write(folder / "00", Teacher().lessons(3), 3_000)
    return Lessons.read(folder)


def test_texts_repeat_with_their_seed() -> None:
    assert list(islice(texts(3), 50)) == list(islice(texts(3), 50)) != list(islice(texts(4), 50))


def test_lessons_have_the_frames_that_are_rendered(lessons: Lessons) -> None:
    starts, lengths, firsts, stops = lessons.lines.T
    assert (starts[1:] == np.cumsum(lengths)[:-1]).all() and starts[-1] + lengths[-1] == len(lessons.f0)
    assert ((firsts >= 0) & (firsts < stops) & (stops <= lengths)).all()
    assert len(lessons.hidden) == len(lessons.parts) == len(lessons.f0)


def test_a_student_has_the_sizes_of_the_product() -> None:
    size, layout = StudentSize(), TelephoneLayout
    assert size.reach == (layout.ROWS_BEFORE, layout.ROWS_AFTER)
    assert (size.channels, size.blocks, size.bins) == (layout.CHANNELS, layout.BLOCKS, layout.BINS)


def test_written_weights_give_the_spectra_of_the_student(lessons: Lessons, tmp_path: Path) -> None:
    student = new_student(StudentSize(), lessons, 1).eval()
    path = tmp_path / "weights.npz"
    hidden = lessons.hidden.astype(np.float32)
    digest = export.write(student, hidden, path)
    assert export.write(student, hidden, path) == digest
    session = CPU_SESSIONS.open(make_telephone_decoder(read_weights(path.read_bytes())))
    decoder = TelephoneDecoder(session)
    before, after = (PAIR * rows for rows in student.size.reach)
    with torch.no_grad():
        padded = np.pad(hidden[:200], ((before, after), (0, 0)))
        expected = student(torch.from_numpy(padded)[None])[0].numpy()
    spectrum, _ = decoder.decode(hidden[:200].T[None], decoder.start(0).contexts, at_edge=True)
    assert spectrum.shape == expected.shape
    error = np.sqrt(np.mean((spectrum - expected) ** 2))
    assert error < 0.03 * expected.std()  # of 8 bits


def test_rounding_row_by_row_is_nearer_than_rounding_each_weight() -> None:
    draw = np.random.default_rng(2)
    inputs = draw.standard_normal((400, 8)).astype(np.float32) @ draw.standard_normal((8, 64), np.float32)
    weight = draw.standard_normal((64, 5)).astype(np.float32)
    rounded, scale = _rounded(weight, inputs)
    plain = np.rint(weight / scale) * scale
    errors = [np.linalg.norm(inputs @ (each - weight)) for each in (rounded * scale, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_a_student_learns_and_goes_on_where_it_was_ended(lessons: Lessons, tmp_path: Path) -> None:
    size = StudentSize(32, 2)
    windows = Windows(lessons, FRAMES, size.reach)
    batch = windows.draw(np.random.default_rng(9), 2)
    distances = []
    for steps in (1, 25):
        student = new_student(size, lessons, 1)
        schedule = Schedule(steps, 5e-3, warm_up=2)
        optimise(StudentTask(student, windows), schedule, tmp_path / "student.pt", 1)
        distances.append(log_spectral_distance_db(student, [batch]))
    assert distances[1] < 0.8 * distances[0]
    assert isinstance(student, Student)
