"""The load generator of the call bench: phones in a process of their own, and what they heard as arrays.

Run as ``python -m vivavoce.gateway.cli.bench.load_generator HOST PORT ...``: it dials, listens, writes one ``.npz`` with
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

from ..phone import PhoneFailed, PhoneSimulator
from ..received_audio import ReceivedCall
from .trace import PacketTrace


@dataclass(frozen=True, slots=True)
class PhoneLoadOptions:
    """How a load generator dials: ``calls`` spread evenly over ``ramp_s``, then ``seconds`` of listening."""

    host: str
    port: int
    calls: int
    ramp_s: float
    seconds: float
    out: Path


@dataclass(frozen=True, slots=True)
class PhoneLoadResult:
    """What a load generator says at its end. ``cpu_share``: of one core, while the calls were up."""

    connected: float
    ended: float
    cpu_share: float


def run_phones(options: PhoneLoadOptions) -> PhoneLoadResult:
    """Dial, listen, hang up, write the traces; raises PhoneFailed if nobody answers."""
    simulator = PhoneSimulator(options.host, options.port)
    start, cpu = time.monotonic(), _cpu_s()
    for number in range(options.calls):
        simulator.run(start + options.ramp_s * number / options.calls)
        simulator.dial()
    connected = time.monotonic()
    _print_message({"connected": connected})
    simulator.run(connected + options.seconds)
    ended = time.monotonic()
    share = (_cpu_s() - cpu) / (ended - start)
    simulator.close()
    save_traces(options.out, simulator.received_calls())
    return PhoneLoadResult(connected, ended, share)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _print_message(message: dict[str, float]) -> None:
    print(json.dumps(message), flush=True)


def save_traces(path: Path, calls: Sequence[ReceivedCall]) -> None:
    """Write the calls that heard anything, as arrays."""
    arrays: dict[str, np.ndarray] = {}
    for heard in calls:
        if not heard.packets:
            continue
        trace = PacketTrace.from_received_call(heard)
        arrays[f"{trace.call}/arrived"] = trace.arrived
        arrays[f"{trace.call}/pcm"] = trace.pcm
        arrays[f"{trace.call}/sample_rate"] = np.array(trace.sample_rate)
    np.savez(path, allow_pickle=False, **arrays)


def load_traces(path: Path) -> list[PacketTrace]:
    """Read what ``save_traces`` wrote."""
    with np.load(path) as arrays:
        calls = [name.partition("/")[0] for name in arrays if name.endswith("/arrived")]
        return [
            PacketTrace.from_arrays(
                UUID(call),
                int(arrays[f"{call}/sample_rate"]),
                arrays[f"{call}/arrived"],
                arrays[f"{call}/pcm"],
            )
            for call in calls
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one plan from the command line; 0, or 1 after one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="vivavoce.gateway.cli.bench.load_generator", description="phones for a bench"
    )
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--ramp", dest="ramp_s", type=float, default=0.0, metavar="S")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, required=True)
    try:
        result = run_phones(PhoneLoadOptions(**vars(parser.parse_args(arguments))))
    except PhoneFailed as error:
        print(error, file=sys.stderr)
        return 1
    _print_message(asdict(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
