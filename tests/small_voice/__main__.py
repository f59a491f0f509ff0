"""Makes the small bundle from nothing: ``python -m small_voice OUT``, with PYTHONPATH=tests.

Parts that are done are kept in OUT and not made again; a part that was ended goes on from its last
checkpoint. With ``--from`` a packed bundle, its tokenizers are kept and its networks are trained further.

    recordings -> speech ids -> language model, flow, speech tokenizer      two processes of one thread each
             \\-> vocoder
"""

import argparse
import multiprocessing
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from small_voice import bundle, corpus, flow, language_model, listen, vocoder, words, world
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
from vivavoce.models.cosyvoice.training.bundle_parts import WEIGHT_FILES, PartOptions, load_part
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2

SEED, UNSEEN_SEED = 1, 2
_FIGURES = "figures.md"
_IDS_FILE, _CODEBOOK = "speech_ids.npz", "codebook"
_TOKENIZER_FILE = speech_tokenizer_name(LANGUAGE_MODEL.version)
SENTENCES = 20_000  # 18.5 h of speech
PROCESSES = 2
_CODEBOOK_FILES = 12  # of 250 recordings: what the part needs of them
_TOKENIZER_FILES = 6
_VOCODER_FILES = 12
_SCHEDULES = {
    "tokenizer": Schedule(steps=1_600, rate=2e-3, clip=5.0),
    "vocoder": Schedule(steps=5_000, rate=2e-3, betas=(0.8, 0.99), decay=0.0, clip=5.0),
    "flow": Schedule(steps=12_000, rate=1e-3, bf16=True),
    "lm": Schedule(steps=10_000, rate=1.5e-3, bf16=True),
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


_PARTS: dict[str, tuple[Callable[[Workplace], None], str]] = {
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
    make, file = _PARTS[part]
    if not (place.bundle / file).exists():
        make(place)


def make_all(folder: Path, steps: int | None = None) -> None:
    """Make the recordings and all parts, two processes at a time. steps: as of ``Workplace``."""
    place = Workplace(folder)
    record(place.recordings, SENTENCES, SEED, PROCESSES)
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for part in ("settings", "ids"):
            pool.submit(make_part, folder, part).result()
        parts = [pool.submit(make_part, folder, part, steps) for part in ("lm", "flow", "vocoder")]
        parts.append(pool.submit(make_part, folder, "tokenizer"))
        for done in parts:
            done.result()


_WRITERS = {"vocoder": bundle.write_vocoder, "flow": bundle.write_flow, "lm": bundle.write_language_model}


def write_unfinished(folder: Path, target: Path) -> list[bundle.PackedPart]:
    """Write a bundle of what the checkpoints have so far into ``target``; returns how far each part is."""
    place, parts = Workplace(folder), []
    shutil.copytree(place.bundle, target, dirs_exist_ok=True)
    for part, write in _WRITERS.items():
        if not place.checkpoint(part).exists() and place.start.exists():
            shutil.copy2((place.start / WEIGHT_FILES[part]).with_suffix(".safetensors"), target)
            continue
        saved = torch.load(place.checkpoint(part), weights_only=True)
        parts.append(bundle.PackedPart(part, saved["step"], saved["steps"], place.start.exists()))
        write(target, saved["average"])
    return parts


def pack(folder: Path, target: Path) -> None:
    """Write the bundle of a run, finished or not, as a folder to give away."""
    figures = folder / _FIGURES
    with tempfile.TemporaryDirectory() as made:
        parts = write_unfinished(folder, Path(made))
        size = bundle.pack(Path(made), target, parts, figures.read_text("utf-8") if figures.exists() else "")
    for part in parts:
        print(f"{part.name}: step {part.step} of {part.steps}")
    missing = "" if figures.exists() else ", without figures: --listen first"
    print(f"{target}: {size / 1e6:.1f} MB{missing}")


def hear(folder: Path, count: int, of_ways: bool = False, whisper: Path | None = None) -> None:
    """Print the words wrong in unseen sentences, part by part, and keep them for the card of the bundle.

    of_ways: of each way to speak the bundle instead. whisper: as of ``listen.words_wrong``.
    """
    heard = folder / "unfinished"
    for one in write_unfinished(folder, heard):
        print(f"{one.name}: step {one.step} of {one.steps}")
    sentences = listen.unseen_sentences(count, UNSEEN_SEED, islice(world.sentences(SEED), SENTENCES))
    head = [f"Words wrong in {count} unseen sentences:", "", "| speech of | wide band | u-law |"]
    rows = [*head, "|---|---|---|"]
    speech_of = listen.speech_of_ways if of_ways else listen.speech_of_parts
    for name, speech in speech_of(heard, sentences):
        figures = []
        for channel_name, channel in listen.CHANNELS.items():
            wrong = listen.words_wrong(sentences, speech, channel, print, whisper)
            figures.append(f"{wrong:.1f} %")
            print(f"{name:14} {channel_name:10} {wrong:5.1f} % words wrong of {count} sentences", flush=True)
        rows.append(f"| {name} | {' | '.join(figures)} |")
    if not of_ways:
        (folder / _FIGURES).write_text("\n".join([*rows, ""]), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="small_voice", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the run; the bundle is OUT/bundle")
    parser.add_argument(
        "--from", dest="start", type=Path, metavar="BUNDLE", help="train a packed bundle further"
    )
    parser.add_argument("--steps", type=int, help="of each network, in place of the recipe's own")
    parser.add_argument("--part", choices=_PARTS, help="make this part only, of what OUT has")
    parser.add_argument("--listen", type=int, metavar="N", help="print the words wrong in N unseen sentences")
    parser.add_argument(
        "--ways", action="store_true", help="of the ways to speak the bundle, not of its parts"
    )
    parser.add_argument("--whisper", type=Path, metavar="DIR", help="a Whisper model  [default: tiny.en]")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write the bundle to give away")
    arguments = parser.parse_args()
    if arguments.start:
        begin_from(Workplace(arguments.out), arguments.start)
    if arguments.pack:
        pack(arguments.out, arguments.pack)
    elif arguments.listen:
        hear(arguments.out, arguments.listen, arguments.ways, arguments.whisper)
    elif arguments.part:
        make_part(arguments.out, arguments.part, arguments.steps)
    else:
        make_all(arguments.out, arguments.steps)


if __name__ == "__main__":
    main()
