"""Measures a CosyVoice bundle on a device for ``vivavoce bench device``: named figures, without targets."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..bundles import bundle_errors


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured figure."""

    name: str
    value: float
    unit: str


CONTEXT = 120  # text and speech ids in the language model's memory


@dataclass(frozen=True, slots=True)
class DeviceTrialSize:
    """How much is run."""

    tokens: int = 200  # ids decoded
    rounds: int = 20  # repetitions of a flow step
    chunks: int = 4  # chunks of 1 s in a flow step


def card_name_of(device: str) -> str:
    """The model name of a graphics card, empty for a CPU. Raises BundleError if there is no such device."""
    with bundle_errors():
        from ...models.cosyvoice.devices import card_name, find_device

        return card_name(find_device(device))


def measure_device(
    folder: Path, device: str, precision: str, effort: DeviceTrialSize = DeviceTrialSize()
) -> Iterator[Measurement]:
    """Measure a bundle on a device, in wall-clock time. Raises BundleError, BadRequest (precision)."""
    with bundle_errors():
        from ...models.cosyvoice import device_benchmark
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.devices import find_device
        from ...models.cosyvoice.networks import load_flow, load_lm
        from .policy import parse_precision

        where = find_device(device)
        bundle = open_bundle(folder)
        lm = load_lm(bundle, parse_precision(precision), where)
        flow = load_flow(bundle, device=where)
    measure_token_s = device_benchmark.measure_token_s(lm, context=CONTEXT, tokens=effort.tokens)
    yield Measurement(f"LM, a token of one session, context {CONTEXT}", 1000 * measure_token_s, "ms")
    pace = device_benchmark.measure_flow_steps(flow, chunks=effort.chunks, rounds=effort.rounds)
    yield Measurement(f"flow, {effort.chunks} chunks of 1 s in one step", 1000 * pace.batched_s, "ms")
    yield Measurement(f"flow, {effort.chunks} one after another", 1000 * pace.sequential_s, "ms")
    yield Measurement("flow, one after another against in one step", pace.sequential_s / pace.batched_s, "x")
