"""The optimizer of a run: its settings, AdamW with warm-up and clipping, averaged weights, state on file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .run_folder import with_prefix, without_prefix

LEARNING_RATES = {"lm": 1e-5, "lm with adapters": 1e-4, "flow": 1e-5, "vocoder": 2e-4}
MAX_LEARNING_RATE = 3e-4  # upstream's users destroyed a flow with 1e-3


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a part is trained. Defaults are upstream's where it has such a setting."""

    learning_rate: float = 1e-5
    warmup_steps: int = 50  # of a rate that rises evenly
    weight_decay: float = 0.0
    clip_norm: float = 5.0  # of all gradients
    accumulate: int = 2  # batches of a step
    max_frames: int = 2000  # mel frames of a batch, with padding: 40 s a process
    epochs: int = 10
    max_steps: int | None = None
    averaging: float = 0.999  # decay of the averaged weights; 0: not averaged
    bf16: bool = False  # products in bfloat16; parameters and moments stay in float32
    seed: int = 1986
    held_out: float = 0.05  # share of the utterances, for validation
    checkpoint_steps: int = 200


_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class TrainingOptimizer:
    """Steps of the parameters that require gradients."""

    def __init__(self, network: nn.Module, settings: TrainingSettings) -> None:
        named = network.named_parameters()
        self.parameters = {name: one for name, one in named if one.requires_grad}
        self._settings = settings
        self._adamw = torch.optim.AdamW(
            self.parameters.values(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._averaged = (
            {name: one.detach().clone() for name, one in self.parameters.items()}
            if settings.averaging
            else None
        )

    def learning_rate(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        return self._settings.learning_rate * min(1.0, (step + 1) / max(1, self._settings.warmup_steps))

    def clear(self) -> None:
        """Forget gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def step(self, step: int, count: int) -> float:
        """Take a step with gradients of sums over ``count`` targets; returns their norm before clipping.

        Nothing changes if the norm is infinite or NaN.
        """
        parameters = list(self.parameters.values())
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(count)
        norm = float(nn.utils.clip_grad_norm_(parameters, self._settings.clip_norm))
        if norm == norm and norm != float("inf"):
            for group in self._adamw.param_groups:
                group["lr"] = self.learning_rate(step)
            self._adamw.step()
            self._average(step)
        self.clear()
        return norm

    @torch.no_grad()
    def _average(self, step: int) -> None:
        if self._averaged is None:
            return
        # Early averages follow fast, so that they are not the untrained weights.
        decay = min(self._settings.averaging, (1 + step) / (10 + step))
        for name, averaged in self._averaged.items():
            averaged.lerp_(self.parameters[name].detach(), 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[dict[str, Tensor]]:
        """The averaged weights, which the network has within the block; its own without averaging."""
        if self._averaged is None:
            yield {name: parameter.detach() for name, parameter in self.parameters.items()}
            return
        own = {name: parameter.data for name, parameter in self.parameters.items()}
        try:
            for name, parameter in self.parameters.items():
                parameter.data = self._averaged[name]
            yield self._averaged
        finally:
            for name, parameter in self.parameters.items():
                parameter.data = own[name]

    def state(self) -> dict[str, Tensor]:
        """Parameters, moments and averages, by name."""
        tensors = with_prefix("parameter.", {name: one.detach() for name, one in self.parameters.items()})
        for name, parameter in self.parameters.items():
            moments = self._adamw.state[parameter]
            tensors |= {f"{key}.{name}": moments[key] for key in _MOMENTS if key in moments}
        return tensors | with_prefix("average.", self._averaged or {})

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the state of ``state``. Raises KeyError if a parameter is missing."""
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"parameter.{name}"])
            if f"exp_avg.{name}" in tensors:
                self._adamw.state[parameter] = {
                    key: _on_its_device(key, tensors[f"{key}.{name}"], parameter) for key in _MOMENTS
                }
        if self._averaged is not None:
            for name, average in without_prefix("average.", tensors).items():
                self._averaged[name].copy_(average)


def _on_its_device(key: str, tensor: Tensor, parameter: Tensor) -> Tensor:
    # AdamW keeps its count of steps on the host.
    return tensor.clone() if key == "step" else tensor.to(parameter.device, copy=True)
