"""The processes of a run: one, or several that ``torchrun`` starts. Gradients and counts are summed.

Every process has all parameters and takes its rows of each batch. Sums are divided by the count of all
processes afterwards, so that the loss is that of one process with the same rows; no process waits for data
that another has run out of, because all follow one plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TrainingProcesses:
    """The place of this process among all."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes checkpoints and metrics."""
        return self.rank == 0

    def share(self, rows: Sequence[Item]) -> Sequence[Item]:
        """The rows of this process."""
        return rows[self.rank :: self.count]

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Sums of numbers over all processes."""
        if self.count == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=_exchange_device())
        dist.all_reduce(sums)
        return [float(number) for number in sums]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their sums over all processes; absent ones count as 0."""
        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            dist.barrier()


def join_processes(device: torch.device) -> TrainingProcesses:
    """Join the processes that torchrun started, over NCCL on cards and Gloo on CPUs; alone without it."""
    if not dist.is_torchelastic_launched():
        return TrainingProcesses()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return TrainingProcesses(dist.get_rank(), dist.get_world_size())


def leave_processes(processes: TrainingProcesses) -> None:
    """Leave the group at the end of a run."""
    if processes.count > 1:
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """The card of this process among those of its machine; the device itself for a CPU or one process."""
    if device.type != "cuda" or not dist.is_torchelastic_launched():
        return device
    local = torch.device("cuda", dist.get_node_local_rank())
    torch.cuda.set_device(local)
    return local


def _exchange_device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
