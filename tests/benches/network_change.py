"""A browser call whose network changes as it speaks: ``PYTHONPATH=tests python -m benches network-change``.

aiortc is the client. At a random moment of forty words it hears nothing more of its connection and offers
another one with ``restart_pc``, as Pipecat's client does when Wi-Fi gives way to LTE. Each word of the
stand-in voice is a tone of its own, so what was heard tells the words. The silence is the client's, from its
last sound over the old connection to the first over the new one. A client that needs time to notice that its
network is gone adds that time, and its words.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shared.audio.tones import pitch_of
from shared.browser.calling_browser import CallingBrowser
from shared.calls.call_server import call_server, send_utterance, until
from shared.engine.standin_backend import AMPLITUDE, WORD_S, StandInBackend
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cli.phones.received_audio import AUDIBLE_LEVEL, ReceivedPacket
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult

WORDS: Final = 40
MAX_SILENCE_S: Final = 1.0
CLAUSE_WORDS: Final = 10
_LOWEST_HZ, _STEP_HZ = 400, 75  # of the words' tones, within what Opus carries well
_WINDOW_S: Final = 0.04
_HEARD_SHARE: Final = 0.5  # of a word's windows that it needs
_CHANGE_S: Final = (1.0, 5.0)  # after the first sound
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class NetworkChange:
    """What a change cost the listener."""

    silence_s: float
    lost: int  # words
    repeated: int  # words, in part or whole


class NumberedTones(StandInBackend):
    """A stand-in voice whose tones tell the places of words in their utterance."""

    def __init__(self) -> None:
        super().__init__()
        self._spoken: Counter[int] = Counter()  # words, by slot

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one word of each turn's slot."""
        for turn in turns:
            self._open[turn.slot].pitch_hz = frequency_of(self._spoken[turn.slot] % WORDS)
            self._spoken[turn.slot] += 1
        return super().step(worker, turns)


def frequency_of(word: int) -> int:
    """The tone of a word, Hz."""
    return _LOWEST_HZ + _STEP_HZ * word


def text() -> str:
    """Forty words in clauses of ten."""
    clauses = (" ".join(["word"] * CLAUSE_WORDS) for _ in range(WORDS // CLAUSE_WORDS))
    return ", ".join(clauses) + "."


async def change_network(after_s: float) -> NetworkChange:
    """One call with one change, so long after its first sound."""
    async with (
        asyncio.timeout(_TIMEOUT_S),
        call_server(backend=NumberedTones()) as server,
        CallingBrowser.call(server.gateway.addresses.http) as browser,
        server.socket(browser.call_id) as socket,
    ):
        await send_utterance(socket, text())
        while not any(map(_is_audible, browser.packets)):
            await asyncio.sleep(0.005)
        await asyncio.sleep(after_s)
        browser.lose()
        heard_before = len(browser.packets)
        await browser.connect()
        await until(socket, "speech_finished")
        await asyncio.sleep(0.3)  # for what is on its way
        return measured(browser.packets[:heard_before], browser.packets[heard_before:])


def measured(before: Sequence[ReceivedPacket], after: Sequence[ReceivedPacket]) -> NetworkChange:
    """What was heard over the old connection, and over the new one."""
    last = max(packet.arrived_at + packet.seconds for packet in before if _is_audible(packet))
    first = min(packet.arrived_at for packet in after if _is_audible(packet))
    windows = Counter(_words_in(before)) + Counter(_words_in(after))
    expected = WORD_S / _WINDOW_S
    lost = sum(windows[word] < _HEARD_SHARE * expected for word in range(WORDS))
    both = set(_words_in(before)) & set(_words_in(after))
    return NetworkChange(first - last, lost, len(both))


def _is_audible(packet: ReceivedPacket) -> bool:
    return bool(np.abs(np.frombuffer(packet.pcm, "<i2").astype(int)).max() > 10 * AUDIBLE_LEVEL)


def _words_in(packets: Iterable[ReceivedPacket]) -> list[int]:
    """The number of the word in each window that has one tone."""
    joined = [(packet.sample_rate, packet.pcm) for packet in packets]
    if not joined:
        return []
    rate, pcm = joined[0][0], b"".join(part for _, part in joined)
    size = 2 * round(_WINDOW_S * rate)
    found = []
    for start in range(0, len(pcm) - size, size):
        window = pcm[start : start + size]
        samples = np.frombuffer(window, "<i2").astype(np.float64)
        word = round((pitch_of(window, rate) - _LOWEST_HZ) / _STEP_HZ)
        if np.sqrt(np.mean(samples**2)) > 0.4 * AMPLITUDE * 32_768 / np.sqrt(2) and 0 <= word < WORDS:
            found.append(word)
    return found


def measure(changes: int, seed: int = 0) -> BenchReport:
    """Change the network ``changes`` times, each time on a call of its own."""
    chance = random.Random(seed)
    found = [asyncio.run(change_network(chance.uniform(*_CHANGE_S))) for _ in range(changes)]
    silence = np.array([change.silence_s for change in found])
    return BenchReport(
        "network-change",
        (
            BenchFigure("silence, p50", float(np.median(silence)), "s"),
            BenchFigure("silence, longest", float(silence.max()), "s", at_most=MAX_SILENCE_S),
            BenchFigure(
                "words lost, most of a change", max(one.lost for one in found), "", at_most=CLAUSE_WORDS
            ),
            BenchFigure("words lost, of all", sum(one.lost for one in found), ""),
            BenchFigure(
                "words repeated, most of a change",
                max(one.repeated for one in found),
                "",
                at_most=CLAUSE_WORDS,
            ),
        ),
        {"changes": changes, "words": WORDS},
    )
