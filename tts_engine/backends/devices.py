"""Devices that networks compute on, for code that may not import the networks."""

from collections.abc import Callable

from ...models.devices.execution import DeviceError
from ...models.devices.onnx_providers import CPU, DEVICE_NAMES, DEVICE_PATTERN, OnnxDevice, find_onnx_device
from ..errors import BadRequest, BundleError
from .base import Backend

__all__ = ["DEVICE_NAMES", "DEVICE_PATTERN", "load_on_device", "require_onnx_device"]


def require_onnx_device(name: str) -> OnnxDevice:
    """The device of ONNX Runtime with that name; "auto" is the CPU.

    Raises BadRequest for an unknown name, and for a device that the installed package of ONNX Runtime lacks.
    """
    try:
        return find_onnx_device(name)
    except DeviceError as fault:
        raise BadRequest(str(fault)) from fault


def load_on_device(load: Callable[[OnnxDevice], Backend], device: OnnxDevice) -> Backend:
    """Load a voice, and compute something with it; on the CPU if the device fails at that."""
    if device.is_cpu:
        return load(CPU)
    from ...models.devices.onnx_sessions import ONNX_RUNTIME_ERRORS, last_line, log_fallback

    try:
        return load(device)
    except (BundleError, *ONNX_RUNTIME_ERRORS) as error:
        backend = load(CPU)  # raises the fault of a voice that is damaged
        log_fallback(device, last_line(error))
        return backend
