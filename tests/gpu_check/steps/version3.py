"""Version 3's flow on a random bundle: its kernels against torch's, in time and mel."""

import shutil
from collections.abc import Iterator

from gpu_check.findings import CheckOptions, Finding
from gpu_check.steps.graphs import FlowCheck, largest_distance, without_fused_kernels

from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.device_benchmark import measure_flow_steps
from vivavoce.models.cosyvoice.flow.policy import HALF_PRECISION_POLICY
from vivavoce.models.cosyvoice.networks import load_flow

_CHUNKS = 4


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures of both, with CUDA graphs."""
    folder = options.out / "bundle-v3"
    size, rounds, blocks = (BundleSize.TINY, 1, 1) if options.is_quick else (BundleSize.FULL, 10, 3)
    shutil.rmtree(folder, ignore_errors=True)  # of a step that was broken off
    write_random_bundle(folder, CosyVoiceVersion.V3, size, seed=7)
    flow = load_flow(open_bundle(folder), HALF_PRECISION_POLICY, options.torch_device)

    def times(name: str) -> Iterator[Finding]:
        together_s, apart_s = measure_flow_steps(flow, chunks=_CHUNKS, rounds=rounds)
        yield Finding(f"{name}, {_CHUNKS} chunks in one step", 1000 * together_s, "ms")
        yield Finding(f"{name}, a chunk alone", 1000 * apart_s / _CHUNKS, "ms")

    yield from times("fused kernels")
    mel = FlowCheck(flow, blocks).with_graphs()
    with without_fused_kernels():
        yield from times("torch")
        distance = largest_distance(mel, FlowCheck(flow, blocks).without_graphs())
    yield Finding("mel of fused kernels from torch's, largest", distance)
