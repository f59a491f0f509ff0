"""Names of the devices that networks compute on, for code that may not import the networks."""

from ...models.networks.execution import DeviceError
from ...models.onnx_providers import DEVICE_NAMES, DEVICE_PATTERN, OnnxDevice, find_onnx_device
from ..errors import BadRequest

__all__ = ["DEVICE_NAMES", "DEVICE_PATTERN", "require_onnx_device"]


def require_onnx_device(name: str) -> OnnxDevice:
    """The device of ONNX Runtime with that name; "auto" is the CPU.

    Raises BadRequest for an unknown name, and for a device that the installed package of ONNX Runtime lacks.
    """
    try:
        return find_onnx_device(name)
    except DeviceError as fault:
        raise BadRequest(str(fault)) from fault
