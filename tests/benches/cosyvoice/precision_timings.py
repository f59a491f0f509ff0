"""What the language model of a CosyVoice bundle costs in a precision, and how far it is from float32.

Named figures; no targets, no tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vivavoce.tts_engine.bundles import bundle_errors
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement

if TYPE_CHECKING:
    from benches.cosyvoice.precision_error import PrecisionComparison

CONTEXT = 120


@dataclass(frozen=True, slots=True)
class PrecisionTrialSize:
    """How much is run. tokens: timed, each way. positions: judged."""

    tokens: int = 12
    positions: int = 1000


def measure_precision(
    folder: Path, precision: str, effort: PrecisionTrialSize = PrecisionTrialSize()
) -> Iterator[Measurement]:
    """The figures of a precision; raises BundleError, MissingExtra, BadRequest for one that is unknown."""
    with bundle_errors():
        from benches.cosyvoice import network_timing, precision_error
        from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
        from vivavoce.models.cosyvoice.networks import load_lm
        from vivavoce.models.cosyvoice.precision import Precision
        from vivavoce.tts_engine.cosyvoice.policy import parse_precision

        chosen = parse_precision(precision)
        network_timing.limit_torch_threads()
        bundle = open_bundle(folder)
        lm = load_lm(bundle, chosen)
    yield Measurement(f"{precision}, matrices", precision_error.matrix_bytes(lm) / 1e6, "MB")
    pace = precision_error.measure_batching(lm, context=CONTEXT, tokens=effort.tokens)
    yield Measurement(f"{precision}, 8 sessions at once", pace.batched, "tokens/s")
    yield Measurement(f"{precision}, 8 one after another", pace.sequential, "tokens/s")
    yield Measurement(f"{precision}, at once against one after another", pace.batched / pace.sequential, "x")
    if chosen is not Precision.FP32:
        trial = precision_error.compare_with_float32(
            bundle, lm, context=CONTEXT, tokens=2 * effort.tokens, positions=effort.positions
        )
        yield from _against_fp32(precision, trial)


def _against_fp32(precision: str, trial: "PrecisionComparison") -> Iterator[Measurement]:
    token, exact = trial.token, trial.exact_token
    yield Measurement(f"{precision}, a token", 1000 * token.cpu_s, "ms")
    yield Measurement(f"{precision}, fp32 beside it", 1000 * exact.cpu_s, "ms")
    yield Measurement(f"{precision}, a token against fp32", token.cpu_s / exact.cpu_s, "x")
    yield Measurement(f"{precision}, a token by the clock", 1000 * token.wall_s, "ms")
    yield Measurement(f"{precision}, fp32 beside it by the clock", 1000 * exact.wall_s, "ms")
    yield Measurement(f"{precision}, a token against fp32 by the clock", token.wall_s / exact.wall_s, "x")
    error = trial.error
    yield Measurement(f"{precision}, mean KL to fp32", error.kl, "nats")
    yield Measurement(
        f"{precision}, likeliest id as fp32's where it leads by 0.1", 100 * error.agreement, "%"
    )
    yield Measurement(f"{precision}, positions where it leads by 0.1", error.certain, "")
