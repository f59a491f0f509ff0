"""Phonemes of words from the program espeak-ng, which runs as a process of its own and is never linked.

Each phrase has a process to itself: its answer is all that the process writes until it exits. So no text can
end its answer early, and nothing is left for the next caller: a process that reads several lines at times
repeats words of one in the phonemes of the next. Processes are started ahead, as a start takes longer than a
phrase.

Source: espeak-ng(1), options -q, --ipa, --stdin. espeak-ng is GPL-3.0-or-later; only text crosses the pipes.
"""

import itertools
import logging
import os
import re
import select
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from ..errors import BundleError, SynthesisFailed
from ..reading.normalizer import SpokenWord

logger = logging.getLogger(__name__)

_PROGRAM = "espeak-ng"
_TIMEOUT_S = 2.0  # of a phrase; a usual one takes 3 ms, with the start of a process 11 ms
_START_TIMEOUT_S = 10.0
_STARTED_AHEAD = 4  # processes that wait for a phrase; a clause has fewer phrases
_MAX_CHARACTERS = 2_000  # of a phrase; a segment has fewer
_MAX_JOINED = 6  # words in one part, or parts of one word

_LANGUAGE_SWITCH = re.compile(r"\([a-z-]+\)")  # written where a word is of another language
_NOT_SPOKEN = re.compile(r"[\x00-\x1f\x7f\[\]]+")  # [[...]] would be read as phonemes


@dataclass(frozen=True, slots=True)
class PhonemeWord:
    """A word as phonemes (IPA). joined: it follows the word before without a blank."""

    phonemes: str
    joined: bool = False


def espeak_version() -> str:
    """What the installed program says of itself; "" if there is none."""
    try:
        found = subprocess.run([_PROGRAM, "--version"], capture_output=True, timeout=_START_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.decode("utf-8", "replace").strip()


class EspeakPhonemizer:
    """One language's phonemes. Methods may be called from any thread, and at once.

    Args:
        voice: of espeak-ng, such as "en-us" or "de".
        program: a name on the search path, or a path.
    """

    def __init__(self, voice: str, program: str = _PROGRAM, timeout_s: float = _TIMEOUT_S) -> None:
        found = shutil.which(program)
        if found is None:
            raise BundleError(
                f"the voice needs the program {program}, which is not installed: apt-get install espeak-ng"
            )
        self._program, self._voice, self._timeout_s = found, voice, timeout_s
        self._started_ahead: deque[subprocess.Popen[bytes]] = deque()
        self._starter = ThreadPoolExecutor(1, "espeak-ng")  # the phrase does not wait for the next start
        try:
            self._answer("hello", _START_TIMEOUT_S)
        except OSError as error:
            self.close()
            raise BundleError(f"espeak-ng has no voice {voice!r}, or cannot start") from error

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
        """End the processes."""
        self._starter.shutdown(cancel_futures=True)
        with suppress(IndexError):
            while True:
                _end(self._started_ahead.popleft())

    def _ask(self, text: str) -> str:
        text = _NOT_SPOKEN.sub(" ", text)[:_MAX_CHARACTERS].strip()
        if not text:
            return ""
        for is_last_attempt in (False, True):
            try:
                return self._answer(text, self._timeout_s)
            except OSError as error:
                if is_last_attempt or isinstance(error, TimeoutError):
                    raise SynthesisFailed(f"espeak-ng does not answer: {error}") from error
                logger.warning("espeak-ng did not answer and is asked again: %s", error)
        raise AssertionError("unreachable")

    def _answer(self, text: str, timeout_s: float) -> str:
        """Give a process its phrase, read until it exits, and start another in its place. Raises OSError."""
        process = self._take()
        try:
            assert process.stdin is not None
            process.stdin.write(f"{text}\n".encode("utf-8", "replace"))
            process.stdin.close()
            output = _read_all(process, time.monotonic() + timeout_s)
            status = process.wait()
        finally:
            _end(process)
            with suppress(RuntimeError):  # closed meanwhile
                self._starter.submit(self._start_ahead)
        if status:
            raise OSError(f"it ended with status {status}")
        return _LANGUAGE_SWITCH.sub("", output.decode("utf-8", "replace").replace("\n", " ")).strip()

    def _take(self) -> "subprocess.Popen[bytes]":
        try:
            return self._started_ahead.popleft()
        except IndexError:
            return self._start()

    def _start_ahead(self) -> None:
        while len(self._started_ahead) < _STARTED_AHEAD:
            self._started_ahead.append(self._start())

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [self._program, "-q", "--ipa", "--stdin", "-v", self._voice],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the server's group must not end it first
        )


def _read_all(process: "subprocess.Popen[bytes]", deadline: float) -> bytes:
    """What a process writes until it exits. Raises TimeoutError."""
    assert process.stdout is not None
    pieces: list[bytes] = []
    ready = select.poll()
    ready.register(process.stdout)
    while ready.poll(max(0.0, deadline - time.monotonic()) * 1_000):
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
    raise TimeoutError("no answer in time")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, if it runs, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # of text that was never read
                pipe.close()


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
