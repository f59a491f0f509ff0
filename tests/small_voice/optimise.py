"""Training that goes on where it was ended: AdamW, warm-up and a cosine, averaged weights, checkpoints.

Every step draws its batch from a generator of its own number, so a run that was killed and started again
takes the same steps. A checkpoint is written every minute, beside a line of the losses so far.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vivavoce.models.cosyvoice.training.bundle_parts import bf16_notice

_LOG_EVERY = 50
_AVERAGE = 0.998  # of the averaged weights, what a step keeps

Losses = Mapping[str, Tensor]


class Task(Protocol):
    """A network and its losses."""

    @property
    def network(self) -> nn.Module: ...

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch that the generator draws, at a share (0..1) of the run; their sum is minimised."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast a network is trained."""

    steps: int
    rate: float
    warm_up: int = 200
    final_share: float = 0.02  # of the rate, at the end
    clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    decay: float = 0.01
    bf16: bool = False  # products in bfloat16, where the processor computes in it
    checkpoint_every_s: float = 60.0

    def rate_at(self, step: int) -> float:
        """The learning rate of a step."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        share = 0.5 + 0.5 * math.cos(math.pi * step / self.steps)
        return self.rate * (self.final_share + (1 - self.final_share) * share)


def optimise(task: Task, schedule: Schedule, checkpoint: Path, seed: int) -> dict[str, Tensor]:
    """Train the network of a task in place and return its averaged weights.

    checkpoint: goes on from this file if it exists.
    """
    network = task.network
    parameters = dict(network.named_parameters())
    average = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    optimizer = torch.optim.AdamW(
        parameters.values(), schedule.rate, schedule.betas, weight_decay=schedule.decay, fused=True
    )
    first = _resume(checkpoint, network, average, optimizer)
    in_bf16 = schedule.bf16 and bf16_notice(torch.device("cpu")) is None
    written, recent = time.monotonic(), list[Losses]()
    for step in range(first, schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step)
        # Also of the random numbers that torch draws in the step.
        torch.manual_seed(seed * 1_000_003 + step)
        with _products_in_bf16() if in_bf16 else nullcontext():
            losses = task.losses(np.random.default_rng([seed, step]), step / schedule.steps)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), schedule.clip)
        if torch.isfinite(norm):
            optimizer.step()
        keep = min(_AVERAGE, (step + 1) / (step + 10))
        trained = [parameter.detach() for parameter in parameters.values()]
        update = get_ema_multi_avg_fn(keep)  # type: ignore[no-untyped-call]
        update(list(average.values()), trained, None)
        recent.append({name: loss.detach() for name, loss in losses.items()})
        last = step + 1 == schedule.steps
        if (step + 1) % _LOG_EVERY == 0 or last:
            _print_means(f"{checkpoint.stem} {step + 1}/{schedule.steps}", recent)
            recent.clear()
        if last or time.monotonic() - written > schedule.checkpoint_every_s:
            state = {
                "step": step + 1,
                "steps": schedule.steps,
                "network": network.state_dict(),
                "average": average,
                "optimizer": optimizer.state_dict(),
            }
            _save(checkpoint, state)
            written = time.monotonic()
    return average


@contextmanager
def _products_in_bf16() -> Iterator[None]:
    """Products in bfloat16; attention unfused, as the gradient of the fused one is slow for narrow heads."""
    with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
        yield


def _print_means(title: str, recent: Sequence[Losses]) -> None:
    """Print the mean of each loss over the last steps that had it."""
    named = {
        name: [losses[name] for losses in recent if name in losses] for losses in recent for name in losses
    }
    means = "  ".join(f"{name} {torch.stack(found).mean():.4f}" for name, found in named.items())
    print(f"{time.strftime('%H:%M:%S')}  {title}  {means}", flush=True)


def _resume(
    checkpoint: Path, network: nn.Module, average: dict[str, Tensor], optimizer: torch.optim.Optimizer
) -> int:
    if not checkpoint.exists():
        return 0
    saved = torch.load(checkpoint, weights_only=True)
    network.load_state_dict(saved["network"])
    average.update(saved["average"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def _save(checkpoint: Path, state: Mapping[str, object]) -> None:
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_suffix(".partial")
    torch.save(state, partial)
    partial.rename(checkpoint)
