"""A prepared data set: shards of arrays in safetensors, and an index in JSON. Nothing in it is unpickled.

    DATASET/index.json            format, the bundle's digest, and one entry for each utterance
    DATASET/shard-00000.safetensors
        0.text_ids (N,) int32     0.speech_ids (S,) int32, 25 a second
        0.mel (2 S, 80) float32   0.embedding (192,) float32, of the utterance
        0.samples (960 S,) int16, 24 kHz; may be absent: only the vocoder is trained with them

A shard is written whole and listed afterwards, so that an interrupted writer loses one shard at most and a
data set is readable at any moment. Without torch.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..config import FRAMES_PER_SPEECH_ID, SAMPLE_RATE, SPEAKER_WIDTH, SPEECH_IDS_PER_S

INDEX_FILE = "index.json"
SAMPLES_PER_SPEECH_ID = SAMPLE_RATE // SPEECH_IDS_PER_S
_FORMAT = 1
_SHARD_BYTES = 64 * 2**20


class DatasetError(ValueError):
    """A data set cannot be used; the message says what was found and what is needed."""


@dataclass(frozen=True, slots=True)
class DatasetAbout:
    """What a data set was prepared with."""

    version: int  # 2 or 3
    digest: str  # of the bundle's tokenizers, speaker encoder and mel
    instruct_ids: tuple[int, ...] = ()  # before every text, in version 3


@dataclass(frozen=True, slots=True)
class UtteranceEntry:
    """An utterance in the index."""

    name: str  # unique in the data set
    text: str
    speaker: str
    shard: int
    row: int  # in the shard
    text_ids: int
    speech_ids: int
    source: str = ""  # the recording's path
    stamp: str = ""  # changes when the recording or its transcript does
    peak_dbfs: float | None = None  # of the recording

    @property
    def frames(self) -> int:
        """Mel frames."""
        return FRAMES_PER_SPEECH_ID * self.speech_ids

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.speech_ids / SPEECH_IDS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class PreparedUtterance:
    """What is stored of an utterance; cut to whole speech ids that have a mel."""

    name: str
    text: str
    speaker: str
    text_ids: tuple[int, ...]
    speech_ids: NDArray[np.int32]
    mel: NDArray[np.float32]  # (T, 80), natural log
    embedding: NDArray[np.float32]  # (192,)
    samples: NDArray[np.int16] | None = None  # 24 kHz
    source: str = ""
    stamp: str = ""
    peak_dbfs: float | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The stored arrays. Mel beyond the ids, and ids without mel, are left out: both must be as long."""
        count = min(len(self.speech_ids), len(self.mel) // FRAMES_PER_SPEECH_ID)
        arrays: dict[str, NDArray[Any]] = {
            "text_ids": np.array(self.text_ids, np.int32),
            "speech_ids": self.speech_ids[:count].astype(np.int32),
            "mel": np.ascontiguousarray(self.mel[: FRAMES_PER_SPEECH_ID * count], np.float32),
            "embedding": self.embedding.astype(np.float32),
        }
        if self.samples is not None:
            arrays["samples"] = self.samples[: SAMPLES_PER_SPEECH_ID * count]
        return arrays


@dataclass(slots=True)
class DatasetIndex:
    """The content of ``index.json``."""

    about: DatasetAbout
    entries: list[UtteranceEntry] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # name: [stamp, why]
    bundle: str = ""  # folder of the bundle
    shards: int = 0

    def write(self, folder: Path) -> None:
        """Write the index, whole or not at all. Raises OSError."""
        content = json.dumps({"format": _FORMAT, **asdict(self)}, indent=0, ensure_ascii=False)
        partial = folder / f"{INDEX_FILE}.partial"
        with partial.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / INDEX_FILE)

    @classmethod
    def read(cls, folder: Path) -> "DatasetIndex":
        """Read the index of a data set. Raises DatasetError."""
        path = folder / INDEX_FILE
        try:
            stored = json.loads(path.read_text("utf-8"))
            if stored["format"] != _FORMAT:
                raise DatasetError(
                    f"{path}: format {stored['format']}; {_FORMAT} is supported, prepare again"
                )
            about = stored["about"] | {"instruct_ids": tuple(stored["about"]["instruct_ids"])}
            entries = [UtteranceEntry(**entry) for entry in stored["entries"]]
            rest = {key: stored[key] for key in ("left_out", "bundle", "shards")}
            return cls(DatasetAbout(**about), entries, **rest)
        except FileNotFoundError as error:
            raise DatasetError(f"{folder}: no data set; run vivavoce finetune prepare first") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(f"{path}: damaged ({error}); prepare again into another folder") from error


class DatasetWriter:
    """Adds utterances to a data set, which is created or continued. Raises DatasetError for another bundle's.

    Call ``flush`` at the end; until then the last utterances are in memory, 64 MiB at most.
    """

    def __init__(self, folder: Path, about: DatasetAbout) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.index = DatasetIndex.read(folder) if (folder / INDEX_FILE).exists() else DatasetIndex(about)
        if self.index.about != about:
            raise DatasetError(
                f"{folder}: prepared with another bundle (its encoders or tokenizer differ); "
                "give the folder of a new data set"
            )
        self._waiting: list[PreparedUtterance] = []
        self._bytes = 0

    def add(self, utterance: PreparedUtterance) -> None:
        """Add an utterance. Raises OSError if a shard cannot be written; those before it are kept."""
        self._waiting.append(utterance)
        self._bytes += sum(array.nbytes for array in utterance.arrays().values())
        if self._bytes >= _SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting as a shard, then the index. Raises OSError."""
        waiting, shard = self._waiting, self.index.shards
        if waiting:
            self._write_shard(shard, waiting)
            self.index.shards += 1
            self.index.entries += [_entry(one, shard, row) for row, one in enumerate(waiting)]
            self._waiting, self._bytes = [], 0
        self.index.write(self._folder)

    def _write_shard(self, shard: int, utterances: Sequence[PreparedUtterance]) -> None:
        arrays = {
            f"{row}.{key}": array
            for row, utterance in enumerate(utterances)
            for key, array in utterance.arrays().items()
        }
        path = self._folder / shard_name(shard)
        partial = path.with_suffix(".partial")
        try:
            save_file(arrays, partial)
            partial.replace(path)
        except SafetensorError as error:
            raise OSError(f"{path}: {error}; is there room on the disk?") from error
        finally:
            partial.unlink(missing_ok=True)


def _entry(utterance: PreparedUtterance, shard: int, row: int) -> UtteranceEntry:
    ids = len(utterance.arrays()["speech_ids"])
    about = (utterance.name, utterance.text, utterance.speaker, shard, row, len(utterance.text_ids), ids)
    return UtteranceEntry(*about, utterance.source, utterance.stamp, utterance.peak_dbfs)


def shard_name(shard: int) -> str:
    """File name of a shard."""
    return f"shard-{shard:05}.safetensors"


class TrainingDataset:
    """A data set for reading. Arrays are read when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = DatasetIndex.read(folder)
        self.entries: Sequence[UtteranceEntry] = self.index.entries
        if not self.entries:
            raise DatasetError(f"{folder}: no utterance was kept; see report.html")
        self._shards: dict[int, Any] = {}
        self._means = self._mean_embeddings()

    @property
    def about(self) -> DatasetAbout:
        """What it was prepared with."""
        return self.index.about

    def arrays(self, number: int) -> Mapping[str, NDArray[Any]]:
        """The arrays of an utterance. Raises DatasetError for a damaged shard."""
        entry = self.entries[number]
        try:
            if entry.shard not in self._shards:
                path = self.folder / shard_name(entry.shard)
                self._shards[entry.shard] = safe_open(path, framework="np")
            shard = self._shards[entry.shard]
            names = ("text_ids", "speech_ids", "mel", "embedding")
            return {name: shard.get_tensor(f"{entry.row}.{name}") for name in names}
        except (OSError, SafetensorError) as error:
            raise DatasetError(f"{shard_name(entry.shard)}: {error}; prepare again") from error

    def samples(self, number: int) -> NDArray[np.int16]:
        """The samples of an utterance, 24 kHz. Raises DatasetError if it has none."""
        entry = self.entries[number]
        self.arrays(number)
        try:
            return self._shards[entry.shard].get_tensor(f"{entry.row}.samples")  # type: ignore[no-any-return]
        except SafetensorError as error:
            raise DatasetError(f"{entry.name}: no samples are stored") from error

    def speaker_embedding(self, speaker: str) -> NDArray[np.float32]:
        """The mean embedding of a speaker's utterances, (192,)."""
        return self._means[speaker]

    def _mean_embeddings(self) -> dict[str, NDArray[np.float32]]:
        sums: dict[str, NDArray[np.float64]] = {}
        for number, entry in enumerate(self.entries):
            embedding = self.arrays(number)["embedding"].astype(np.float64)
            before = sums.setdefault(entry.speaker, np.zeros(SPEAKER_WIDTH))
            sums[entry.speaker] = before + embedding / max(float(np.linalg.norm(embedding)), 1e-12)
        return {
            speaker: (total / max(float(np.linalg.norm(total)), 1e-12)).astype(np.float32)
            for speaker, total in sums.items()
        }


def split_held_out(entries: Sequence[UtteranceEntry], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Numbers of the utterances to train with, and of those held out: at least 1, chosen by their names.

    An utterance stays on its side when others are added. Raises DatasetError with a single utterance.
    """
    if len(entries) < 2:
        raise DatasetError("one utterance is not enough: one is held out for validation")
    places = [_place(seed, entry.name) for entry in entries]
    limit = max(share, min(places))
    held_out = [number for number, place in enumerate(places) if place <= limit]
    if len(held_out) == len(entries):
        held_out = held_out[:1]
    kept = set(held_out)
    return [number for number in range(len(entries)) if number not in kept], held_out


def _place(seed: int, name: str) -> float:
    return float(np.random.default_rng([seed, *name.encode()]).random())
