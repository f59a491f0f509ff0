"""Golden case f: 240 draws of upstream's repetition-aware rule, with its uniform numbers replayed."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vivavoce.models.cosyvoice.lm.sampling import SamplingContext, sample_ids

GOLDEN = Path(__file__).parent / "data"
END = 120  # of the codec of 120 sounds
FEWEST = 60


class Replayed:
    """Uniform numbers from a list."""

    def __init__(self, numbers: NDArray[np.float64]) -> None:
        self.numbers = numbers
        self.used = 0

    def random(self) -> float:
        self.used += 1
        return float(self.numbers[self.used - 1])


def test_every_draw_of_the_trace_is_repeated() -> None:
    with np.load(GOLDEN / "f_ras.npz") as stored:
        case = dict(stored)
    source = Replayed(case["uniforms"])
    decoded: list[int] = []
    draws = []
    for index, logits in enumerate(case["logits"]):
        forbidden = (END,) if index < FEWEST else ()
        draws += sample_ids(logits[None], [SamplingContext(decoded, source, forbidden)])
        decoded.append(draws[-1].id)
    assert [drawn.id for drawn in draws] == case["ids"].tolist()
    assert [drawn.redrawn for drawn in draws] == case["fallback"].tolist()
    assert [drawn.candidates for drawn in draws] == case["n_candidates"].tolist()
    assert source.used == int(case["n_uniforms_used"])
