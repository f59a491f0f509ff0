"""What the language model of a CosyVoice bundle costs in a precision, and how far it is from float32.

Named figures; no targets, no tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .bundles import bundle_errors
from .cosyvoice_timings import Measured

if TYPE_CHECKING:
    from ..models.cosyvoice.precision_trial import Trial

CONTEXT = 120


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run. tokens: timed, each way. positions: judged."""

    tokens: int = 12
    positions: int = 1000


def measure_precision(folder: Path, precision: str, effort: Effort = Effort()) -> Iterator[Measured]:
    """The figures of a precision; raises BundleError, MissingExtra, BadRequest for one that is unknown."""
    with bundle_errors():
        from ..models.cosyvoice import precision_trial, timings
        from ..models.cosyvoice.networks import load_lm
        from ..models.cosyvoice.precision import Precision
        from ..models.cosyvoice.release.bundle import open_bundle
        from .cosyvoice.policy import precision_of

        kept_in = precision_of(precision)
        timings.use_two_threads()
        bundle = open_bundle(folder)
        lm = load_lm(bundle, kept_in)
    yield Measured(f"{precision}, matrices", precision_trial.matrix_bytes(lm) / 1e6, "MB")
    pace = precision_trial.together(lm, context=CONTEXT, tokens=effort.tokens)
    yield Measured(f"{precision}, 8 sessions at once", pace.together, "tokens/s")
    yield Measured(f"{precision}, 8 one after another", pace.alone, "tokens/s")
    yield Measured(f"{precision}, at once against one after another", pace.together / pace.alone, "x")
    if kept_in is not Precision.FP32:
        trial = precision_trial.beside_exact(
            bundle, lm, context=CONTEXT, tokens=2 * effort.tokens, positions=effort.positions
        )
        yield from _beside(precision, trial)


def _beside(precision: str, trial: "Trial") -> Iterator[Measured]:
    token, exact = trial.token, trial.exact_token
    yield Measured(f"{precision}, a token", 1000 * token.cpu_s, "ms")
    yield Measured(f"{precision}, fp32 beside it", 1000 * exact.cpu_s, "ms")
    yield Measured(f"{precision}, a token against fp32", token.cpu_s / exact.cpu_s, "x")
    yield Measured(f"{precision}, a token by the clock", 1000 * token.wall_s, "ms")
    yield Measured(f"{precision}, fp32 beside it by the clock", 1000 * exact.wall_s, "ms")
    yield Measured(f"{precision}, a token against fp32 by the clock", token.wall_s / exact.wall_s, "x")
    error = trial.error
    yield Measured(f"{precision}, mean KL to fp32", error.kl, "nats")
    yield Measured(f"{precision}, likeliest id as fp32's where it leads by 0.1", 100 * error.agreement, "%")
    yield Measured(f"{precision}, positions where it leads by 0.1", error.certain, "")
