"""The library that computes the networks of a bundle, where the caller leaves the choice.

    a processor, and the graphs are exported in the precision      ONNX Runtime, without torch
    a graphics card, or graphs that are not exported               torch

On one thread, the graphs take 0.40, 0.82 and 0.96 of torch's processor time for language model (int8), flow
and vocoder (AMD EPYC with AVX-512 VNNI). The one exception is a bounded window or a compact memory of the
flow, which the graphs cannot keep: torch computes those. Else torch on a processor is the reference, of tests
and training, and speaks with bundles that are not exported.
"""

import logging

from ..devices.execution import DeviceError, Executor, Precision
from .checkpoint.bundle import CosyVoiceBundle
from .flow.policy import FlowPolicy
from .onnx_graphs.graph_files import is_exported
from .onnx_runtime.networks import EXPORTED_PRECISIONS, can_run_policy

logger = logging.getLogger(__name__)


def choose_executor(
    executor: Executor, bundle: CosyVoiceBundle, policy: FlowPolicy, precision: Precision, *, is_on_cpu: bool
) -> Executor:
    """The executor, chosen for AUTO; a line in the log says how to export a bundle that is not.

    policy: of the flow's memory. Raises DeviceError for ONNX Runtime with a memory that graphs cannot keep.
    """
    if executor is Executor.ONNXRUNTIME and not can_run_policy(policy):
        raise DeviceError(f"{policy}; the exported graphs keep all keys and values in float32; take torch")
    if executor is not Executor.AUTO:
        return executor
    if precision.of_lm is Precision.INT4:
        return Executor.ONNXRUNTIME  # torch has no products in 4 bits
    if not is_on_cpu or precision not in EXPORTED_PRECISIONS or not can_run_policy(policy):
        return Executor.TORCH
    if is_exported(bundle, precision):
        return Executor.ONNXRUNTIME
    logger.info(
        "torch computes %s; exported graphs are faster on a processor: vivavoce bundle export %s --to onnx "
        "--precision %s",
        *(bundle.folder.name, bundle.folder, precision),
    )
    return Executor.TORCH
