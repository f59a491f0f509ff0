"""What a CosyVoice bundle costs on a graphics card, as named figures. No targets, no tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .bundles import bundle_errors
from .cosyvoice_timings import Measured

CONTEXT = 120


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run."""

    tokens: int = 200
    rounds: int = 20
    chunks: int = 4


def card(device: str) -> str:
    """The graphics card of that name, empty for a CPU; raises BundleError for one that is not there."""
    with bundle_errors():
        from ..models.cosyvoice.devices import card_name, find_device

        return card_name(find_device(device))


def measure_device(
    folder: Path, device: str, precision: str, effort: Effort = Effort()
) -> Iterator[Measured]:
    """The figures of a bundle on a device, by the clock; raises BundleError, BadRequest."""
    with bundle_errors():
        from ..models.cosyvoice import device_trial
        from ..models.cosyvoice.devices import find_device
        from ..models.cosyvoice.networks import load_flow, load_lm
        from ..models.cosyvoice.release.bundle import open_bundle
        from .cosyvoice.policy import precision_of

        where = find_device(device)
        bundle = open_bundle(folder)
        lm = load_lm(bundle, precision_of(precision), where)
        flow = load_flow(bundle, device=where)
    token_s = device_trial.token_s(lm, context=CONTEXT, tokens=effort.tokens)
    yield Measured(f"LM, a token of one session, context {CONTEXT}", 1000 * token_s, "ms")
    pace = device_trial.flow_pace(flow, chunks=effort.chunks, rounds=effort.rounds)
    yield Measured(f"flow, {effort.chunks} chunks of 1 s in one step", 1000 * pace.together_s, "ms")
    yield Measured(f"flow, {effort.chunks} one after another", 1000 * pace.apart_s, "ms")
    yield Measured("flow, one after another against in one step", pace.apart_s / pace.together_s, "x")
