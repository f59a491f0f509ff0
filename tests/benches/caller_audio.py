"""Bench of the caller's audio over RTP: words that a recogniser gets wrong, through a bad and a good network.

The sixty sentences of ``word_errors``, spoken by the packaged voice, are a caller. They are sent as µ-law in
packets of 20 ms; some are lost, the others delayed at random. The RTP connection of a call receives them in
virtual time: its jitter buffer puts them in order and conceals what is missing. Whisper tiny.en
transcribes what a program on the call would get. The good network loses and delays nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benches.transcript_scoring import MistakeKind, score
from benches.word_errors import load_recogniser, sentences, synthesize_all, transcribe
from shared.calls.rtp_stream import PEER, RtpSource, through_network
from vivavoce.adapters.audio.formats.g711 import ulaw_encode
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.rtp.codec import CODECS
from vivavoce.adapters.rtp.connection import RtpConnection, RtpOptions
from vivavoce.adapters.rtp.packet import encode_packet
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

MAX_POINTS_ABOVE = 2.0
_PTIME_S = 0.02
_PACKET_BYTES = 320
_RATE, _RECOGNISER_RATE = 8_000, 16_000  # Hz


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """What a network does to packets."""

    loss: float  # share of the packets
    jitter_s: float  # greatest delay, uniformly distributed


@dataclass(slots=True)
class HeardWords:
    """Counts over the sentences heard through one network."""

    words: int = 0
    wrong: int = 0
    packets: int = 0
    concealed: int = 0
    late: int = 0  # arrived after they were concealed

    @property
    def wrong_percent(self) -> float:
        """Share of the words."""
        return 100 * self.wrong / max(1, self.words)


def measure(
    limit: int | None, network: NetworkConditions, show: Callable[[str], None] | None = None
) -> BenchReport:
    """Transcribe the first ``limit`` sentences (None: all) through a good network and through ``network``.

    ``show``: called with a line for each mistake. Raises MissingExtra without the [stt] extra.
    """
    console = Console(stderr=True)
    model = load_recogniser()
    chosen = sentences()[:limit]
    with console.status("bench caller-audio: synthesising"):
        spoken = asyncio.run(synthesize_all([sentence.text for sentence in chosen], "default", None))
    good, bad = HeardWords(), HeardWords()
    pairs = list(zip(chosen, spoken, strict=True))
    for seed, (sentence, speech) in enumerate(
        track(pairs, "bench caller-audio", console=console, transient=True)
    ):
        pcm = to_telephone(speech.samples)
        for heard, conditions in ((good, NetworkConditions(0.0, 0.0)), (bad, network)):
            connection = RtpConnection(RtpOptions(CODECS["ulaw"]))
            text = _transcribe(model, receive(connection, pcm, conditions, seed))
            result = score(sentence.reference, text, sentence.names)
            heard.words += result.words
            heard.wrong += result.count_wrong(MistakeKind.WORD)
            heard.packets += connection.counters.received + connection.counters.lost
            heard.concealed += connection.counters.lost
            heard.late += connection.counters.late
            if show is not None and result.mistakes:
                show(f"[{conditions.loss:.0%} lost] {sentence.text}\n    heard: {text}")
    return BenchReport("caller-audio", tuple(_figures(good, bad)), _settings(len(chosen), network))


def _figures(good: HeardWords, bad: HeardWords) -> list[BenchFigure]:
    above = bad.wrong_percent - good.wrong_percent
    concealed = 100 * bad.concealed / max(1, bad.packets)
    return [
        BenchFigure(f"words wrong of {good.words}, good network", good.wrong_percent, "%"),
        BenchFigure(f"words wrong of {bad.words}, bad network", bad.wrong_percent, "%"),
        BenchFigure("words wrong above those of the good network", above, "points", MAX_POINTS_ABOVE),
        BenchFigure(f"packets concealed of {bad.packets}, bad network", concealed, "%"),
        BenchFigure("of these, packets that came later", bad.late, ""),
    ]


def _settings(count: int, network: NetworkConditions) -> dict[str, str | int | float]:
    return {
        "sentences": count,
        "loss_percent": 100 * network.loss,
        "jitter_ms": 1000 * network.jitter_s,
        "recogniser": "Whisper tiny.en",
    }


def to_telephone(samples: NDArray[np.float32]) -> bytes:
    """Return s16le at 8 kHz of 24 kHz samples, in whole packets."""
    down = Downsampler()
    pcm = np.clip(np.rint(samples * 32_767), -32_768, 32_767).astype("<i2").tobytes()
    narrow = down.push(pcm) + down.drain()
    return narrow + bytes(-len(narrow) % _PACKET_BYTES)


def receive(connection: RtpConnection, pcm: bytes, network: NetworkConditions, seed: int) -> bytes:
    """Return what a connection makes of ``pcm``, s16le at 8 kHz, that was sent through a network."""
    source = RtpSource()
    packets = [
        source.next(ulaw_encode(pcm[start : start + _PACKET_BYTES]))
        for start in range(0, len(pcm), _PACKET_BYTES)
    ]
    arrivals = through_network(packets, seed, loss=network.loss, jitter_s=network.jitter_s)
    heard = []
    for tick in range(len(packets) + 25):  # half a second more
        now = tick * _PTIME_S
        while arrivals and arrivals[0][0] <= now:
            arrived, packet = arrivals.pop(0)
            connection.receive(encode_packet(packet), PEER, arrived)
        heard.append(connection.audio_due(now))
    return b"".join(heard)


def _transcribe(model: Any, pcm: bytes) -> str:
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32_768)
    wide = np.asarray(soxr.resample(samples, _RATE, _RECOGNISER_RATE), np.float32)
    return transcribe(model, wide).text
