"""Opens inference sessions of ONNX Runtime on a processor."""

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

# Faults of a graph or of its inputs.
ONNX_RUNTIME_ERRORS = (
    onnx_errors.Fail,
    onnx_errors.InvalidArgument,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NotImplemented,
    onnx_errors.RuntimeException,
)


def session_options(threads: int = 1) -> onnxruntime.SessionOptions:
    """Options of a session. threads: that compute; with 1, only the calling thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def inference_session(
    model: bytes, threads: int = 1, *, optimized: bool = False
) -> onnxruntime.InferenceSession:
    """A session that several threads may run at once.

    threads: that compute. optimized: whether the graph was stored with its optimizations applied.
    """
    options = session_options(threads)
    if optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
