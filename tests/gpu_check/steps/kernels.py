"""A profile of one chunk of the flow and of tokens: launches, and time of the kernels against the clock."""

import time
from collections.abc import Callable, Iterator

import torch
from gpu_check.findings import CheckOptions, Finding, synchronize
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.config import BLOCK_FRAMES, BLOCK_IDS, LOOKAHEAD_IDS, MEL_BANDS
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.cosyvoice.networks import load_networks


@torch.inference_mode()
def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the counts and times of steps without graphs."""
    device, tokens = options.torch_device, 5 if options.is_quick else 50
    networks = load_networks(open_bundle(options.bundle), device=device)
    lm, flow, vocoder = networks.lm, networks.flow, networks.vocoder
    state = lm.init_state(1, 2 * tokens + 8)
    ids = torch.zeros(1, BLOCK_IDS, dtype=torch.int64, device=device)
    chunk = FlowChunk(ids, ids[:, :LOOKAHEAD_IDS], torch.zeros(1, MEL_BANDS, BLOCK_FRAMES, device=device))
    mel = torch.zeros(1, MEL_BANDS, BLOCK_FRAMES, device=device)

    def decode() -> None:
        nonlocal state
        for _ in range(tokens):
            hidden, state = lm.step(lm.embed_speech(ids[:, :1]), state)
            lm.logits(hidden[:, -1])

    def render() -> None:
        flow.step(chunk, flow.init_state(torch.zeros(1, MEL_BANDS, device=device), BLOCK_FRAMES))

    def vocode() -> None:
        begin = vocoder.init_state(1)
        samples = vocoder.noise_samples(BLOCK_FRAMES, begin, last=True)
        vocoder.finish(mel, torch.zeros(1, samples, vocoder.config.sine_count, device=device), begin)

    for name, work in {f"{tokens} tokens": decode, "a flow chunk": render, "a vocoder step": vocode}.items():
        yield from _profile(name, work, device)


def _profile(name: str, work: Callable[[], None], device: torch.device) -> Iterator[Finding]:
    work()
    synchronize(device)
    on_card = device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU
    began = time.perf_counter()
    with profile(activities=[activity]) as profiled:
        work()
        synchronize(device)
    wall_s = time.perf_counter() - began
    events = [event for event in profiled.events() if _is_counted(event, on_card=on_card)]
    times_us = (event.device_time_total if on_card else event.self_cpu_time_total for event in events)
    busy_s = sum(times_us) / 1e6
    yield Finding(f"{name}, {'kernels' if on_card else 'operations'}", len(events))
    yield Finding(f"{name}, by the clock", 1000 * wall_s, "ms")
    yield Finding(f"{name}, in {'kernels' if on_card else 'operations'}", 100 * busy_s / wall_s, "%")


def _is_counted(event: FunctionEvent, *, on_card: bool) -> bool:
    """Whether an event is a kernel or a copy on the card, not its launch; without a card, an operation."""
    return event.device_type.name == "CUDA" if on_card else event.name.startswith("aten::")
