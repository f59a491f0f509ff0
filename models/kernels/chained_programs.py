"""Several phases in one launch: a program of a phase waits until the programs of the phase before have ended.

    tickets        0 1 2 3 | 4 5 | 6 7 8
    phase          0       | 1   | 2            a kernel says which tickets belong to which phase
    waits for      -       | 0   | 1            the end of all programs of that phase

A program takes a ticket when it begins, and waits for programs with lower tickets only. Those have begun
before it, so that they end, however few programs a card runs at once. A program may load what no program
writes, such as its part of a matrix, before it waits.

``counters`` are int32 on the device, one for tickets, one for ended programs and one for each phase; all are
0 before and after a launch, so that a recorded launch can be replayed.

Source: D. Merrill and M. Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back (2016), for
tickets instead of the order of programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_TICKETS, _ENDED = tl.constexpr(0), tl.constexpr(1)
_FIRST_PHASE = tl.constexpr(2)


def new_counters(phases: int, device: torch.device) -> Tensor:
    """Counters of a launch with so many phases. Launches that follow each other may share them."""
    return torch.zeros(phases + _FIRST_PHASE.value, dtype=torch.int32, device=device)


@triton.jit
def take_ticket(counters):  # type: ignore[no-untyped-def]
    """The number of this program, counted from 0 in the order in which programs begin."""
    return tl.atomic_add(counters + _TICKETS, 1, sem="relaxed")


@triton.jit
def await_phase(counters, phase, programs):  # type: ignore[no-untyped-def]
    """Wait until so many programs of a phase have ended. Below phase 0 there is nothing to wait for."""
    if phase >= 0:
        ended = tl.atomic_add(counters + _FIRST_PHASE + phase, 0, sem="acquire")
        while ended < programs:
            ended = tl.atomic_add(counters + _FIRST_PHASE + phase, 0, sem="acquire")


@triton.jit
def end_program(counters, phase, phases, programs):  # type: ignore[no-untyped-def]
    """Say that this program has stored its part. programs: of the launch; the last one to end resets."""
    tl.debug_barrier()  # all threads have stored
    tl.atomic_add(counters + _FIRST_PHASE + phase, 1, sem="release")
    if tl.atomic_add(counters + _ENDED, 1, sem="acq_rel") == programs - 1:
        for each in range(phases + _FIRST_PHASE):
            tl.store(counters + each, 0)
