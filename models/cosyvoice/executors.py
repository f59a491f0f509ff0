"""Loads each network with the library that executes it: torch, ONNX Runtime on a CPU, TensorRT on a card.

``auto`` measures both where graphs are exported, and takes the faster one. The bundle's folder of graphs
keeps the result, so that a machine measures once:

    onnx/executors.json    {"network, processor, threads, versions, precision, digest": {"torch": ms, ...}}

Without graphs of a network nothing is measured and torch is taken.
"""

import json
import logging
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import onnxruntime
import torch

from ..networks.execution import DeviceError, Executor, Precision
from .checkpoint.bundle import CosyVoiceBundle
from .config import BLOCK_FRAMES, BLOCK_IDS, LOOKAHEAD_IDS, MEL_BANDS
from .flow.policy import FlowPolicy
from .flow.state import FlowChunk
from .flow.streaming_flow import StreamingFlow
from .lm.speech_lm import LmNetwork
from .onnx_graphs.graph_files import GRAPH_FOLDER, bundle_digest, graph_path
from .onnx_networks.onnx_flow import OnnxFlow
from .onnx_networks.onnx_lm import OnnxSpeechLm
from .onnx_networks.onnx_vocoder import OnnxVocoder
from .onnx_runtime.networks import EXPORTED_PRECISIONS, can_run_policy
from .tensorrt_engines.engine_builder import import_tensorrt
from .tensorrt_engines.networks import EngineLoader
from .vocoder.vocoder import Vocoder

logger = logging.getLogger(__name__)

TIMES_FILE = "executors.json"

_CONTEXT = 60  # ids before the timed ones
_TIMED_STEPS = 5  # of each, in turns
_TIMED_CHUNKS = 2  # of flow and vocoder, which take longer

Network = TypeVar("Network")


class NetworkLoader:
    """Loads the networks of one bundle, and logs which library executes each and why.

    Its methods take what loads the network with torch. They raise InvalidBundleError for graphs, and
    DeviceError for an executor that lacks the device or precision.
    """

    def __init__(
        self, executor: Executor, bundle: CosyVoiceBundle, precision: Precision, device: torch.device
    ) -> None:
        if precision is Precision.INT4_INT8:
            raise DeviceError(
                f"{precision} needs the executor onnxruntime on a CPU, and it is {executor} on {device}"
            )
        if executor is Executor.ONNXRUNTIME or (executor is Executor.AUTO and precision is Precision.INT4):
            _check_supported(precision, device)
        if executor is Executor.TENSORRT and device.type != "cuda":
            raise DeviceError(f"the executor tensorrt is for a graphics card, and the device is {device}")
        self._executor, self._bundle, self._precision, self._device = executor, bundle, precision, device

    @cached_property
    def _digest(self) -> str:
        return bundle_digest(self._bundle)

    @cached_property
    def _engines(self) -> EngineLoader:
        is_narrow = self._precision in (Precision.BF16, Precision.FP16)
        products = self._precision if is_narrow else Precision.FP32
        return EngineLoader(import_tensorrt(), self._bundle, products, self._device)

    def load_lm(self, load_with_torch: Callable[[], LmNetwork]) -> LmNetwork:
        """Load the language model; int4 is for ONNX Runtime, and with TensorRT torch computes it."""

        def load_with_onnx() -> LmNetwork:
            return OnnxSpeechLm.load(self._bundle, self._precision, self._digest)

        if self._executor is Executor.AUTO and self._precision is Precision.INT4:
            return load_with_onnx()
        path = graph_path(self._bundle, "lm_step", self._precision)
        return self._load(
            "language model", path, self._precision, load_with_torch, load_with_onnx, measure_token_ms
        )

    def load_flow(
        self, policy: FlowPolicy | None, load_with_torch: Callable[[], StreamingFlow]
    ) -> StreamingFlow:
        """Load the flow; a bounded window or a compact memory is for torch."""
        if self._executor is Executor.TENSORRT:
            return self._engines.load_flow()
        if policy is not None and not can_run_policy(policy):
            return load_with_torch()
        return self._load(
            "flow",
            graph_path(self._bundle, "flow_step"),
            Precision.FP32,
            load_with_torch,
            lambda: OnnxFlow.load(self._bundle, policy, self._digest),
            measure_flow_ms,
        )

    def load_vocoder(self, load_with_torch: Callable[[], Vocoder]) -> Vocoder:
        """Load the vocoder."""
        if self._executor is Executor.TENSORRT:
            return self._engines.load_vocoder()
        return self._load(
            "vocoder",
            graph_path(self._bundle, "vocoder"),
            Precision.FP32,
            load_with_torch,
            lambda: OnnxVocoder.load(self._bundle, self._digest),
            measure_vocoder_ms,
        )

    def _load(
        self,
        name: str,
        graph: Path,
        precision: Precision,
        load_with_torch: Callable[[], Network],
        load_with_onnx: Callable[[], Network],
        measure_ms: Callable[[Mapping[str, Network]], dict[str, float]],
    ) -> Network:
        if self._executor is Executor.ONNXRUNTIME:
            return load_with_onnx()
        if (
            self._executor in (Executor.TORCH, Executor.TENSORRT)
            or self._device.type != "cpu"
            or not graph.exists()
        ):
            return load_with_torch()
        file = self._bundle.folder / GRAPH_FOLDER / TIMES_FILE
        key = ", ".join([name, *_machine(), precision, self._digest])
        times_ms = _read_times(file).get(key)
        if times_ms is None:
            networks = {Executor.TORCH: load_with_torch(), Executor.ONNXRUNTIME: load_with_onnx()}
            times_ms = measure_ms({str(executor): network for executor, network in networks.items()})
            _write_times(file, _read_times(file) | {key: times_ms})
            return networks[_log_choice(name, precision, times_ms, "measured now")]
        chosen = _log_choice(name, precision, times_ms, f"measured before, in {file}")
        return load_with_torch() if chosen is Executor.TORCH else load_with_onnx()


def _check_supported(precision: Precision, device: torch.device) -> None:
    if device.type != "cpu":
        raise DeviceError(f"the executor onnxruntime is for a CPU, and the device is {device}; take torch")
    if precision not in EXPORTED_PRECISIONS:
        raise DeviceError(
            f"the executor onnxruntime has {', '.join(EXPORTED_PRECISIONS)}, and the precision is {precision}"
        )


def _log_choice(name: str, precision: Precision, times_ms: Mapping[str, float], when: str) -> Executor:
    chosen = Executor(min(times_ms, key=lambda name: times_ms[name]))
    times = ", ".join(f"{executor} {ms:.1f} ms" for executor, ms in times_ms.items())
    unit = "a token" if name == "language model" else "a second of speech"
    logger.info("%s in %s on %s: %s takes %s (%s)", name, precision, chosen, unit, times, when)
    return chosen


@torch.inference_mode()
def measure_token_ms(lms: Mapping[str, LmNetwork]) -> dict[str, float]:
    """Median milliseconds of a token by name."""
    ids = torch.arange(_CONTEXT)[None]
    states = {}
    for name, lm in lms.items():
        ids = ids % lm.config.codebook_size
        _, states[name] = lm.step(lm.embed_speech(ids), lm.init_state(1, _CONTEXT + _TIMED_STEPS + 1))

    def decode(name: str) -> None:
        lm = lms[name]
        hidden, states[name] = lm.step(lm.embed_speech(ids[:, :1]), states[name])
        lm.logits(hidden[:, -1])

    return _median_ms(list(lms), decode, _TIMED_STEPS)


@torch.inference_mode()
def measure_flow_ms(flows: Mapping[str, StreamingFlow]) -> dict[str, float]:
    """Median milliseconds of a first block, one second of speech, by name."""
    ids = torch.zeros(1, BLOCK_IDS, dtype=torch.int64)
    chunk = FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], torch.zeros(1, MEL_BANDS, BLOCK_FRAMES))

    def render(name: str) -> None:
        flows[name].step(chunk, flows[name].init_state(torch.zeros(1, MEL_BANDS), BLOCK_FRAMES))

    return _median_ms(list(flows), render, _TIMED_CHUNKS)


@torch.inference_mode()
def measure_vocoder_ms(vocoders: Mapping[str, Vocoder]) -> dict[str, float]:
    """Median milliseconds of one second of speech by name."""
    mel = torch.zeros(1, MEL_BANDS, BLOCK_FRAMES)

    def render(name: str) -> None:
        vocoder = vocoders[name]
        state = vocoder.init_state(1)
        samples = vocoder.noise_samples(BLOCK_FRAMES, state, last=True)
        vocoder.finish(mel, torch.zeros(1, samples, vocoder.config.sine_count), state)

    return _median_ms(list(vocoders), render, _TIMED_CHUNKS)


def _median_ms(names: list[str], run: Callable[[str], None], rounds: int) -> dict[str, float]:
    """Time runs by name in turns, so that other load affects all; the first round is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds + 1):
        for name in names:
            started = time.perf_counter()
            run(name)
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
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def _write_times(file: Path, times: Mapping[str, Mapping[str, float]]) -> None:
    try:
        file.write_text(json.dumps(times, indent=2))
    except OSError as error:
        logger.info("%s cannot be written (%s); the next start measures again", file, error.strerror)
