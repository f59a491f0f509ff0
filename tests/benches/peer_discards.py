"""Barge-ins on calls whose peer paces the playout: time to the peer's flush, and words heard against played.

    python tests/benches/peer_discards.py [--discards 100] [--calls 5] [--over telnyx]

The gateway is in this process, the peers in another one; both read one monotonic clock. Words of the
stand-in voice last 0.2 s, shorter than those of people.
"""

import argparse
import asyncio
import json
import random
import sys
import time
import uuid
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.peers.peer import Message
from shared.calls.peers.queue import PACKET_MS
from shared.calls.websocket_calls import WebSocketCallServer, websocket_call_server
from shared.calls.websocket_phones import WebSocketPhone
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.gateway.calls.call import Call

TEXT = "one two three four five six seven eight nine ten eleven twelve " * 3
MIN_SPOKEN_S, MAX_SPOKEN_S = 0.2, 2.0  # before a discard


@dataclass(frozen=True, slots=True)
class Discard:
    """One barge-in."""

    flushed_ms: float  # from the call of discard to the flush at the peer
    heard_words: int  # reported by the gateway
    played_words: int  # whose middle the peer had played when the flush came


@dataclass(frozen=True, slots=True)
class _Flush:
    at: float  # monotonic s
    played_packets: int


async def measure(wire: str, *, calls: int, discards: int) -> list[Discard]:
    """Discard ``discards`` times on each of ``calls`` calls."""
    async with websocket_call_server() as server:
        ids = [str(uuid.uuid4()) for _ in range(calls)]
        peers = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--peers", wire, server.url, *ids, stdout=PIPE, stdin=PIPE
        )
        flushes: dict[str, asyncio.Queue[_Flush]] = {call_id: asyncio.Queue() for call_id in ids}
        reading = asyncio.create_task(_read_flushes(peers, flushes))
        await until(lambda: all(server.find(call_id) for call_id in ids))
        measured = await asyncio.gather(*(_discard_on(server, one, flushes[one], discards) for one in ids))
        peers.terminate()
        await asyncio.gather(peers.wait(), reading)
    return [discard for some in measured for discard in some]


async def _read_flushes(peers: Process, flushes: dict[str, "asyncio.Queue[_Flush]"]) -> None:
    assert peers.stdout is not None
    async for line in peers.stdout:
        fields = json.loads(line)
        flushes[fields["call"]].put_nowait(_Flush(fields["at"], fields["played"]))


async def _discard_on(
    server: WebSocketCallServer, call_id: str, flushes: "asyncio.Queue[_Flush]", count: int
) -> list[Discard]:
    call = server.find(call_id)
    assert call is not None
    found: list[Discard] = []
    played_before = 0
    chance = random.Random(call_id)
    for _ in range(count):
        discard, played_before = await _discard_once(call, flushes, chance, played_before)
        found.append(discard)
    return found


async def _discard_once(
    call: Call, flushes: "asyncio.Queue[_Flush]", chance: random.Random, played_before: int
) -> tuple[Discard, int]:
    speaking = asyncio.create_task(call.speech.speak(TEXT))
    await asyncio.sleep(chance.uniform(MIN_SPOKEN_S, MAX_SPOKEN_S))
    start = time.monotonic()
    cut = await call.speech.discard()
    flush = await asyncio.wait_for(flushes.get(), 10)
    await speaking
    played_s = (flush.played_packets - played_before) * PACKET_MS / 1000
    played_words = sum((number + 0.5) * WORD_S <= played_s for number in range(36))
    return Discard(1000 * (flush.at - start), len(cut.words), played_words), flush.played_packets


# The process of the peers


def _report_flushes(peer: Any) -> None:
    receive = peer.receive

    def receive_and_report(message: Message) -> list[Message]:
        flushes = peer.flushes
        replies: list[Message] = receive(message)
        if peer.flushes > flushes:
            line = {"call": peer.call_id, "at": time.monotonic(), "played": peer.queue.played_packets}
            print(json.dumps(line), flush=True)
        return replies

    peer.receive = receive_and_report


async def _run_peers(wire: str, url: str, call_ids: list[str]) -> None:
    phones = []
    for call_id in call_ids:
        peer = MAKE_PEER[wire](call_id)
        _report_flushes(peer)
        phones.append(WebSocketPhone(peer).run(url))
    await asyncio.gather(*phones)


def main() -> None:
    """Print a line for each wire."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--discards", type=int, default=100)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--over", action="append", choices=list(MAKE_PEER), help="Default: all.")
    parser.add_argument("--peers", nargs="+")
    options = parser.parse_args()
    if options.peers:
        wire, url, *call_ids = options.peers
        asyncio.run(_run_peers(wire, url, call_ids))
        return
    for wire in options.over or MAKE_PEER:
        calls = options.calls
        found = asyncio.run(measure(wire, calls=calls, discards=-(-options.discards // calls)))
        late = np.array([discard.flushed_ms for discard in found])
        errors = [abs(discard.heard_words - discard.played_words) for discard in found]
        print(
            f"{wire:16} {len(found)} discards: flush after {np.median(late):.2f} ms (median), "
            f"{np.percentile(late, 99):.2f} ms (p99), {late.max():.2f} ms (max); words heard exact in "
            f"{errors.count(0)}, one off in {errors.count(1)}, more in {sum(error > 1 for error in errors)}"
        )


if __name__ == "__main__":
    main()
