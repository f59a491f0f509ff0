"""Loading of bundles: devices of ONNX Runtime, and faults of folders and devices in the engine's terms."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ...models.devices.execution import DeviceError, Executor, Precision
from ...models.devices.onnx_providers import CPU, OnnxDevice, find_onnx_device
from ..backends.base import Backend
from ..backends.voice_kind import AUTO_PRECISION, LoadSettings
from ..errors import BadRequest, BundleError, MissingExtra


def require_default_networks(settings: LoadSettings) -> None:
    """Raise BadRequest for a precision or an executor, of a voice that has one only."""
    for name, value, *only in (
        ("precision", settings.precision, Precision.FP32.value, AUTO_PRECISION),
        ("executor", settings.executor, Executor.AUTO.value),
    ):
        if value not in only:
            raise BadRequest(f"{name} is {value!r}; only a CosyVoice bundle has others than {only[0]}")


@contextlib.contextmanager
def translated_errors(
    family: str, extra: str, import_faults: Callable[[], tuple[type[Exception], ...]]
) -> Iterator[None]:
    """Translate faults of a folder or device to BundleError.

    import_faults: imports what the networks of the family raise. Raises MissingExtra if something imports a
    package that is not installed.
    """
    try:
        from ...models.bundle_files import WeightFileError
        from ...models.devices.execution import DeviceError

        faults: tuple[type[Exception], ...] = (WeightFileError, DeviceError, *import_faults())
    except ImportError as error:
        raise MissingExtra(family, extra) from error
    try:
        yield
    except faults as error:
        raise BundleError(str(error)) from error
    except ModuleNotFoundError as error:
        raise MissingExtra(family, extra) from error
    except OSError as error:
        raise BundleError(f"{error.filename or 'the bundle'}: {error.strerror or error}") from error


@contextlib.contextmanager
def writing_errors(folder: Path) -> Iterator[None]:
    """Translate faults of a folder that random weights are written to."""
    try:
        yield
    except FileExistsError as error:
        raise BadRequest(f"{folder}: is not an empty folder; give a new one") from error
    except RuntimeError as error:  # torch's error for a full disk
        raise BundleError(f"{folder}: cannot be written: {str(error).splitlines()[0]}") from error


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
