"""What a CosyVoice bundle costs on a graphics card, as named figures. No targets, no tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .cosyvoice_timings import Measured
from .errors import BundleError, MissingExtra

CONTEXT = 120


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run."""

    tokens: int = 200
    rounds: int = 20
    chunks: int = 4


def card(device: str) -> str:
    """The graphics card of that name, empty for a CPU; raises BundleError for one that is not there."""
    try:
        from ..models.cosyvoice.devices import DeviceFault, card_name, find_device
    except ImportError as error:
        raise MissingExtra("vivavoce bench device", "cosyvoice") from error
    try:
        return card_name(find_device(device))
    except DeviceFault as fault:
        raise BundleError(str(fault)) from fault


def measure_device(
    folder: Path, device: str, precision: str, effort: Effort = Effort()
) -> Iterator[Measured]:
    """The figures of a bundle on a device, by the clock; raises BundleError, BadRequest."""
    from ..models.cosyvoice import device_trial
    from ..models.cosyvoice.devices import find_device
    from ..models.cosyvoice.networks import load_flow, load_lm
    from ..models.cosyvoice.release.bundle import BundleFault, open_bundle
    from .cosyvoice.policy import precision_of

    where = find_device(device)
    try:
        bundle = open_bundle(folder)
        lm = load_lm(bundle, precision_of(precision), where)
    except BundleFault as fault:
        raise BundleError(str(fault)) from fault
    token_s = device_trial.token_s(lm, context=CONTEXT, tokens=effort.tokens)
    yield Measured(f"LM, a token of one session, context {CONTEXT}", 1000 * token_s, "ms")
    del lm
    pace = device_trial.flow_pace(load_flow(bundle, device=where), chunks=effort.chunks, rounds=effort.rounds)
    yield Measured(f"flow, {effort.chunks} chunks of 1 s in one step", 1000 * pace.together_s, "ms")
    yield Measured(f"flow, {effort.chunks} one after another", 1000 * pace.apart_s, "ms")
    yield Measured("flow, one after another against in one step", pace.apart_s / pace.together_s, "x")
