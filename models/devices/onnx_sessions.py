"""Opens inference sessions of ONNX Runtime on a device."""

import ctypes
import logging
import threading
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

from .onnx_providers import CPU, OnnxDevice

logger = logging.getLogger(__name__)

# Faults of a graph, of its inputs, or of a provider.
ONNX_RUNTIME_ERRORS = (
    onnx_errors.EPFail,
    onnx_errors.Fail,
    onnx_errors.InvalidArgument,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NoSuchFile,
    onnx_errors.NotImplemented,
    onnx_errors.RuntimeException,
)

_ERROR_SEVERITY, _FATAL_SEVERITY = 3, 4


def session_options(threads: int = 1) -> onnxruntime.SessionOptions:
    """Options of a session. threads: that compute; with 1, only the calling thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = _ERROR_SEVERITY
    return options


def sums_are_exact(product: bytes) -> bool:
    """Whether this processor adds products of uint8 and int8 without saturating; takes a millisecond.

    product: of ``onnx_graphs.exact_products.saturating_product``.
    """
    session = CPU_SESSIONS.open(product)
    rows, inputs = session.get_inputs()[0].shape
    (sums,) = session.run(None, {"x": np.full((rows, inputs), 255, np.uint8)})
    return bool((sums == inputs * 255 * 127).all())


def optimized_graph_options() -> onnxruntime.SessionOptions:
    """Options of a session of a graph that was stored with its optimizations applied; one thread computes."""
    options = session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def options_that_free_memory(session: onnxruntime.InferenceSession) -> onnxruntime.RunOptions | None:
    """Options of a run after which the session gives back what it took for a long input; None off the CPU.

    Otherwise it keeps twice the most that it ever needed.
    """
    if session.get_providers() != [CPU.provider.name]:
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


class OnnxSessions:
    """Opens the sessions of one voice or bundle on a device; several threads may run a session at once.

    What the device does not compute, the CPU does: operators that its provider lacks, graphs that it cannot
    load, and everything if it does not start. The log says why, once a cause.

    Attributes:
        device: of the next session; the CPU after one that did not start.
    """

    def __init__(self, device: OnnxDevice = CPU) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._reported: set[str] = set()

    def open(
        self, model: bytes | Path, options: onnxruntime.SessionOptions | None = None
    ) -> onnxruntime.InferenceSession:
        """Open a serialized model or a file. Raises one of ``ONNX_RUNTIME_ERRORS``."""
        options = options or session_options()
        source = str(model) if isinstance(model, Path) else model
        device = self.device
        if device.is_cpu:
            return _open(source, options, CPU)
        options.log_severity_level = _FATAL_SEVERITY  # of a fault that is logged here
        try:
            session = _open(source, options, device)
        except (*ONNX_RUNTIME_ERRORS, RuntimeError, ValueError) as error:
            session = _open(source, options, CPU)  # raises the fault of a graph that no provider can load
            self._report(device, _library_fault(device) or last_line(error))
        else:
            if device.provider.name not in session.get_providers():
                self.device = CPU  # it will not start for the next session either
                self._report(device, _library_fault(device) or _device_fault(device))
        return session

    def _report(self, device: OnnxDevice, cause: str) -> None:
        with self._lock:
            is_new = cause not in self._reported
            self._reported.add(cause)
        if is_new:
            log_fallback(device, cause)


CPU_SESSIONS = OnnxSessions()


def _open(
    model: bytes | str, options: onnxruntime.SessionOptions, device: OnnxDevice
) -> onnxruntime.InferenceSession:
    providers = device.providers(options.intra_op_num_threads)
    # ONNX Runtime's own fallback prints to the standard output, where speech may go.
    return onnxruntime.InferenceSession(model, options, providers=providers, enable_fallback=0)


def log_fallback(device: OnnxDevice, cause: str) -> None:
    """Log that the CPU takes over."""
    logger.warning("the CPU computes what the device %s cannot: %s", device, cause)


def last_line(error: Exception) -> str:
    """The last line of a message, of 300 characters: a provider's own words come after ONNX Runtime's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][-300:] if lines else type(error).__name__


def _library_fault(device: OnnxDevice) -> str:
    """The fault of loading a provider's library, which ONNX Runtime does not return; or ""."""
    library = Path(onnxruntime.__file__).parent / "capi" / f"libonnxruntime_providers_{device.name}.so"
    if library.exists():
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            return str(error)
    return ""


def _device_fault(device: OnnxDevice) -> str:
    """The fault of a provider whose library was loaded, of which ONNX Runtime returns nothing either."""
    if device.name == "openvino":
        found = onnx_errors.get_available_openvino_device_ids()
        return f"it did not start; OpenVINO has {', '.join(found) or 'no device'} here"
    return "it did not start; ONNX Runtime wrote the cause to the standard error"
