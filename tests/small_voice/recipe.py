"""The recipe of the small bundle: its parts, each kept in a file, and the two processes that make them.

::

    recordings -> speech ids -> language model, flow, speech tokenizer      two processes of one thread each
             \\-> vocoder
"""

import multiprocessing
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from small_voice import bundle, corpus, flow, language_model, vocoder, words
from small_voice.optimise import Schedule, Task, optimise
from small_voice.sizes import LANGUAGE_MODEL
from small_voice.sounds import Codebook
from small_voice.speech_tokenizer import SpeechTokenizer, SpeechTokenizerTask, codebook_of
from small_voice.teacher import record, recordings
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle, speech_tokenizer_name
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID, QWEN_FOLDER
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.cosyvoice.training.bundle_parts import PartOptions, load_part
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2

SEED = 1
SENTENCES = 20_000  # 18.5 h of speech
PROCESSES = 2
_IDS_FILE, _CODEBOOK = "speech_ids.npz", "codebook"
_TOKENIZER_FILE = speech_tokenizer_name(LANGUAGE_MODEL.version)
_CODEBOOK_FILES = 12  # of 250 recordings: what the part needs of them
_TOKENIZER_FILES = 6
_VOCODER_FILES = 12
_SCHEDULES = {
    "tokenizer": Schedule(steps=1_600, rate=2e-3, clip=5.0),
    "vocoder": Schedule(steps=3_500, rate=2e-3, betas=(0.8, 0.99), decay=0.0, clip=5.0),
    "flow": Schedule(steps=6_500, rate=1e-3, bf16=True),
    "lm": Schedule(steps=5_000, rate=1.5e-3, bf16=True),
}


class Workplace:
    """The folder of a run. steps: of each network, in place of the recipe's own."""

    def __init__(self, folder: Path, steps: int | None = None) -> None:
        self.folder, self._steps = folder, steps
        self.recordings = folder / "recordings"
        self.bundle = folder / "bundle"
        self.start = folder / "start"  # the bundle that training goes on from, if there is one

    def files(self, count: int | None = None) -> list[Path]:
        """The files of recordings."""
        names = [f"{index:03}.npz" for index in range(1_000)]
        return [file for name in names if (file := self.recordings / name).exists()][:count]

    def checkpoint(self, part: str) -> Path:
        """The checkpoint of a part."""
        return self.folder / f"{part}.pt"

    def train(self, part: str, task: Task) -> dict[str, torch.Tensor]:
        """Train a part on its schedule; its averaged weights."""
        schedule = _SCHEDULES[part]
        rate = schedule.rate / 2 if self.start.exists() else schedule.rate
        schedule = replace(schedule, steps=self._steps or schedule.steps, rate=rate)
        return optimise(task, schedule, self.checkpoint(part), SEED)

    def started_network(self, part: str) -> nn.Module | None:
        """The network of a part as the bundle has it that training goes on from; None without one."""
        if not self.start.exists():
            return None
        network = load_part(open_bundle(self.start), PartOptions(part, dropout=0.0)).network
        return network["vocoder"] if isinstance(network, nn.ModuleDict) else network  # without discriminators


def begin_from(place: Workplace, start: Path) -> None:
    """Have a run go on from a packed bundle: take its tokenizers, settings and speaker, and its weights."""
    if not place.start.exists():
        shutil.copytree(open_bundle(start).folder, place.start)
        shutil.copytree(place.start, place.bundle, ignore=shutil.ignore_patterns("*.safetensors"))


def write_speech_ids(place: Workplace) -> None:
    """Write the codebook, and the ids by which the teacher names its recordings."""
    if place.start.exists():
        codebook = codebook_of(onnx.load(place.start / _TOKENIZER_FILE))
    else:
        codebook = Codebook.of(chain.from_iterable(map(recordings, place.files(_CODEBOOK_FILES))))
    arrays: dict[str, Any] = {_CODEBOOK: codebook.triples}
    for recorded in place.files():
        rows = [codebook.ids(one) for one in recordings(recorded)]
        arrays[recorded.stem] = np.concatenate(rows).astype(np.int16)
        arrays[f"{recorded.stem}.lengths"] = np.array([len(row) for row in rows])
    np.savez(place.folder / _IDS_FILE, **arrays)


def speech_ids(place: Workplace, files: int | None = None) -> list[np.ndarray]:
    """The speech ids of the recordings."""
    with np.load(place.folder / _IDS_FILE) as kept:
        return [
            row.astype(np.int64)
            for file in place.files(files)
            for row in np.split(kept[file.stem], np.cumsum(kept[f"{file.stem}.lengths"])[:-1])
        ]


def train_tokenizer(place: Workplace) -> None:
    """Train the speech tokenizer and write it."""
    torch.manual_seed(SEED)
    with np.load(place.folder / _IDS_FILE) as kept:
        network = SpeechTokenizer(Codebook(kept[_CODEBOOK]))
    whisper = corpus.load_whisper(place.files(_TOKENIZER_FILES))
    task = SpeechTokenizerTask(network, whisper, speech_ids(place, _TOKENIZER_FILES))
    network.load_state_dict(place.train("tokenizer", task), strict=False)
    bundle.write_speech_tokenizer(place.bundle, network)


def train_language_model(place: Workplace) -> None:
    """Train the language model on all recordings and write it."""
    tokenizer = TextTokenizer.load(place.bundle / QWEN_FOLDER, LANGUAGE_MODEL.version)
    sentences = []
    said = (one for file in place.files() for one in recordings(file))
    for one, ids in zip(said, speech_ids(place), strict=True):
        text, of_words = words.text_ids(tokenizer, one.text)
        spoken = one.words[FRAMES_PER_SPEECH_ID // 2 :: FRAMES_PER_SPEECH_ID]
        sentence = language_model.Sentence(
            tuple(text), tuple(of_words), tuple(ids.tolist()), tuple(spoken.tolist())
        )
        sentences.append(sentence)
    network = place.started_network("lm") or language_model.new_network(SEED)
    assert isinstance(network, SpeechLm)
    weights = place.train("lm", language_model.LanguageModelTask(network, sentences))
    bundle.write_language_model(place.bundle, weights)


def train_flow(place: Workplace) -> None:
    """Train the flow on all recordings and write it."""
    mels = [one.mel for one in corpus.load(place.files())]
    network = place.started_network("flow") or flow.new_network(SEED, mels)
    assert isinstance(network, Flow)
    embedding = bundle.write_speaker(place.bundle)
    weights = place.train("flow", flow.FlowTask(network, speech_ids(place), mels, embedding))
    bundle.write_flow(place.bundle, weights)


def train_vocoder(place: Workplace) -> None:
    """Train the vocoder and write it."""
    utterances = corpus.load(place.files(_VOCODER_FILES))
    network = place.started_network("vocoder") or vocoder.new_network(SEED)
    assert isinstance(network, HiftV2)
    task = vocoder.VocoderTask(
        network,
        [one.mel for one in utterances],
        [one.recording for one in utterances],
    )
    weights = place.train("vocoder", task)
    bundle.write_vocoder(place.bundle, weights)


def write_settings(place: Workplace) -> None:
    """Write the text tokenizer, made of all texts, and the settings."""
    texts = [one.text for file in place.files() for one in recordings(file)]
    words.write_tokenizer(texts, place.bundle / QWEN_FOLDER)
    bundle.write_settings(place.bundle)
    bundle.write_speaker(place.bundle)


PARTS: dict[str, tuple[Callable[[Workplace], None], str]] = {
    "settings": (write_settings, "cosyvoice2.yaml"),
    "ids": (write_speech_ids, f"../{_IDS_FILE}"),
    "tokenizer": (train_tokenizer, _TOKENIZER_FILE),
    "vocoder": (train_vocoder, "hift.safetensors"),
    "flow": (train_flow, "flow.safetensors"),
    "lm": (train_language_model, "llm.safetensors"),
}


def make_part(folder: Path, part: str, steps: int | None = None) -> None:
    """Make a part of the bundle, unless its file is there. steps: as of ``Workplace``."""
    place = Workplace(folder, steps)
    make, file = PARTS[part]
    if not (place.bundle / file).exists():
        make(place)


def make_all(folder: Path, steps: int | None = None, sentences: int = SENTENCES) -> None:
    """Make the recordings and all parts, two processes at a time. steps: as of ``Workplace``."""
    place = Workplace(folder)
    record(place.recordings, sentences, SEED, PROCESSES)
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for part in ("settings", "ids"):
            pool.submit(make_part, folder, part).result()
        networks = ("lm", "flow", "vocoder", "tokenizer")
        parts = [pool.submit(make_part, folder, part, steps) for part in networks]
        for done in parts:
            done.result()
