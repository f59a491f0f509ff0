"""Streamed against at once: words wrong in unseen sentences of a packed bundle, by band and by recogniser.

    PYTHONPATH=tests python -m small_voice.two_ways BUNDLE --sentences 200 --keep FILE.jsonl

At once, the flow renders a sentence in one chunk whose frames attend to all others. Both ways speak by torch
on the processor, with the same seed and so of the same speech ids. Whisper tiny.en and Whisper base write
down what they hear; of the kindest, a word is wrong if neither hears it. The interval of a difference is of
the same sentences drawn anew, with all of their words (bootstrap). A comparison that is ended goes on when it
is given again with the same file.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benches.transcript_scoring import MistakeKind, score
from benches.two_recognisers import load_base, wrong_for_all
from benches.word_errors import load_recogniser, transcribe
from small_voice import listen, world
from small_voice.recipe import SEED, SENTENCES
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.finetuning.evaluation import AT_ONCE_POLICY

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

UNSEEN_SEED = 2
STREAMED, AT_ONCE = "streamed", "at once"
JUDGES = ("tiny.en", "base", "kindest")
_DRAWS = 10_000
_LINES = 2 * len(listen.CHANNELS)  # of a sentence in a kept file
_SPOKEN_TOGETHER = 20  # sentences that are spoken before they are heard


@dataclass(frozen=True, slots=True)
class HeardSentence:
    """A sentence as it was spoken one way and heard through one band."""

    way: str
    band: str
    text: str
    words: int
    heard: tuple[str, str]  # by tiny.en and by base
    wrong: tuple[int, int, int]  # as of JUDGES


_load_base = cache(load_base)


def speak(bundle: Path, sentences: Sequence[str]) -> dict[str, list[listen.Float]]:
    """The sentences each way, (N,) samples at 24 kHz."""
    at_once = CosyVoiceBackend.load(bundle, AT_ONCE_POLICY)
    return {
        STREAMED: listen.say_with_engine(bundle, sentences, executor="torch"),
        AT_ONCE: listen.say_with_engine(bundle, sentences, backend=at_once),
    }


def hear(sentences: Sequence[str], speech: dict[str, list[listen.Float]]) -> Iterator[HeardSentence]:
    """Each sentence of each way, as both recognisers hear it through each band."""
    recognisers = (load_recogniser(), _load_base())
    for index, text in enumerate(sentences):
        for way, said in speech.items():
            for band, channel in listen.CHANNELS.items():
                yield _hear_one(way, band, text, channel(said[index]), recognisers)


def read_kept(file: Path) -> list[HeardSentence]:
    """What a file has of an earlier run, whole sentences only."""
    lines = file.read_text("utf-8").splitlines(keepends=True) if file.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    kept = [
        HeardSentence(**one | {"heard": tuple(one["heard"]), "wrong": tuple(one["wrong"])}) for one in whole
    ]
    return kept[: len(kept) // _LINES * _LINES]


def _hear_one(
    way: str, band: str, text: str, samples: listen.Float, recognisers: "Sequence[WhisperModel]"
) -> HeardSentence:
    spoken = " ".join(word.text for word in world.spoken_words(text)).lower()
    tiny, base = (transcribe(recogniser, samples).text for recogniser in recognisers)
    scores = [score(spoken, tiny), score(spoken, base)]
    by_each = [one.count_wrong(MistakeKind.WORD) for one in scores]
    wrong = (by_each[0], by_each[1], wrong_for_all(scores))
    return HeardSentence(way, band, text, scores[0].words, (tiny, base), wrong)


def paired_interval(
    differences: Sequence[int], words: Sequence[int], draws: int = _DRAWS
) -> tuple[float, float]:
    """The 95 % interval of a difference in percent points, of sentences that are drawn with replacement.

    differences: of each sentence, words wrong one way less those wrong the other way. words: of each.
    """
    chosen = np.random.default_rng(0).integers(0, len(words), (draws, len(words)))
    shares = 100 * np.asarray(differences)[chosen].sum(1) / np.asarray(words)[chosen].sum(1)
    low, high = np.percentile(shares, [2.5, 97.5])
    return float(low), float(high)


def rows_of(heard: Sequence[HeardSentence]) -> Iterator[str]:
    """A table: words wrong each way, and the difference with its interval, by band and recogniser."""
    yield "| band | recogniser | streamed | at once | at once less streamed, points |"
    yield "|---|---|---|---|---|"
    for band in listen.CHANNELS:
        ways = {
            way: [one for one in heard if (one.way, one.band) == (way, band)] for way in (STREAMED, AT_ONCE)
        }
        words = [one.words for one in ways[STREAMED]]
        for index, judge in enumerate(JUDGES):
            streamed, at_once = ([one.wrong[index] for one in found] for found in ways.values())
            less = [one - other for one, other in zip(at_once, streamed, strict=True)]
            low, high = paired_interval(less, words)
            shares = [100 * sum(wrong) / sum(words) for wrong in (streamed, at_once, less)]
            yield (
                f"| {band} | {judge} | {shares[0]:.2f} % | {shares[1]:.2f} % "
                f"| {shares[2]:+.2f} ({low:+.2f} to {high:+.2f}) |"
            )


def main(show: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(prog="small_voice.two_ways", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--sentences", type=int, default=200, help="[default: %(default)s]")
    parser.add_argument(
        "--keep", type=Path, default=os.devnull, metavar="FILE", help="what was heard, in lines of JSON"
    )
    arguments = parser.parse_args()
    seen = islice(world.sentences(SEED), SENTENCES)
    sentences = listen.unseen_sentences(arguments.sentences, UNSEEN_SEED, seen)
    heard = read_kept(arguments.keep)
    with arguments.keep.open("w", encoding="utf-8", buffering=1) as kept:
        kept.writelines(json.dumps(asdict(one)) + "\n" for one in heard)
        for first in range(len(heard) // _LINES, len(sentences), _SPOKEN_TOGETHER):
            batch = sentences[first : first + _SPOKEN_TOGETHER]
            for one in hear(batch, speak(arguments.bundle, batch)):
                heard.append(one)
                kept.write(json.dumps(asdict(one)) + "\n")
    words = sum(one.words for one in heard) // _LINES
    show(f"{len(sentences)} unseen sentences, {words} words:")
    for row in rows_of(heard):
        show(row)


if __name__ == "__main__":
    main()
