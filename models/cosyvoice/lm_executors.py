"""Loads the language model with the library that executes it: torch, or ONNX Runtime on a processor.

``auto`` measures both in the precision that was asked for, and takes the faster one. The bundle's folder of
graphs keeps the result, so that a machine measures once:

    onnx/executors.json    {"processor, threads, versions, precision, digest": {"torch": ms, ...}, ...}

Without graphs of that precision nothing is measured and torch is taken.
"""

import json
import logging
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

import onnxruntime
import torch

from .checkpoint.bundle import CosyVoiceBundle
from .devices import DeviceError
from .lm.speech_lm import LmNetwork, SpeechLm
from .onnx_graphs.graph_files import GRAPH_FOLDER, bundle_digest, graph_path
from .onnx_graphs.onnx_lm import OnnxSpeechLm
from .precision import Precision

logger = logging.getLogger(__name__)

_ONNX_PRECISIONS = (Precision.FP32, Precision.INT8, Precision.INT4)
_CONTEXT = 60  # ids before the timed ones
_TIMED_STEPS = 5  # of each, in turns


class Executor(StrEnum):
    """Library that computes the language model; AUTO takes the faster one of those that are available."""

    AUTO = "auto"
    TORCH = "torch"
    ONNXRUNTIME = "onnxruntime"


def load_executor(
    executor: Executor,
    bundle: CosyVoiceBundle,
    precision: Precision,
    device: torch.device,
    load_with_torch: Callable[[], SpeechLm],
) -> LmNetwork:
    """Load the language model, and log which library executes it and why.

    Raises InvalidBundleError for graphs, DeviceError for an executor that lacks the device or precision.
    """
    if executor is Executor.AUTO and precision is Precision.INT4:
        executor = Executor.ONNXRUNTIME
    if executor is Executor.ONNXRUNTIME:
        _check_supported(precision, device)
        return OnnxSpeechLm.load(bundle, precision)
    has_graphs = device.type == "cpu" and graph_path(bundle, "lm_step", precision).exists()
    if executor is Executor.AUTO and has_graphs:
        return _load_faster(bundle, precision, load_with_torch)
    return load_with_torch()


def _check_supported(precision: Precision, device: torch.device) -> None:
    if device.type != "cpu":
        raise DeviceError(f"the executor onnxruntime is for a CPU, and the device is {device}; take torch")
    if precision not in _ONNX_PRECISIONS:
        raise DeviceError(
            f"the executor onnxruntime has {', '.join(_ONNX_PRECISIONS)}, and the precision is {precision}"
        )


def _load_faster(
    bundle: CosyVoiceBundle, precision: Precision, load_with_torch: Callable[[], SpeechLm]
) -> LmNetwork:
    digest = bundle_digest(bundle)
    file = bundle.folder / GRAPH_FOLDER / "executors.json"
    key = ", ".join([*_machine(), precision, digest])
    times_ms = _read_times(file).get(key)
    if times_ms is None:
        lms: dict[str, LmNetwork] = {
            Executor.TORCH: load_with_torch(),
            Executor.ONNXRUNTIME: OnnxSpeechLm.load(bundle, precision, digest),
        }
        times_ms = measure_token_ms(lms)
        _write_times(file, _read_times(file) | {key: times_ms})
        chosen = _log_choice(precision, times_ms, "measured now")
        return lms[chosen]
    if _log_choice(precision, times_ms, f"measured before, in {file}") == Executor.TORCH:
        return load_with_torch()
    return OnnxSpeechLm.load(bundle, precision, digest)


def _log_choice(precision: Precision, times_ms: Mapping[str, float], when: str) -> str:
    chosen = min(times_ms, key=lambda name: times_ms[name])
    times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in times_ms.items())
    logger.info("language model in %s on %s: a token takes %s (%s)", precision, chosen, times, when)
    return chosen


@torch.inference_mode()
def measure_token_ms(lms: Mapping[str, LmNetwork]) -> dict[str, float]:
    """Median milliseconds of a token by name; the models alternate, so that other load affects all."""
    ids = torch.arange(_CONTEXT)[None]
    states, times = {}, {name: [] for name in lms}  # type: ignore[var-annotated]
    for name, lm in lms.items():
        ids = ids % lm.config.codebook_size
        _, states[name] = lm.step(lm.embed_speech(ids), lm.init_state(1, _CONTEXT + _TIMED_STEPS + 1))
    for _ in range(_TIMED_STEPS + 1):
        for name, lm in lms.items():
            started = time.perf_counter()
            hidden, states[name] = lm.step(lm.embed_speech(ids[:, :1]), states[name])
            lm.logits(hidden[:, -1])
            times[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def _machine() -> tuple[str, ...]:
    """What the times depend on: the processor, threads, and the versions of both libraries."""
    return (
        _processor_name(),
        torch.backends.cpu.get_cpu_capability(),
        f"{torch.get_num_threads()} threads",
        f"torch {torch.__version__}",
        f"onnxruntime {onnxruntime.__version__}",
    )


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _read_times(file: Path) -> dict[str, dict[str, float]]:
    """The times by machine; empty if there is no readable file."""
    try:
        read = json.loads(file.read_text())
        return {key: {Executor(name): float(ms) for name, ms in times.items()} for key, times in read.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write_times(file: Path, times: Mapping[str, Mapping[str, float]]) -> None:
    try:
        file.write_text(json.dumps(times, indent=2))
    except OSError as error:
        logger.info("%s cannot be written (%s); the next start measures again", file, error.strerror)
