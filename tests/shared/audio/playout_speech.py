"""Speech, slots and packets for tests of ``Playout``."""

import numpy as np
import numpy.typing as npt

from vivavoce.adapters.media_streams.peer_playout import PeerPlayout
from vivavoce.adapters.playback.heard_words import HeardWord
from vivavoce.adapters.playback.playout import Playout
from vivavoce.tts_engine.chunk import AudioChunk, Provenance, Word

START = 1_000.0
PTIME_S = 0.020
SILENCE = bytes(960)  # 20 ms at 24 kHz


def chunk(pcm: bytes, *words: Word, text_stop: int = 0) -> AudioChunk:
    return AudioChunk(
        pcm=pcm,
        index=0,
        samples=(0, len(pcm) // 2),
        text=(0, text_stop),
        words=words,
        provenance=Provenance(speech_ids=None, mel_frames=None, wall_s=0.0, device_s=0.0),
        final=False,
    )


def word(text: str, start_s: float, stop_s: float, text_start: int) -> Word:
    return Word(text, start_s, stop_s, text_start, text_start + len(text))


def speech(milliseconds: float, first: int = 1) -> bytes:
    """24 kHz s16le whose samples are consecutive numbers, so that output can be traced to its input."""
    return np.arange(first, first + round(24 * milliseconds)).astype("<i2").tobytes()


def constant_level(milliseconds: float) -> bytes:
    return np.full(round(24 * milliseconds), 10_000, "<i2").tobytes()


def samples(data: bytes) -> npt.NDArray[np.int16]:
    return np.frombuffer(data, "<i2")


def slot_time(slot: float) -> float:
    """A time just after the packet of a slot is due."""
    return START + slot * PTIME_S + 1e-6


def playout_24_khz(start: float = START) -> Playout:
    """A playout at 24 kHz, which sends its input unchanged."""
    return Playout(start=start, sample_rate=24_000)


def packets_of(playout: Playout, slots: range) -> list[bytes]:
    """The packets of the slots, each requested on time."""
    packets = []
    for slot in slots:
        (packet,) = playout.due(slot_time(slot))
        packets.append(packet)
    return packets


def take_words(playout: Playout | PeerPlayout) -> list[HeardWord]:
    """The words heard since the last call, without marks."""
    return [heard for heard in playout.take_heard_words() if isinstance(heard, HeardWord)]
