"""XTTS on a random bundle: decode steps of the kernel against torch's, and streams through the engine."""

import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import torch
from gpu_check.findings import CheckOptions, Finding, as_known, median_s
from gpu_check.steps.graphs import largest_distance, without_fused_kernels
from gpu_check.steps.streams import listen, open_loop, stream_times, unlimited_engine
from torch import Tensor

from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.decoding.kv_memory import SpeechLmState
from vivavoce.models.xtts.checkpoint.bundle import XttsBundle, open_bundle
from vivavoce.models.xtts.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.xtts.decode_graphs import XttsDecodeGraphs
from vivavoce.models.xtts.gpt import TorchXttsGpt
from vivavoce.models.xtts.networks import load_networks
from vivavoce.tts_engine.xtts.backend import XttsBackend
from vivavoce.tts_engine.xtts.policy import xtts_policy_for

_ROWS = (1, 4, 8)  # of a step; those of 8 have no kernel
_STREAMS = 16
_STREAM_S = 5.0


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures of the network, and of an engine."""
    folder = options.out / "bundle-xtts"
    shutil.rmtree(folder, ignore_errors=True)  # of a step that was broken off
    write_random_bundle(folder, BundleSize.TINY if options.is_quick else BundleSize.FULL, seed=7)
    bundle = open_bundle(folder)
    for finding in chain(_step_findings(bundle, options), as_known(_stream_findings(bundle, options))):
        yield replace(finding, name=f"XTTS, {finding.name}")


@torch.inference_mode()
def _step_findings(bundle: XttsBundle, options: CheckOptions) -> Iterator[Finding]:
    device, (context, rounds) = options.torch_device, (8, 1) if options.is_quick else (200, 50)
    gpt = load_networks(bundle, device, xtts_policy_for(options.device).precision).gpt
    assert isinstance(gpt, TorchXttsGpt)
    for rows in _ROWS:
        fused = _DecodeSteps(gpt, rows, context)
        time_s = median_s(fused.run, device, rounds)
        yield Finding(f"an id of {rows} rows, context {context}", 1000 * time_s, "ms")
        with without_fused_kernels():
            in_torch = _DecodeSteps(gpt, rows, context)
            time_s = median_s(in_torch.run, device, rounds)
            yield Finding(f"an id of {rows} rows in torch, context {context}", 1000 * time_s, "ms")
        distance = largest_distance(fused.run(), in_torch.run())
        yield Finding(f"latents of {rows} rows from torch's, largest", distance)


class _DecodeSteps:
    """Decodes an id of each row again and again; what computes it is chosen when this is made."""

    def __init__(self, gpt: TorchXttsGpt, rows: int, context: int) -> None:
        drawn = torch.Generator().manual_seed(rows)
        state = gpt.init_state(rows, 2 * context)
        state.kv.copy_(torch.randn(state.kv.shape, generator=drawn))
        ids = torch.randint(0, gpt.config.speech_vocab_size - 2, (rows, 1), generator=drawn)
        places = torch.full((rows,), context)
        graphs = XttsDecodeGraphs(gpt, SpeechLmState(state.kv, places))
        self._step = partial(graphs.step, ids, torch.zeros_like(ids), torch.ones_like(places))
        self.run()  # captures the step

    def run(self) -> Tensor:
        """Latents of an id, (rows, hidden)."""
        return self._step()[0].clone()


async def _stream_findings(bundle: XttsBundle, options: CheckOptions) -> AsyncIterator[Finding]:
    count, seconds, alone = (2, 0.3, 1) if options.is_quick else (_STREAMS, _STREAM_S, 5)
    backend = XttsBackend.load(bundle.folder, xtts_policy_for(options.device))
    async with await unlimited_engine(backend) as engine:
        voice = engine.voices.default.id
        await listen(engine, voice, 0, 0.1)
        for finding in stream_times(
            "1 stream", [await listen(engine, voice, seed, 0.1) for seed in range(alone)]
        ):
            yield finding
        for finding in await open_loop(engine, voice, count, seconds):
            yield finding
