"""The card, versions, and the two ceilings of its speed: a copy and a product of matrices."""

import platform
import shutil
import subprocess
from collections.abc import Iterator

import torch
from gpu_check.findings import CheckOptions, Finding, median_s

_CARD_FIELDS = ("name", "driver_version", "memory.total", "power.draw", "power.limit", "clocks.sm")


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield what the machine is."""
    yield Finding("python", platform.python_version())
    yield Finding("torch", torch.__version__)
    yield from card_state(_CARD_FIELDS)
    device, count = options.torch_device, 1 << (20 if options.is_quick else 29)
    source = torch.empty(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy_s = median_s(lambda: target.copy_(source), device, 5)
    yield Finding("copy on the device, read and written", 2 * count / copy_s / 1e9, "GB/s")
    host = torch.empty(count, dtype=torch.uint8, pin_memory=device.type == "cuda")
    upload_s = median_s(lambda: target.copy_(host, non_blocking=True), device, 5)
    yield Finding("copy from pinned memory", count / upload_s / 1e9, "GB/s")
    size = 256 if options.is_quick else 8192
    matrix = torch.ones(size, size, dtype=torch.bfloat16, device=device)
    product_s = median_s(lambda: matrix @ matrix, device, 5)
    yield Finding(f"product of {size} x {size} in bf16", 2 * size**3 / product_s / 1e12, "TFLOP/s")


def card_state(fields: tuple[str, ...]) -> Iterator[Finding]:
    """What ``nvidia-smi`` says of the first card; nothing without the program."""
    if shutil.which("nvidia-smi") is None:
        return
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    for field, value in zip(fields, (answer or [""])[0].split(", "), strict=False):
        yield Finding(field, value)
