"""The phones of the mixed load: calls that begin and end at random times, in a process of their own.

``python -m benches.mix.phones HOST PORT ...`` prints its result as one JSON line. Arrivals
are the kernel's timestamps, so a late read of this process is not counted against the gateway:

    read of k packets       |p|          |ppp|
    gap to the read before   <----- g ----->         hole = g - (k - 1) * 20 ms
"""

import argparse
import heapq
import json
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from uuid import UUID

from vivavoce.adapters.audiosocket.protocol import AudioSocketAudio, AudioSocketConnection, AudioSocketRole
from vivavoce.gateway.cli.phones.audiosocket_phones import PhoneSimulator

PTIME_S = 0.02
HOLE_S = 0.060
LONG_HOLE_S = 0.200
BURST_WINDOW_S = 0.200  # ten packets are due in it
DIAL_INTERVAL_S = 0.05  # of the first calls
_READ_INTERVAL_S = 0.5  # between two evaluations of what has arrived


@dataclass(frozen=True, slots=True)
class MixedCallOptions:
    """The calls of one run."""

    host: str
    port: int
    calls: int  # that are up on average
    calls_per_s: float  # that begin, and end
    seconds: float
    seed: int


@dataclass(slots=True)
class MixedCallResult:
    """The result line of a run."""

    calls: int = 0
    packets: int = 0
    long_holes: int = 0  # over 200 ms
    max_hole_ms: float = 0.0
    # Of holes over 60 ms between two packets of a call, monotonic seconds
    hole_ends: list[float] = field(default_factory=list)
    max_burst: int = 0  # packets of one call within 200 ms
    lost_calls: int = 0  # ended by the gateway
    cpu_share: float = 0.0  # cores used by this process
    # Audible packets in a row: call id, arrival of the first and of the last, monotonic seconds.
    sounds: list[tuple[str, float, float]] = field(default_factory=list)

    @property
    def holes(self) -> int:
        """Number of holes over 60 ms."""
        return len(self.hole_ends)


class MeasuredCall:
    """Counts the holes of one call from the reads of its phone."""

    def __init__(self, ends_at: float, call_id: str = "") -> None:
        self._call_id = call_id
        self._sound: tuple[float, float] | None = None  # arrivals of the audible packets so far
        self.ends_at = ends_at  # monotonic seconds, when the phone hangs up
        self._connection = AudioSocketConnection(AudioSocketRole.CALLER)
        self._last_arrival: float | None = None
        self._recent: deque[tuple[float, int]] = deque()  # arrivals and packets of the reads of 200 ms

    def add_read(self, arrived_at: float, data: bytes, result: MixedCallResult) -> None:
        """Count what one read contained."""
        self._connection.receive_data(data)
        packets = 0
        for event in self._connection.events():
            if isinstance(event, AudioSocketAudio):
                packets += 1
                self._add_packet(arrived_at, event.payload, result)
        if not packets:
            return
        if self._last_arrival is not None:
            _count_hole(arrived_at - self._last_arrival - (packets - 1) * PTIME_S, arrived_at, result)
        self._last_arrival = arrived_at
        self._count_burst(arrived_at, packets, result)
        result.packets += packets

    def _count_burst(self, arrived_at: float, packets: int, result: MixedCallResult) -> None:
        self._recent.append((arrived_at, packets))
        while arrived_at - self._recent[0][0] >= BURST_WINDOW_S:
            self._recent.popleft()
        result.max_burst = max(result.max_burst, sum(count for _, count in self._recent))

    def _add_packet(self, arrived_at: float, payload: bytes, result: MixedCallResult) -> None:
        if payload.strip(b"\0"):
            self._sound = (self._sound[0] if self._sound else arrived_at, arrived_at)
        elif self._sound is not None:
            result.sounds.append((self._call_id, *self._sound))
            self._sound = None


def _count_hole(hole_s: float, ended_at: float, result: MixedCallResult) -> None:
    if hole_s > HOLE_S:
        result.hole_ends.append(ended_at)
    result.long_holes += hole_s > LONG_HOLE_S
    result.max_hole_ms = max(result.max_hole_ms, 1000 * hole_s)


class MixedPhones(PhoneSimulator):
    """Phones that dial as a Poisson process and hang up after exponentially distributed times."""

    def __init__(self, options: MixedCallOptions) -> None:
        super().__init__(options.host, options.port)
        self.result = MixedCallResult()
        self._options = options
        self._arrivals = random.Random(options.seed)
        self._calls: dict[UUID, MeasuredCall] = {}

    def run_mix(self) -> None:
        """Dial ``calls`` phones, then run the mix for ``seconds``."""
        for _ in range(self._options.calls):
            self._begin_call()
            self.run(time.monotonic() + DIAL_INTERVAL_S)
        until = time.monotonic() + self._options.seconds
        next_call = time.monotonic() + self._next_interval_s()
        next_read = 0.0
        while (now := time.monotonic()) < until:
            if now >= next_call:
                self._begin_call()
                next_call += self._next_interval_s()
            if now >= next_read:
                self._evaluate(now)
                next_read = now + _READ_INTERVAL_S
            wake_at = min(next_call, next_read, until)
            self.run(wake_at)
            time.sleep(max(0.0, wake_at - time.monotonic()))  # without calls ``run`` returns at once
        self._evaluate(until)

    def _next_interval_s(self) -> float:
        return self._arrivals.expovariate(self._options.calls_per_s)

    def _begin_call(self) -> None:
        mean_s = self._options.calls / self._options.calls_per_s  # Little's law
        ends_at = time.monotonic() + self._arrivals.expovariate(1 / mean_s)
        call_id = self.dial()
        self._calls[call_id] = MeasuredCall(ends_at, str(call_id))
        self.result.calls += 1

    def _evaluate(self, now: float) -> None:
        for call_id, measured in self._calls.items():
            phone = self._phones[call_id]
            reads, phone.arrivals = phone.arrivals, []
            for arrived_at, data in reads:
                measured.add_read(arrived_at, data, self.result)
            if phone.ended is not None:
                self.result.lost_calls += 1
            elif now >= measured.ends_at:
                self._end(phone, now, "we hung up")
        self._forget_ended_calls()

    def _forget_ended_calls(self) -> None:
        ended = [call_id for call_id in self._calls if self._phones[call_id].ended is not None]
        for call_id in ended:
            del self._calls[call_id], self._phones[call_id]
        self._schedule = [entry for entry in self._schedule if entry[1] in self._phones]
        heapq.heapify(self._schedule)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="benches.mix.phones", description="phones")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--calls-per-s", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    phones = MixedPhones(MixedCallOptions(**vars(parser.parse_args(arguments))))
    start = time.monotonic()
    phones.run_mix()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    phones.result.cpu_share = (usage.ru_utime + usage.ru_stime) / (time.monotonic() - start)
    phones.close()
    print(json.dumps(asdict(phones.result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
