"""What the first sound of a stream waits for, part by part.

    text pushed                                                                    heard
    | text | wait | ids | wait | ids | wait | flow | noise | vocoder |    host    |

text      until the first sentence is read
wait      in no step: for others, or for a worker
ids       DECODE steps, in which several streams share the language model
flow, noise, vocoder    of the RENDER steps, in which several streams share them
host      the rest of the RENDER steps, and the way to the listener

The parts of a stream add up to its first audio. Each part of a RENDER step ends with a wait for the device,
which a stream that is not traced does not have: its first audio is measured beside.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from gpu_check.findings import Finding

from vivavoce.tts_engine.backends.base import Stage

PARTS = ("text", "wait", "ids", "flow", "noise", "vocoder", "host")
_RENDER_CALLS = {"flow": "run_flow", "noise": "vocoder_input", "vocoder": "run_vocoder"}


@dataclass(slots=True)
class TracedStep:
    """One step. Times are monotonic, in seconds."""

    stage: Stage
    slots: frozenset[int]
    began: float
    ended: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)  # seconds of flow, noise and vocoder


class StepTrace:
    """The steps of a CosyVoice backend while it is traced. Each worker calls from its own thread."""

    def __init__(self, device: torch.device) -> None:
        self.steps: list[TracedStep] = []
        self._device = device
        self._running = threading.local()

    @contextmanager
    def of(self, backend: Any) -> Iterator[None]:
        """Trace the steps of a backend."""
        runner = backend._render_stage.runner
        with ExitStack() as patches:
            patches.enter_context(patch.object(backend, "step", self._step(backend, backend.step)))
            for part, method in _RENDER_CALLS.items():
                traced = self._part(part, getattr(runner, method))
                patches.enter_context(patch.object(runner, method, traced))
            yield

    def _step(self, backend: Any, work: Callable[..., Any]) -> Callable[..., Any]:
        def step(worker: int, turns: Sequence[Any]) -> Any:
            slots = frozenset(turn.slot for turn in turns)
            traced = TracedStep(backend.stage(turns[0].slot), slots, time.monotonic())
            self._running.step = traced
            try:
                return work(worker, turns)
            finally:
                traced.ended = time.monotonic()
                self.steps.append(traced)

        return step

    def _part(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.monotonic()
            try:
                return work(*arguments)
            finally:
                if self._device.type == "cuda":
                    torch.cuda.current_stream(self._device).synchronize()
                step: TracedStep | None = getattr(self._running, "step", None)
                if step is not None:  # else it began before the trace
                    step.parts[part] = step.parts.get(part, 0.0) + time.monotonic() - began

        return call


def first_hop_parts(
    steps: Sequence[TracedStep], slot: int, pushed_at: float, read_at: float, heard_at: float
) -> dict[str, float]:
    """Seconds of each of ``PARTS``. read_at: when the first sentence was read. Times are monotonic."""
    own = sorted(
        (each for each in steps if slot in each.slots and each.ended <= heard_at), key=lambda each: each.ended
    )
    last = max(index for index, each in enumerate(own) if each.stage is Stage.RENDER)
    own = own[: last + 1]
    spent = {stage: sum(each.ended - each.began for each in own if each.stage is stage) for stage in Stage}
    rendered = {part: sum(each.parts.get(part, 0.0) for each in own) for part in _RENDER_CALLS}
    return {
        "text": read_at - pushed_at,
        "wait": own[-1].ended - read_at - sum(spent.values()),
        "ids": spent[Stage.DECODE],
        **rendered,
        "host": spent[Stage.RENDER] - sum(rendered.values()) + heard_at - own[-1].ended,
    }


def first_hop_findings(name: str, streams: Sequence[dict[str, float]]) -> Iterator[Finding]:
    """The mean of each part over several streams, and the parts of the slowest one."""
    means = {part: statistics.fmean(each[part] for each in streams) for part in PARTS}
    yield from _row(f"first hop, {name}", means)
    if len(streams) > 1:
        yield from _row(f"first hop, {name}, slowest", max(streams, key=lambda each: sum(each.values())))


def _row(name: str, parts: dict[str, float]) -> Iterator[Finding]:
    for part in PARTS:
        yield Finding(f"{name}, {part}", 1000 * parts[part], "ms")
    yield Finding(f"{name}, all", 1000 * sum(parts.values()), "ms")
