"""The load generator of the call bench: phones in a process of their own, and what they heard as arrays.

Run as ``python -m vivavoce.gateway.bench.load HOST PORT ...``: it dials, listens, writes one ``.npz`` with
every call's arrival times and samples, and prints one JSON line when all calls are up and one at the end.
Nothing is parsed before the last call has ended, so that its own work does not decide the result.

It is not a traffic shaper: the network between is the loopback interface.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

import numpy as np

from ..heard import Heard
from ..phone import PhoneBank, PhoneFailed
from .trace import Trace


@dataclass(frozen=True, slots=True)
class Plan:
    """How a load generator dials: ``calls`` spread evenly over ``ramp_s``, then ``seconds`` of listening."""

    host: str
    port: int
    calls: int
    ramp_s: float
    seconds: float
    out: Path


@dataclass(frozen=True, slots=True)
class Done:
    """What a load generator says at its end. ``cpu_share``: of one core, while the calls were up."""

    connected: float
    ended: float
    cpu_share: float


def generate(plan: Plan) -> Done:
    """Dial, listen, hang up, write the traces; raises PhoneFailed if nobody answers."""
    bank = PhoneBank(plan.host, plan.port)
    start, cpu = time.monotonic(), _cpu_s()
    for number in range(plan.calls):
        bank.run(start + plan.ramp_s * number / plan.calls)
        bank.dial()
    connected = time.monotonic()
    _say({"connected": connected})
    bank.run(connected + plan.seconds)
    ended = time.monotonic()
    share = (_cpu_s() - cpu) / (ended - start)
    bank.close()
    save(plan.out, bank.heard())
    return Done(connected, ended, share)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _say(message: dict[str, float]) -> None:
    print(json.dumps(message), flush=True)


def save(path: Path, calls: Sequence[Heard]) -> None:
    """Write the calls that heard anything, as arrays."""
    arrays: dict[str, np.ndarray] = {}
    for heard in calls:
        if not heard.packets:
            continue
        trace = Trace.of(heard)
        arrays[f"{trace.call}/arrived"] = trace.arrived
        arrays[f"{trace.call}/pcm"] = trace.pcm
        arrays[f"{trace.call}/sample_rate"] = np.array(trace.sample_rate)
    np.savez(path, allow_pickle=False, **arrays)


def load(path: Path) -> list[Trace]:
    """Read what ``save`` wrote."""
    with np.load(path) as arrays:
        calls = [name.partition("/")[0] for name in arrays if name.endswith("/arrived")]
        return [
            Trace.from_arrays(
                UUID(call),
                int(arrays[f"{call}/sample_rate"]),
                arrays[f"{call}/arrived"],
                arrays[f"{call}/pcm"],
            )
            for call in calls
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one plan from the command line; 0, or 1 after one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="vivavoce.gateway.bench.load", description="phones for a bench")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--ramp", dest="ramp_s", type=float, default=0.0, metavar="S")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, required=True)
    try:
        done = generate(Plan(**vars(parser.parse_args(arguments))))
    except PhoneFailed as error:
        print(error, file=sys.stderr)
        return 1
    _say(asdict(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
