"""The load generator of the call bench: simulated phones in a process of their own.

``python -m vivavoce.gateway.cli.bench.load_generator HOST PORT ...`` dials, listens, writes every call's
arrival times and samples to one ``.npz`` file, and prints one JSON line when all calls are connected and one
at the end. It parses nothing until the last call has ended, so that its own work does not delay arrivals. The
network is the loopback interface; it shapes no traffic.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np

from ..phones.received_audio import ReceivedCall
from ..phones.simulated_phones import CallRefused, PhoneFailed
from ..phones.wires import AUDIOSOCKET, MAKE_PHONES, MakePhones, Phones
from .trace import PacketTrace


@dataclass(frozen=True, slots=True)
class PhoneLoadOptions:
    """The calls of one run."""

    host: str
    port: int
    calls: int
    ramp_s: float  # the calls are dialled evenly over this time
    seconds: float  # of listening after the last call is connected
    out: Path  # the ``.npz`` file
    over: str = AUDIOSOCKET  # a wire
    once: bool = False  # refused calls are not dialled again


@dataclass(frozen=True, slots=True)
class PhoneLoadResult:
    """The result line of a run."""

    connected: float  # monotonic seconds, when the last call was connected
    ended: float  # monotonic seconds
    cpu_share: float  # cores used while calls were up
    refused: int = 0  # calls that were refused, and dialled again if they may be


@dataclass(frozen=True, slots=True)
class RedialPolicy:
    """How calls that a busy gateway refuses are dialled again. Times in seconds."""

    answer_s: float = 0.3  # after which a call that is still up is not refused
    pause_s: float = 5.0  # before the refused calls are dialled again
    max_s: float = 60.0  # from the first refusal on; then the phones fail
    interval_s: float = 0.05  # between two calls


_REDIAL: Final = RedialPolicy()


def run_phones(options: PhoneLoadOptions, makers: Mapping[str, MakePhones]) -> PhoneLoadResult:
    """Dial, listen, hang up and write the traces; raises PhoneFailed as ``dial_calls`` does."""
    simulator = makers[options.over](options.host, options.port)
    start, cpu = time.monotonic(), _cpu_s()
    redial = None if options.once else _REDIAL
    refused = dial_calls(simulator, options.calls, options.ramp_s, redial)
    connected = time.monotonic()
    _print_message({"connected": connected})
    simulator.run(connected + options.seconds)
    ended = time.monotonic()
    share = (_cpu_s() - cpu) / (ended - start)
    simulator.close()
    save_traces(options.out, simulator.received_calls())
    return PhoneLoadResult(connected, ended, share, refused)


def dial_calls(phones: Phones, calls: int, ramp_s: float, redial: RedialPolicy | None = _REDIAL) -> int:
    """Dial evenly over ``ramp_s``, and again each call that is refused; return the number of refusals.

    redial: None: refused calls are left out.

    Raises PhoneFailed if a connection fails, or if the gateway refuses calls for ``redial.max_s``.
    """
    start = time.monotonic()
    for number in range(calls):
        _run_until(phones, start + ramp_s * number / calls)
        _dial(phones)
    _run_until(phones, time.monotonic() + (redial or _REDIAL).answer_s)
    if redial is None:
        return calls - phones.open_calls
    refused, give_up_at = 0, time.monotonic() + redial.max_s
    while missing := calls - phones.open_calls:
        if time.monotonic() >= give_up_at:
            raise PhoneFailed(f"the gateway refused {missing} of {calls} calls for {redial.max_s:g} s")
        refused += missing
        _run_until(phones, time.monotonic() + redial.pause_s)
        for _ in range(missing):
            _dial(phones)
            _run_until(phones, time.monotonic() + redial.interval_s)
        _run_until(phones, time.monotonic() + redial.answer_s)
    return refused


def _dial(phones: Phones) -> None:
    with suppress(CallRefused):  # AudioSocket hangs up instead; either way the call is missing
        phones.dial()


def _run_until(phones: Phones, until: float) -> None:
    phones.run(until)
    time.sleep(max(0.0, until - time.monotonic()))  # without an open call ``run`` returns at once


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _print_message(message: dict[str, float]) -> None:
    print(json.dumps(message), flush=True)


def save_traces(path: Path, calls: Sequence[ReceivedCall]) -> None:
    """Write the calls that received packets as arrays."""
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
    """Read a file written by ``save_traces``."""
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


def main(arguments: Sequence[str] | None = None, makers: Mapping[str, MakePhones] = MAKE_PHONES) -> int:
    """Parse the arguments and run; returns 0, or 1 after an error on standard error.

    makers: of the phones of each wire that ``--over`` may name.
    """
    parser = argparse.ArgumentParser(
        prog="vivavoce.gateway.cli.bench.load_generator", description="phones for a bench"
    )
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--ramp", dest="ramp_s", type=float, default=0.0, metavar="S")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--over", default=AUDIOSOCKET)
    parser.add_argument("--once", action="store_true", help="do not dial refused calls again")
    try:
        result = run_phones(PhoneLoadOptions(**vars(parser.parse_args(arguments))), makers)
    except PhoneFailed as error:
        print(error, file=sys.stderr)
        return 1
    _print_message(asdict(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
