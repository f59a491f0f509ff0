"""Whether ``auto`` takes the faster library for each network, with other threads and instruction sets.

Run as a module, it chooses once as a server does, and then times both libraries again, longer and in turns.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console

from benches.cosyvoice.bench_process import measure_in_process, print_figures
from shared.voices.cosyvoice_bundles import export_bundle
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.executors import (
    TIMES_FILE,
    measure_flow_ms,
    measure_token_ms,
    measure_vocoder_ms,
)
from vivavoce.models.cosyvoice.networks import load_networks
from vivavoce.models.cosyvoice.onnx_graphs.graph_files import GRAPH_FOLDER, is_exported
from vivavoce.models.networks.devices import CPU
from vivavoce.models.networks.execution import Executor, Precision
from vivavoce.tts_engine.cosyvoice.checkpoints import bundle_errors

MODULE = "benches.cosyvoice.executor_choice"
_EXECUTORS = (Executor.TORCH, Executor.ONNXRUNTIME)
_ROUNDS = 5  # of timings; a round of the language model has five tokens
_ONE_THREAD = "one thread"
_SETTINGS: Mapping[str, Mapping[str, str]] = {  # what the process finds in its environment
    "all threads": {},
    _ONE_THREAD: {},
    "all threads, AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}

Network = TypeVar("Network")


def measure(weights: BenchWeights, precision: str) -> BenchReport:
    """Measure each setting in a process of its own. Raises BundleError, BenchFailed."""
    figures: list[BenchFigure] = []
    with weights.folder() as folder, Console(stderr=True).status("bench executor-choice"):
        if not is_exported(open_bundle(folder), Precision(precision)):
            list(export_bundle(folder, precision))
        for setting, environment in _SETTINGS.items():
            part = f"{precision}:{setting}"
            for figure in measure_in_process(MODULE, folder, part, environment):
                figures.append(replace(figure, name=f"{setting}: {figure.name}"))
    return BenchReport("executor-choice", tuple(figures), {"weights": str(weights), "precision": precision})


def measure_choice(folder: Path, precision: Precision) -> Iterator[BenchFigure]:
    """The times of both libraries, and that of the chosen one against the faster. Raises BundleError."""
    with bundle_errors():
        bundle = open_bundle(folder)
        (folder / GRAPH_FOLDER / TIMES_FILE).unlink(missing_ok=True)  # so that auto measures
        chosen = load_networks(bundle, None, precision, CPU, Executor.AUTO)
        loaded = {each: load_networks(bundle, None, precision, CPU, each) for each in _EXECUTORS}
    lms = {str(each): networks.lm for each, networks in loaded.items()}
    flows = {str(each): networks.flow for each, networks in loaded.items()}
    vocoders = {str(each): networks.vocoder for each, networks in loaded.items()}
    yield from _compared("language model, a token", chosen.lm, lms, measure_token_ms)
    yield from _compared("flow, a second", chosen.flow, flows, measure_flow_ms)
    yield from _compared("vocoder, a second", chosen.vocoder, vocoders, measure_vocoder_ms)


def _compared(
    name: str,
    chosen: Network,
    networks: Mapping[str, Network],
    measure_ms: Callable[[Mapping[str, Network]], dict[str, float]],
) -> Iterator[BenchFigure]:
    rounds = [measure_ms(networks) for _ in range(_ROUNDS)]
    times_ms = {executor: statistics.median(each[executor] for each in rounds) for executor in networks}
    for executor, ms in times_ms.items():
        yield BenchFigure(f"{name}, {executor}", ms, "ms")
    taken = next(executor for executor, network in networks.items() if type(network) is type(chosen))
    share = times_ms[taken] / min(times_ms.values())
    yield BenchFigure(f"{name}, auto ({taken}) against the faster", share, "x", at_most=1.05)


if __name__ == "__main__":
    bundle_folder, part = Path(sys.argv[1]), sys.argv[2]
    bundle_precision, _, setting = part.partition(":")
    if setting == _ONE_THREAD:
        torch.set_num_threads(1)
    sys.exit(print_figures(measure_choice(bundle_folder, Precision(bundle_precision))))
