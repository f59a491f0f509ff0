"""Profiles of replayed steps, as they are served: kernels, the time that they fill, and the longest of them.

Replays of one row are what a lone stream waits for; those of four tell what more streams cost.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import torch
from gpu_check.findings import CheckOptions, Finding, median_s, synchronize
from gpu_check.steps.graphs import DecodingCheck, FlowCheck
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.config import BLOCK_FRAMES, MEL_BANDS
from vivavoce.models.cosyvoice.networks import RenderNetworks, load_lm, load_render_networks
from vivavoce.models.cosyvoice.vocoder.vocoder_graphs import VocoderGraphs
from vivavoce.tts_engine.cosyvoice.policy import policy_for

_ROWS = (1, 4)
_LONGEST = 5  # kernels of a profile that are named
_NAME_WIDTH = 60


@torch.inference_mode()
def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the counts and times of each kind of replay."""
    device, tokens = options.torch_device, 4 if options.is_quick else 48
    bundle, policy = open_bundle(options.bundle), policy_for("auto", options.device)
    lm = load_lm(bundle, policy.precision, device)
    render = load_render_networks(bundle, policy.flow, device)
    for rows in _ROWS[:1] if options.is_quick else _ROWS:
        decode = DecodingCheck(lm, tokens, rows)
        flow = FlowCheck(render.flow, 1, rows)
        works: dict[str, Callable[[], object]] = {
            f"{tokens} tokens": decode.with_graphs,
            "a flow chunk of 1 s": flow.with_graphs,
            "a vocoder chunk of 1 s": _vocode(render, device, rows),
        }
        for name, work in works.items():
            yield from _profile(f"{name}, {rows} row{'s' * (rows > 1)}", work, device)


def _vocode(networks: RenderNetworks, device: torch.device, rows: int) -> Callable[[], object]:
    """The first chunk of a sentence in every row, replayed."""
    vocoder = networks.vocoder
    graphs = VocoderGraphs(vocoder, device, rows)
    for planned in graphs.planned_captures([BLOCK_FRAMES]):
        planned.capture()
    states = [vocoder.init_state(1) for _ in range(rows)]
    samples = vocoder.noise_samples(BLOCK_FRAMES, states[0], last=False)
    mel = torch.zeros(rows, MEL_BANDS, BLOCK_FRAMES, device=device)
    noise = torch.zeros(rows, samples, vocoder.config.sine_count, device=device)
    return lambda: graphs.step(mel, noise, states)


def _profile(name: str, work: Callable[[], object], device: torch.device) -> Iterator[Finding]:
    yield Finding(f"{name}, by the clock", 1000 * median_s(work, device, 3), "ms")
    on_card = device.type == "cuda"
    kind = "kernels" if on_card else "operations"
    activity = ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        work()
        synchronize(device)
    events = [event for event in profiled.events() if _is_counted(event, on_card=on_card)]
    spans = [(event.time_range.start, event.time_range.end) for event in events]
    yield Finding(f"{name}, {kind}", len(events))
    if spans:
        whole_us = max(end for _, end in spans) - min(start for start, _ in spans)
        yield Finding(f"{name}, in {kind}", 100 * covered(spans) / max(whole_us, 1e-3), "%")
    yield from _longest(name, events)


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """The length of the union of intervals: kernels that run at once count once."""
    length, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        length += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return length


def _longest(name: str, events: Sequence[FunctionEvent]) -> Iterator[Finding]:
    lengths_us: dict[str, list[float]] = defaultdict(list)
    for event in events:
        lengths_us[event.name].append(event.time_range.end - event.time_range.start)
    for kernel, each in sorted(lengths_us.items(), key=lambda item: -sum(item[1]))[:_LONGEST]:
        yield Finding(f"{name}, {len(each)} of {kernel[:_NAME_WIDTH]}", sum(each) / 1000, "ms")


def _is_counted(event: FunctionEvent, *, on_card: bool) -> bool:
    """Whether an event is a kernel or a copy on the card, not its launch; without a card, an operation."""
    return event.device_type.name == "CUDA" if on_card else event.name.startswith("aten::")
