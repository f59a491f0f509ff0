"""Case f_ras: 240 draws of upstream's repetition-aware rule, with its uniform numbers replayed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from golden.reference.comparison import Comparison, compare_rows, read_arrays
from golden.reference.golden_config import read_config
from vivavoce.models.cosyvoice.lm.sampling import SamplingContext, sample_ids

_MIN_SOUNDS = 60  # draws in which the end of speech is forbidden


def check_sampling(folder: Path) -> Iterator[Comparison]:
    """Compare ids, second draws, nucleus sizes and the number of uniform numbers used."""
    arrays = read_arrays(folder, "f_ras")
    end = int(read_config(folder)["config"]["speech_token_size"])
    source = _ReplayedUniforms(arrays["uniforms"].tolist())
    decoded: list[int] = []
    draws = []
    for index, logits in enumerate(arrays["logits"].numpy()):
        forbidden = (end,) if index < _MIN_SOUNDS else ()
        draws += sample_ids(logits[None], [SamplingContext(decoded, source, forbidden)])
        decoded.append(draws[-1].id)
    ours: dict[str, Sequence[object]] = {
        "ids": decoded,
        "fallback": [draw.redrawn for draw in draws],
        "n_candidates": [draw.candidates for draw in draws],
    }
    for name, rows in ours.items():
        yield compare_rows("f_ras", name, rows, arrays[name].tolist())
    yield compare_rows("f_ras", "n_uniforms_used", [source.used], [int(arrays["n_uniforms_used"])])


class _ReplayedUniforms:
    """Uniform numbers from a list."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = numbers
        self.used = 0

    def random(self) -> float:
        self.used += 1
        return self._numbers[self.used - 1]
