"""Settings that every backend with DECODE and RENDER steps has, and what names choose of them."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

from ...models.devices.execution import DeviceError, Precision
from ..errors import BadRequest, BundleError, MissingExtra
from ..stream_request import Delivery

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SamplingT = TypeVar("SamplingT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class DecodingPolicy:
    """Settings of one backend, each with its unit and reason. Families add their own."""

    # Sessions open at once.
    slots: int = 8
    # Speech ids that a DECODE step adds to each session; few, so that a cancelled session ends soon.
    ids_per_decode_step: int = 4
    # Sessions that share a DECODE step.
    max_decode_rows: int = 32
    # Sessions that share a RENDER step. On two cores, 4 chunks of 1 s in one step of CosyVoice take 70 to
    # 100 % of the time of four steps, and no chunk is delivered before the step ends; one by one, the first
    # takes a quarter of that.
    max_render_rows: int = 2
    # Inputs of a long prompt or text fed in one step; sessions that decode wait for it.
    prefill_chunk: int = 128
    # Precision of the language model's matrices.
    precision: Precision = Precision.FP32
    # "auto" (the first GPU that torch can use, else the CPU), "cpu", "cuda" or "cuda:N"; with exported graphs
    # a name of ``models.device_names``.
    device: str = "auto"
    # Run DECODE and RENDER steps at the same time, on two threads and device streams. On two cores, three new
    # sessions of CosyVoice were first heard after 9.8, 9.8 and 12.5 s without it, 8.5, 8.5 and 16.1 s with
    # it, and all ended at the same time: neither stage leaves a core idle.
    overlap: bool = False


def require_device(name: str) -> str:
    """The device with that name, as "cpu" or "cuda:0". Needs torch. Raises BundleError without the device."""
    from ...models.devices.torch_devices import find_device

    try:
        return str(find_device(name))
    except DeviceError as fault:
        raise BundleError(str(fault)) from fault


def card_name_of(device: str) -> str:
    """Name of the graphics card ``device``, empty for a CPU. Raises BundleError if it is absent."""
    try:
        from ...models.devices.torch_devices import card_name, find_device

        return card_name(find_device(device))
    except DeviceError as error:
        raise BundleError(str(error)) from error
    except ImportError as error:
        raise MissingExtra("a device", "cosyvoice") from error


def requested_sampling(bundle: SamplingT, delivery: Delivery) -> SamplingT:
    """The bundle's sampling parameters with those of the delivery, which has fields of the same names.

    Raises BadRequest if one is out of range.
    """
    chosen = {field.name: getattr(delivery, field.name) for field in fields(bundle)}
    try:
        return replace(bundle, **{name: value for name, value in chosen.items() if value is not None})
    except ValueError as error:
        raise BadRequest(str(error)) from error
