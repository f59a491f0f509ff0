"""Compiles kernels in Triton for a card that is not there. Needs Triton, not in its interpreter."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

CAPABILITIES = (80, 90, 100)
_TYPES: Mapping[torch.dtype, str] = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.int32: "i32",
    torch.int64: "i64",
}


def stack_bytes(step: Callable[[], object], capability: int, folder: Path) -> dict[str, int]:
    """Bytes of a thread that have no register, by kernel that a step on the device "meta" launches.

    folder: for compiled kernels.
    """
    launched: list[tuple[Any, Any, dict[str, Any]]] = []

    def launch(kernel: Any, *arguments: Any, **options: Any) -> None:
        launched.append((kernel, arguments, options))

    with patch.object(JITFunction, "run", launch):
        step()
    with patch.object(triton.knobs.cache, "dir", str(folder)):
        return {
            kernel.__name__: _stack_bytes(_compiled(kernel, arguments, options, capability), folder)
            for kernel, arguments, options in launched
        }


def _compiled(kernel: Any, arguments: Any, options: dict[str, Any], capability: int) -> bytes:
    """The binary. Tensors and counts are divisible by 16 where Triton would see them so on a card."""
    constants = {name: options.pop(name) for name in kernel.arg_names if name in options}
    constants["EARLY"] = capability >= 90
    signature, attributes = dict.fromkeys(kernel.arg_names, "constexpr"), {}
    for place, (name, argument) in enumerate(zip(kernel.arg_names, arguments, strict=False)):
        if isinstance(argument, Tensor):
            signature[name] = f"*{_TYPES[argument.dtype]}"
        elif argument == 1:
            constants[name] = argument
        else:
            signature[name] = "fp32" if isinstance(argument, float) else "i32"
        if isinstance(argument, Tensor) or argument % 16 == 0:
            attributes[(place,)] = [["tt.divisibility", 16]]
    for name in ("grid", "warmup"):
        options.pop(name)
    source = ASTSource(kernel, signature, constants, attributes)
    binary: bytes = triton.compile(source, GPUTarget("cuda", capability, 32), options).asm["cubin"]
    return binary


def _stack_bytes(binary: bytes, folder: Path) -> int:
    file = folder / "kernel.cubin"
    file.write_bytes(binary)
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"STACK:(\d+)", usage)))
