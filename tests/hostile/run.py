"""An attack on all wires at once beside healthy peers, and what it leaves."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import httpx

from hostile.attacks import Attack
from hostile.live_streams import speak_on_a_call, speak_over_http
from hostile.offers import browser_offers
from hostile.server import TRACEBACK, attacked_server

# Peers at once on each wire, and its share of the messages.
_WIRES: Final = {
    "audiosocket": (2, 0.27),
    "carriers": (3, 0.12),
    "dashscope": (6, 0.13),
    "stream": (6, 0.15),
    "clients": (5, 0.12),
    "calls": (4, 0.12),
    "tcp": (2, 0.02),
    "speech": (3, 0.01),
    "offer": (2, 0.005),
    "http": (2, 0.015),
    "strangers": (2, 0.02),
    "rtp": (1, 0.01),
    "crossing": (2, 0.01),
}
SETTLE_S: Final = 20.0  # in which all that is left of an attack ends; an offer's call takes 8 s


@dataclass(frozen=True, slots=True)
class AttackReport:
    """What one run has seen."""

    sent: dict[str, int]  # messages by wire
    answers: dict[int, int]  # HTTP statuses
    findings: list[str]  # faults of the server; empty if it withstood
    live_utterances: int  # heard on the live call
    live_requests: int  # answered beside the attack
    memory_mb: list[dict[str, float]]  # before the attack, and after each round when all had left
    open_files: list[int]  # likewise
    log_lines: int
    tracebacks: int

    @property
    def messages(self) -> int:
        """Messages of all wires."""
        return sum(self.sent.values())


async def attack(
    messages: int,
    seed: int,
    *,
    rounds: int = 1,
    settle_s: float = SETTLE_S,
    tell: Callable[[str], None] = lambda line: None,
) -> AttackReport:
    """Attack a new server with at least so many messages in so many rounds.

    After each round all peers leave; memory is read settle_s later. ``tell`` gets a line for it, and one for
    each finding. Raises RuntimeError if the server does not end cleanly.
    """
    with tempfile.TemporaryDirectory(prefix="vivavoce-hostile-") as folder:
        async with attacked_server(Path(folder)) as server:
            limits = httpx.Limits(max_connections=50)
            base = f"http://{server.url}"
            async with httpx.AsyncClient(base_url=base, limits=limits, trust_env=False, timeout=60) as client:
                hostile = Attack(server, client, await browser_offers(), tell=tell)
                memory, files, live = [server.memory_mb()], [server.open_files()], [0, 0]
                for number in range(1, rounds + 1):
                    heard = await _round(hostile, messages * number // rounds, seed * 1_000 + number)
                    live = [sum(pair) for pair in zip(live, heard, strict=True)]
                    await asyncio.sleep(settle_s)
                    memory.append(server.memory_mb())
                    files.append(server.open_files())
                    measured = (
                        f"memory {memory[-1]}, {files[-1]} files, {server.count_tracebacks()} tracebacks"
                    )
                    tell(f"{hostile.sent.total()} messages, {measured}")
            return _report(hostile, (live[0], live[1]), memory, files)


async def _round(hostile: Attack, messages: int, seed: int) -> list[int]:
    """Attack beside healthy peers; return the utterances heard on the call and the requests answered."""
    live = [
        asyncio.create_task(speak_on_a_call(hostile.server, hostile.report)),
        asyncio.create_task(speak_over_http(hostile.client, hostile.report)),
    ]
    await asyncio.sleep(2.0)  # until both speak
    await hostile.corpus()
    await _send(hostile, messages, seed)
    for task in live:
        task.cancel()
    return await asyncio.gather(*live)


def _report(
    hostile: Attack, live: tuple[int, int], memory: list[dict[str, float]], files: list[int]
) -> AttackReport:
    log = hostile.server.log_lines()
    tracebacks = [index for index, line in enumerate(log) if TRACEBACK in line]
    for index in tracebacks[:3]:
        hostile.report("in the log:\n" + "\n".join(log[index - 1 : index + 40]))
    return AttackReport(
        dict(hostile.sent), dict(hostile.answers), hostile.findings, *live,
        memory, files, len(log), len(tracebacks),
    )  # fmt: skip


async def _send(hostile: Attack, messages: int, seed: int) -> None:
    """Let the peers of every wire send until its share of so many messages has been sent."""

    async def send_share(wire: str, number: int, share: float) -> None:
        random = Random(f"{seed} {wire} {number}")
        while hostile.sent[wire] < share * messages:
            await hostile.wires()[wire](random)

    async with asyncio.TaskGroup() as tasks:
        for wire, (peers, share) in _WIRES.items():
            for number in range(peers):
                tasks.create_task(send_share(wire, number, share))
