"""The API streams of the mixed load: requests at random times over every API, in a process of their own.

``python -m benches.mix.streams URL ...`` prints its result as one JSON line. Most clients
read everything, at once or as a player does that keeps a second in advance; some stop reading for a while,
and some disconnect in the middle. Holes are counted for clients that read everything: silence of more than
60 ms between pieces, in a playback that starts with the first piece.
"""

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field
from enum import StrEnum

import httpx
from websockets.exceptions import WebSocketException

from vivavoce.gateway.cli.bench.api_clients import ApiClient, SpeechApi, open_client
from vivavoce.gateway.cli.bench.requests.open_loop import SENTENCES
from vivavoce.tts_engine.errors import Overloaded, VivavoceError

TOKENS_PER_S = 40.0  # of a language model
PLAYER_LEAD_S = 1.0  # of a client that reads as it plays
PAUSE_S = 3.0  # of a client that stops reading
HOLE_S = 0.060
_STREAM_TIMEOUT_S = 120.0
_SENTENCES_PER_STREAM = 4  # about 15 s of speech


class Reading(StrEnum):
    """The ways in which clients read their speech."""

    AT_ONCE = "reads at once"
    PLAYING = "reads as it plays"
    PAUSING = "stops reading for a while"
    LEAVING = "disconnects"


SHARES = {Reading.AT_ONCE: 0.4, Reading.PLAYING: 0.4, Reading.PAUSING: 0.1, Reading.LEAVING: 0.1}


@dataclass(frozen=True, slots=True)
class MixedStreamOptions:
    """The streams of one run."""

    url: str  # http://host:port
    streams_per_s: float
    seconds: float
    seed: int


@dataclass(slots=True)
class MixedStreamResult:
    """The result line of a run."""

    streams: int = 0
    refused: int = 0  # because the server was at capacity
    failures: dict[str, int] = field(default_factory=dict)  # by kind of error
    healthy_streams: int = 0  # whose clients read everything
    holes: int = 0  # of healthy streams
    max_hole_ms: float = 0.0
    faulty: list[str] = field(default_factory=list)  # each healthy stream with a hole, in words
    max_open: int = 0  # streams at once
    cpu_share: float = 0.0  # cores used by this process


class Player:
    """Plays pieces of speech one after the other and counts the silence between them.

    bytes_per_s: of the speech.
    """

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self.max_hole_s = 0.0
        self.holes = 0
        self._plays_until: float | None = None
        self._started_at = time.monotonic()
        self.hole_at_s = 0.0  # the longest; since the stream was opened

    def add_piece(self, size: int) -> None:
        """Queue a piece of ``size`` bytes that has arrived now."""
        now = time.monotonic()
        if self._plays_until is not None:
            hole_s = now - self._plays_until
            self.holes += hole_s > HOLE_S
            if hole_s > self.max_hole_s:
                self.max_hole_s, self.hole_at_s = hole_s, now - self._started_at
        self._plays_until = max(self._plays_until or now, now) + size / self._bytes_per_s

    def lead_s(self) -> float:
        """Seconds of speech that wait to be played."""
        return max(0.0, (self._plays_until or 0.0) - time.monotonic())


class MixedStreams:
    """Clients that start as a Poisson process."""

    def __init__(self, options: MixedStreamOptions) -> None:
        self.result = MixedStreamResult()
        self._options = options
        self._random = random.Random(options.seed)
        self._clients: dict[SpeechApi, ApiClient] = {}
        self._open = 0

    async def run(self) -> None:
        """Start streams for ``seconds`` and wait for their ends."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as streams:
            for api in SpeechApi:
                self._clients[api] = await stack.enter_async_context(open_client(api, self._options.url))
            until = time.monotonic() + self._options.seconds
            while time.monotonic() < until:
                await asyncio.sleep(self._random.expovariate(self._options.streams_per_s))
                reading = self._random.choices(tuple(SHARES), tuple(SHARES.values()))[0]
                streams.create_task(self._run_stream(self._random.choice(tuple(SpeechApi)), reading))

    async def _run_stream(self, api: SpeechApi, reading: Reading) -> None:
        result = self.result
        result.streams += 1
        self._open += 1
        result.max_open = max(result.max_open, self._open)
        try:
            async with asyncio.timeout(_STREAM_TIMEOUT_S):
                await self._read(api, reading)
        except Overloaded:
            result.refused += 1
        except (VivavoceError, OSError, TimeoutError, httpx.HTTPError, WebSocketException) as error:
            kind = f"{reading}: {type(error).__name__}: {error}"[:120]
            result.failures[kind] = result.failures.get(kind, 0) + 1
        finally:
            self._open -= 1

    async def _read(self, api: SpeechApi, reading: Reading) -> None:
        player = Player(api.bytes_per_s)
        async with aclosing(self._clients[api].speak(self._tokens())) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                player.add_piece(len(piece))
                if reading is Reading.PLAYING:
                    await asyncio.sleep(player.lead_s() - PLAYER_LEAD_S)
                elif reading is Reading.PAUSING:
                    await asyncio.sleep(PAUSE_S)
                    reading = Reading.LEAVING if self._random.random() < 0.5 else Reading.PLAYING
                    player = Player(api.bytes_per_s)
                elif reading is Reading.LEAVING and player.lead_s() > 1.0:
                    return
        if reading in (Reading.AT_ONCE, Reading.PLAYING):
            self._count(player, api, reading)

    def _count(self, player: Player, api: SpeechApi, reading: Reading) -> None:
        self.result.healthy_streams += 1
        self.result.holes += player.holes
        self.result.max_hole_ms = max(self.result.max_hole_ms, 1000 * player.max_hole_s)
        if player.holes:
            self.result.faulty.append(
                f"{api} {reading}: {player.holes} holes, the longest {1000 * player.max_hole_s:.0f} ms "
                f"after {player.hole_at_s:.1f} s, at {time.monotonic():.0f} s of the machine's clock"
            )

    async def _tokens(self) -> AsyncIterator[str]:
        text = " ".join(self._random.choices(SENTENCES, k=_SENTENCES_PER_STREAM))
        for word in text.split():
            yield word + " "
            await asyncio.sleep(1 / TOKENS_PER_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="benches.mix.streams", description="API clients")
    parser.add_argument("url")
    parser.add_argument("--streams-per-s", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    streams = MixedStreams(MixedStreamOptions(**vars(parser.parse_args(arguments))))
    start = time.monotonic()
    asyncio.run(streams.run())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    streams.result.cpu_share = (usage.ru_utime + usage.ru_stime) / (time.monotonic() - start)
    print(json.dumps(asdict(streams.result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
