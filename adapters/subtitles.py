"""Subtitles of an utterance, from the times of its words.

A cue has at most two lines of text, as it was written, lasts at most six seconds and ends with a sentence.
Text between two words belongs to the first of them, so that every character is in a cue.

Source: SubRip; WebVTT (W3C), section 4; the limits are usual ones of television.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..tts_engine.chunk import Word

MAX_CUE_CHARACTERS: Final = 84  # two lines of 42
MAX_CUE_S: Final = 6.0
_SENTENCE_END: Final = re.compile(r"[.!?…。！？][\"'”’)]*\s*$")
_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle. Times are in seconds from the first sample."""

    start_s: float
    stop_s: float
    text: str


def make_cues(text: str, words: Sequence[Word]) -> list[Cue]:
    """The cues of a text. words: with their places in it, in its order."""
    cues: list[Cue] = []
    places = [0, *(word.text_start for word in words[1:]), len(text)]  # of each word, and after the last one
    begun = 0  # the first word of the cue
    for number, word in enumerate(words, start=1):
        if number < len(words) and not _SENTENCE_END.search(text, word.text_start, places[number]):
            longer = text[places[begun] : places[number + 1]].rstrip()
            if len(longer) <= MAX_CUE_CHARACTERS and words[number].stop_s - words[begun].start_s <= MAX_CUE_S:
                continue
        written = text[places[begun] : places[number]]
        cues.append(Cue(words[begun].start_s, word.stop_s, " ".join(written.split())))
        begun = number
    return cues


def cues_of_written(words: Sequence[Word]) -> list[Cue]:
    """The cues of written words (``written_words``), which hold every character of their text but blanks."""
    text = ""
    placed: list[Word] = []
    for word in words:
        if placed and word.text_start > placed[-1].text_stop:
            text += " "
        placed.append(replace(word, text_start=len(text)))
        text += word.text
    return make_cues(text, placed)


def as_srt(cues: Sequence[Cue]) -> str:
    """The cues as SubRip."""
    return "\n".join(
        f"{number}\n{_clock(cue.start_s, ',')} --> {_clock(cue.stop_s, ',')}\n{cue.text}\n"
        for number, cue in enumerate(cues, start=1)
    )


def as_vtt(cues: Sequence[Cue]) -> str:
    """The cues as WebVTT."""
    written = (
        f"{_clock(cue.start_s, '.')} --> {_clock(cue.stop_s, '.')}\n{cue.text.translate(_ESCAPED)}\n"
        for cue in cues
    )
    return "\n".join(["WEBVTT\n", *written])


def as_json(cues: Sequence[Cue]) -> str:
    """The cues as a list of objects with ``start``, ``end`` (seconds) and ``text``."""
    entries = [
        {"start": round(cue.start_s, 3), "end": round(cue.stop_s, 3), "text": cue.text} for cue in cues
    ]
    return json.dumps(entries, ensure_ascii=False, indent=1) + "\n"


def from_json(text: str | bytes) -> list[Cue]:
    """The cues that ``as_json`` wrote."""
    return [Cue(entry["start"], entry["end"], entry["text"]) for entry in json.loads(text)]


FORMATS: Final[Mapping[str, Callable[[Sequence[Cue]], str]]] = {"srt": as_srt, "vtt": as_vtt, "json": as_json}


def _clock(seconds: float, point: str) -> str:
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
