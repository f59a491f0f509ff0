"""Choices of a caller about the execution of the networks: library, number format, device. No torch.

``precision`` describes the number formats; ``models.cosyvoice.executors`` chooses a library.
"""

import importlib.util
import sys
from enum import StrEnum


class Executor(StrEnum):
    """Library that computes the networks; AUTO takes the one for the device."""

    AUTO = "auto"
    TORCH = "torch"
    ONNXRUNTIME = "onnxruntime"
    TENSORRT = "tensorrt"


class Precision(StrEnum):
    """Number format of the language model's matrices, and where a second one is named, of the flow's."""

    FP32 = "fp32"
    FP32_FP16 = "fp32-fp16"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"
    INT4_INT8 = "int4-int8"

    @property
    def of_lm(self) -> "Precision":
        """The format of the language model."""
        pairs = {Precision.INT4_INT8: Precision.INT4, Precision.FP32_FP16: Precision.FP32}
        return pairs.get(self, self)

    @property
    def of_card_flow(self) -> "Precision":
        """The format of the factors that kernels multiply in the flow on a card; sums are float32."""
        return Precision.FP16 if self is Precision.FP32_FP16 else Precision.FP32

    @property
    def of_exported_flow(self) -> "Precision":
        """The format of the flow's exported graphs."""
        return Precision.INT8 if self is Precision.INT4_INT8 else Precision.FP32


class DeviceError(ValueError):
    """A device name that is unknown, or a device that this machine does not have."""


def is_torch_installed() -> bool:
    """Whether torch can be imported. Without it, exported graphs run in ONNX Runtime."""
    return sys.modules.get("torch") is not None or importlib.util.find_spec("torch") is not None
