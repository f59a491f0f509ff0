"""Phonemes of words from the program espeak-ng, which runs as a process of its own and is never linked.

The process reads lines and writes the phonemes of each, one line a clause. A marker after each request tells
where its answer ends. Its output is a pseudo-terminal, because it buffers output to a pipe until it exits.
A process that answers too late or not at all is ended; the next request starts another.

Source: espeak-ng(1), options -q and --ipa. espeak-ng is GPL-3.0-or-later; only text crosses the pipes.
"""

import itertools
import logging
import os
import pty
import re
import select
import shutil
import subprocess
import threading
import time
import tty
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..errors import BundleError, SynthesisFailed
from ..reading.normalizer import SpokenWord

logger = logging.getLogger(__name__)

_PROGRAM = "espeak-ng"
_MARKER = "vrrp"  # short, because each word takes a millisecond; dropped from texts
_TIMEOUT_S = 2.0  # of a request; a usual one takes 3 ms
_START_TIMEOUT_S = 10.0
_MAX_CHARACTERS = 2_000  # of a request; a segment has fewer
_MAX_JOINED = 6  # words in one part, or parts of one word

_LANGUAGE_SWITCH = re.compile(r"\([a-z-]+\)")  # written where a word is of another language
_NOT_SPOKEN = re.compile(r"[\x00-\x1f\x7f\[\]]+")  # [[...]] would be read as phonemes


@dataclass(frozen=True, slots=True)
class PhonemeWord:
    """A word as phonemes (IPA). joined: it follows the word before without a blank."""

    phonemes: str
    joined: bool = False


class EspeakPhonemizer:
    """One language's phonemes. Methods may be called from any thread; they take turns.

    Args:
        voice: of espeak-ng, such as "en-us" or "de".
        program: a name on the search path, or a path.
    """

    def __init__(self, voice: str, program: str = _PROGRAM, timeout_s: float = _TIMEOUT_S) -> None:
        self._voice, self._timeout_s = voice, timeout_s
        found = shutil.which(program)
        if found is None:
            raise BundleError(
                f"the voice needs the program {program}, which is not installed: apt-get install espeak-ng"
            )
        self._program = found
        self._lock = threading.Lock()
        self._process: _EspeakProcess | None = None
        self.phonemize(["hello"])  # an unknown voice is found now

    def phonemize(self, words: Sequence[str]) -> list[PhonemeWord]:
        """The phonemes of the words of one phrase, in order. Raises SynthesisFailed."""
        parts = self._ask(" ".join(words)).split()
        if len(parts) == len(words):
            return [PhonemeWord(part) for part in parts]
        return align_words(parts, words)

    def phonemize_phrases(self, words: Sequence[SpokenWord]) -> list[PhonemeWord]:
        """The phonemes of words with punctuation, which separates phrases. Raises SynthesisFailed."""
        spoken: list[PhonemeWord] = []
        phrase: list[str] = []
        for index, word in enumerate(words):
            phrase.append(word.text)
            if word.punctuation or index == len(words) - 1:
                spoken += self.phonemize(phrase)
                phrase = []
        return spoken

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _ask(self, text: str) -> str:
        text = _NOT_SPOKEN.sub(" ", text)[:_MAX_CHARACTERS].strip()
        if not text or text.casefold() == _MARKER:
            return ""
        with self._lock:
            for is_last_attempt in (False, True):
                try:
                    if self._process is None:
                        self._process = _EspeakProcess(self._program, self._voice)
                    return self._process.ask(text, self._timeout_s)
                except (OSError, TimeoutError) as error:
                    self._end()
                    logger.warning("espeak-ng did not answer and is started again: %s", error)
                    if is_last_attempt:
                        raise SynthesisFailed(f"espeak-ng does not answer: {error}") from error
        raise AssertionError("unreachable")

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _EspeakProcess:
    """A running process. An OSError or TimeoutError leaves it unusable."""

    def __init__(self, program: str, voice: str) -> None:
        self._output, child_end = pty.openpty()
        with ExitStack() as undo:
            undo.callback(os.close, self._output)
            try:
                tty.setraw(child_end)
                self._process = subprocess.Popen(
                    [program, "-q", "--ipa", "-v", voice],
                    stdin=subprocess.PIPE,
                    stdout=child_end,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a signal to the server's group must not end it first
                )
            finally:
                os.close(child_end)
            undo.pop_all()
            undo.callback(self.end)
            self._received = b""
            try:
                self._send(_MARKER)
                self._marker = self._read_line(time.monotonic() + _START_TIMEOUT_S)
            except OSError as error:
                raise BundleError(f"espeak-ng has no voice {voice!r}, or cannot start") from error
            undo.pop_all()

    def ask(self, text: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        self._send(f"{text}\n{_MARKER}")
        lines: list[str] = []
        while (line := self._read_line(deadline)) != self._marker:
            lines.append(line)
        return _LANGUAGE_SWITCH.sub("", " ".join(lines)).strip()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._output)

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), f"{text}\n".encode())

    def _read_line(self, deadline: float) -> str:
        while b"\n" not in self._received:
            ready, _, _ = select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("no answer in time")
            data = os.read(self._output, 65536)  # an OSError once the process is gone
            if not data:
                raise OSError("it has ended")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


def replace_pronounced(words: Sequence[SpokenWord], phonemes: Sequence[PhonemeWord]) -> list[PhonemeWord]:
    """The phonemes of words, with those that a caller or a lexicon gave in place of espeak-ng's."""
    return [
        found if word.phonemes is None else PhonemeWord(word.phonemes, joined=not word.phonemes)
        for word, found in zip(words, phonemes, strict=True)
    ]


def align_words(parts: Sequence[str], words: Sequence[str]) -> list[PhonemeWord]:
    """Share the phonemes of a phrase, as espeak-ng separates them, among its words by their lengths.

    espeak-ng joins some words, as "of the" to one part, and reads others, such as numbers, as several. Words
    in one part share it in proportion to their letters, so that a cut inside a part is an estimate.
    """
    costs = {(0, 0): (0, (0, 0))}  # parts and words so far -> the best cost, and where it came from
    spoken, letters = [_length(part) for part in parts], [len(word) for word in words]
    for part in range(1, len(parts) + 1):
        for word in range(1, len(words) + 1):
            before = [(part - 1, start) for start in range(max(0, word - _MAX_JOINED), word)]
            before += [(start, word - 1) for start in range(max(0, part - _MAX_JOINED), part - 1)]
            options = [
                (costs[start][0] + (sum(spoken[start[0] : part]) - sum(letters[start[1] : word])) ** 2, start)
                for start in before
                if start in costs
            ]
            if options:
                costs[part, word] = min(options)
    at, groups = (len(parts), len(words)), []
    if at not in costs:
        return [PhonemeWord(" ".join(parts)), *(PhonemeWord("") for _ in words[1:])]
    while at != (0, 0):
        start = costs[at][1]
        groups.append((parts[start[0] : at[0]], letters[start[1] : at[1]]))
        at = start
    return [word for group in reversed(groups) for word in _share(*group)]


def _share(parts: Sequence[str], letters: Sequence[int]) -> list[PhonemeWord]:
    phonemes, cuts = " ".join(parts), [0]
    for count in letters:
        cuts.append(cuts[-1] + count)
    places = [round(cut / cuts[-1] * len(phonemes)) for cut in cuts]
    return [
        PhonemeWord(phonemes[start:stop], joined=index > 0)
        for index, (start, stop) in enumerate(itertools.pairwise(places))
    ]


def _length(part: str) -> int:
    """The sounds of a part, without marks of stress and length."""
    return sum(character.isalpha() and character not in "ˈˌː" for character in part)
