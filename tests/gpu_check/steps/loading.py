"""Writes a random bundle, of the released size unless the check is quick, and loads it onto the device."""

import shutil
import time
from collections.abc import Iterator

from gpu_check.findings import CheckOptions, Finding

from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.networks import load_networks
from vivavoce.models.devices.torch_devices import free_bytes


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield times and memory."""
    shutil.rmtree(options.bundle, ignore_errors=True)  # of a step that was broken off
    began = time.perf_counter()
    size = BundleSize.TINY if options.is_quick else BundleSize.FULL
    write_random_bundle(options.bundle, CosyVoiceVersion.V2, size, seed=7)
    yield Finding("random bundle, written in", time.perf_counter() - began, "s")
    device = options.torch_device
    began, before = time.perf_counter(), free_bytes(device)
    networks = load_networks(open_bundle(options.bundle), device=device)
    yield Finding("networks, loaded in", time.perf_counter() - began, "s")
    yield Finding("networks, memory", (before - free_bytes(device)) / 1e9, "GB")
    del networks
