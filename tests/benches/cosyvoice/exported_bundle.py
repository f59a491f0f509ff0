"""Runs the bench ``exported`` of a bundle, whose graphs it exports if they are missing."""

from rich.console import Console

from benches.cosyvoice.bench_process import measure_in_process
from shared.voices.cosyvoice_bundles import check_bundle, export_bundle
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights, is_released, without_targets
from vivavoce.gateway.cli.bench.report import BenchReport
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.onnx_graphs.graph_files import is_exported
from vivavoce.models.devices.execution import Precision

MODULE = "benches.cosyvoice.exported"


def measure(weights: BenchWeights, precision: str) -> BenchReport:
    """Measure in a process of its own. Raises BundleError, BenchFailed."""
    with weights.folder() as folder, Console(stderr=True).status("bench exported"):
        checked = check_bundle(folder)
        if not is_exported(open_bundle(folder), Precision(precision)):
            list(export_bundle(folder, precision))
        figures = tuple(measure_in_process(MODULE, folder, precision))
    if not is_released(checked):
        figures = without_targets(figures)
    settings: dict[str, str | int | float | bool] = {
        "version": checked.version,
        "weights": str(weights),
        "precision": precision,
    }
    return BenchReport("exported", figures, settings)
