"""Devices of ONNX Runtime's sessions: the execution provider of each, and the package that has it.

``device_names`` has the names. A package has the providers that it was built with. ``onnx_sessions`` opens
sessions on these devices.

Source: ONNX Runtime's documentation of its execution providers and their options.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..device_names import DEVICE_NAMES, DEVICE_PATTERN
from .execution import DeviceError


@dataclass(frozen=True, slots=True)
class OnnxProvider:
    """An execution provider of ONNX Runtime."""

    name: str
    package: str  # that contains it; it is installed in the place of onnxruntime
    option: str = ""  # that what follows a device's name is the value of
    threads_option: str = ""  # where it does not take the threads of the session
    options: Mapping[str, str] = field(default_factory=dict)  # that differ from its defaults
    next_device: str = ""  # computes what this one cannot, before the CPU does


PROVIDERS = {
    "cpu": OnnxProvider("CPUExecutionProvider", "onnxruntime"),
    # TF32 keeps 10 bits of a factor; torch's is switched off as well.
    "cuda": OnnxProvider("CUDAExecutionProvider", "onnxruntime-gpu", "device_id", options={"use_tf32": "0"}),
    "tensorrt": OnnxProvider("TensorrtExecutionProvider", "onnxruntime-gpu", "device_id", next_device="cuda"),
    "migraphx": OnnxProvider("MIGraphXExecutionProvider", "onnxruntime-migraphx", "device_id"),
    "rocm": OnnxProvider("ROCMExecutionProvider", "onnxruntime-rocm", "device_id"),
    "openvino": OnnxProvider(
        "OpenVINOExecutionProvider",
        "onnxruntime-openvino",
        "device_type",
        threads_option="num_of_threads",
    ),
    "directml": OnnxProvider("DmlExecutionProvider", "onnxruntime-directml", "device_id"),
    "coreml": OnnxProvider("CoreMLExecutionProvider", "onnxruntime for macOS"),
}


@dataclass(frozen=True, slots=True)
class OnnxDevice:
    """A device that sessions are opened on. name: a key of ``PROVIDERS``. value: what follows it, or ""."""

    name: str
    value: str = ""

    @property
    def provider(self) -> OnnxProvider:
        """The execution provider."""
        return PROVIDERS[self.name]

    @property
    def is_cpu(self) -> bool:
        """Whether it is ONNX Runtime's own provider for processors."""
        return self.name == "cpu"

    def providers(self, threads: int) -> list[tuple[str, dict[str, str]]]:
        """What a session takes: this provider with its options, and those that compute what it cannot.

        threads: of the session.
        """
        provider, options = self.provider, dict(self.provider.options)
        if self.value:
            options[provider.option] = self.value
        if provider.threads_option and threads:
            options[provider.threads_option] = str(threads)
        if self.is_cpu:
            return [(provider.name, options)]
        after = OnnxDevice(provider.next_device, self.value) if provider.next_device else CPU
        return [(provider.name, options), *after.providers(threads)]

    def __str__(self) -> str:
        return f"{self.name}:{self.value}" if self.value else self.name


CPU = OnnxDevice("cpu")


def find_onnx_device(name: str) -> OnnxDevice:
    """The device called so; ``auto`` is the CPU.

    Raises DeviceError for an unknown name, and for a provider that the installed package lacks.
    """
    if not re.fullmatch(DEVICE_PATTERN, name):
        raise DeviceError(f"device is {name!r}; it must be one of {DEVICE_NAMES}")
    device = OnnxDevice(*name.split(":")) if name != "auto" else CPU
    installed = installed_devices()
    if device.name not in installed:
        raise DeviceError(
            f"device is {name!r}; ONNX Runtime has {', '.join(installed)} here, and {device.name} comes with "
            f"the package {device.provider.package}, which is installed in the place of onnxruntime"
        )
    return device


def installed_devices() -> list[str]:
    """Names of the devices whose provider the installed package of ONNX Runtime has."""
    from onnxruntime import get_available_providers  # on demand: settings are checked with this module

    available = get_available_providers()
    return [name for name, provider in PROVIDERS.items() if provider.name in available]


def is_for_onnxruntime_only(name: str) -> bool:
    """Whether a name is that of a device which no other library has."""
    kind = name.partition(":")[0]
    return kind in PROVIDERS and kind not in ("cpu", "cuda")
