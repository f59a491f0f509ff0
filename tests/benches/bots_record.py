"""Parts of the Pipecat bench, and the records that its bot process writes and the bench reads."""

import asyncio
import gc
import json
import os
import threading
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class BotScript(StrEnum):
    """Parts of the bench, by what the bots do."""

    FIRST_AUDIO = "first-audio"  # no calls: from the token to the first audio frame
    PIPER = "piper"  # the same with Pipecat's Piper service
    BARGE_IN = "barge-in"  # interrupt each call once, then hang up
    SPEAKING = "speaking"  # speak without a pause on every call
    COMING_AND_GOING = "coming-and-going"  # short calls, which the phones hang up


@dataclass(slots=True)
class BotCallRecord:
    """Measurements of one call."""

    call_id: str
    text: str = ""  # of every reply
    words_remembered: int = 0  # in the language model's context
    stale_frames: int = 0  # audio frames of an interrupted reply, pushed after the interruption
    underruns: int = 0
    late: int = 0  # packets
    skipped: int = 0  # packets
    packets: int = 0  # sent
    played_s: float = 0.0  # speech sent by the transport


@dataclass(frozen=True, slots=True)
class BotProcessState:
    """Resources of this process."""

    tasks: int
    descriptors: int
    threads: int
    resident_mb: float

    @classmethod
    def now(cls) -> "BotProcessState":
        """Count after a garbage collection."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return cls(
            tasks=len(asyncio.all_tasks()),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            resident_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        )


@dataclass(slots=True)
class BotsRecord:
    """Everything that one process measured."""

    first_audio_s: list[float] = field(default_factory=list)
    calls: list[BotCallRecord] = field(default_factory=list)
    states: list[BotProcessState] = field(default_factory=list)
    # By text: start (s), stop (s) and number of each word.
    words: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)


def read_bots_record(path: Path) -> BotsRecord:
    """Read the record of a process."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return BotsRecord(
        record["first_audio_s"],
        [BotCallRecord(**call_record) for call_record in record["calls"]],
        [BotProcessState(**state) for state in record["states"]],
        {
            text: [(start, stop, number) for start, stop, number in words]
            for text, words in record["words"].items()
        },
    )


def write_bots_record(record: BotsRecord, path: Path) -> None:
    """Write the record for ``read_bots_record``."""
    path.write_text(json.dumps(asdict(record)), encoding="utf-8")
