"""A simulated device other than the CPU, which finds mixed devices and synchronizations, and a full card.

Needs torch.

``DeviceSimulation`` computes tensors of the ``meta`` device in the CPU's memory. It fails where a tensor of
the device meets one of the CPU, and counts where the host has to wait for the device. It says nothing about
speed or CUDA's arithmetic.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from vivavoce.models.devices.torch_devices import CPU

DEVICE = torch.device("meta")
FULL_CARD = r"NVIDIA H200\) has too little memory: 0\.5 of 150\.0 GB"  # the error after ``fill_card``
COPIES = (torch.ops.aten.copy_, torch.ops.aten._to_copy)


class DeviceTensor(Tensor):
    """A tensor that reports the simulated device; its numbers are in ``on_host``."""

    on_host: Tensor

    @staticmethod
    def __new__(cls, on_host: Tensor) -> "DeviceTensor":
        device_tensor: DeviceTensor = Tensor._make_wrapper_subclass(
            cls,
            on_host.size(),
            strides=on_host.stride(),
            storage_offset=on_host.storage_offset(),
            dtype=on_host.dtype,
            device=DEVICE,
        )
        device_tensor.on_host = on_host
        return device_tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{func}: called outside of the simulation")


class DeviceSimulation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes on tensors of the simulated device. waits: operations that synchronize with the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        device_tensor = [tensor for tensor in given if isinstance(tensor, DeviceTensor)]
        requested = kwargs.get("device")
        if requested is not None:
            kwargs = {**kwargs, "device": CPU}
        self._check(func, given)
        if func.overloadpacket is torch.ops.aten._fused_sdp_choice:
            return 0  # the implementation without fused kernels
        answer = func(*tree_map(_to_host_tensor, args), **tree_map(_to_host_tensor, kwargs))
        stays_on_device = bool(device_tensor) if requested is None else torch.device(requested) == DEVICE
        into = given[0] if func.overloadpacket is torch.ops.aten.copy_ else None
        if into is not None and not isinstance(into, DeviceTensor):
            stays_on_device, answer = False, into
        if device_tensor and (
            not stays_on_device
            or not isinstance(answer, Tensor | tuple | list)
            or _depends_on_numbers(func, device_tensor)
        ):
            self.waits.append(str(func))
        if stays_on_device and func.overloadpacket in COPIES and not isinstance(given[-1], DeviceTensor):
            asynchronous = kwargs.get("non_blocking") or args[2:] == (True,)
            self.waits += [] if asynchronous else [f"{func}, to the device"]
        return (
            tree_map(lambda one: _to_device_tensor(one, device_tensor), answer) if stays_on_device else answer
        )

    def _check(self, func: Any, given: list[Tensor]) -> None:
        for tensor in given:
            assert isinstance(tensor, DeviceTensor) or not tensor.is_meta, (
                f"{func}: made by torch.tensor(device=...)"
            )
        kinds = {
            isinstance(tensor, DeviceTensor)
            for tensor in given
            if tensor.ndim or isinstance(tensor, DeviceTensor)
        }
        assert len(kinds) < 2 or func.overloadpacket in COPIES, f"{func}: tensors of two devices"


def _depends_on_numbers(func: Any, device_tensor: list[Any]) -> bool:
    """Whether the shape of the result depends on the numbers."""
    aten = torch.ops.aten
    if func.overloadpacket in (aten.index, aten.index_put_):
        return any(tensor.dtype == torch.bool for tensor in device_tensor[1:])
    return func.overloadpacket in (aten.nonzero, aten.masked_select)


def _to_host_tensor(value: Any) -> Any:
    return value.on_host if isinstance(value, DeviceTensor) else value


def _to_device_tensor(answer: Any, given: list[Any]) -> Any:
    """Wrap a result; an argument changed in place keeps its wrapper."""
    if not isinstance(answer, Tensor):
        return answer
    changed = [tensor for tensor in given if tensor.on_host is answer]
    return changed[0] if changed else DeviceTensor(answer)


def fill_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a card have 0.5 of 150 GB free, so that no tensor can be moved."""

    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (500_000_000, 150_000_000_000))
    monkeypatch.setattr(torch.Tensor, "to", fail)
