"""Speech that is kept, so that what is said again is not rendered again.

A line is kept as the pieces in which it was rendered, by a key of everything that its samples depend on.
Streams that say a line at the same time share its rendering: each piece is rendered by the stream that needs
it first.

    stream 1   piece 0, 1, 2 rendered
    stream 2         0, 1, 2 kept, 3 rendered
    stream 3                             0, 1, 2, 3 kept

Lines can be on file as well (``SpeechFiles``): one that is not in memory is looked for there before it is
rendered, by the thread that would render it, and one that has been rendered to its end is written by a thread
of its own.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, Protocol, TypeVar

from ..backends.voice_kind import KeptSpeechConfig
from .speech_files import LineFormat, SpeechFiles

# What a line holds besides its pieces while it is rendered: hidden frames and contexts of the networks.
_UNFINISHED_BYTES: Final = 256 * 1024
_MAX_UNWRITTEN_LINES: Final = 32  # that wait for the disk; others are not written


class _Piece(Protocol):
    @property
    def nbytes(self) -> int:
        """Bytes of memory."""

    @property
    def last(self) -> bool:
        """Whether the line ends with it."""


Piece = TypeVar("Piece", bound=_Piece)


class KeptLine(Generic[Piece]):
    """The pieces of a line, rendered as they are asked for. May be used from several threads.

    An exception of the rendering is raised to who asked for the piece; the next one to ask renders it again.
    """

    def __init__(
        self, key: Hashable, render: Callable[[], Iterator[Piece]], keeper: "KeptSpeech[Piece]"
    ) -> None:
        self._key, self._render, self._keeper = key, render, keeper
        self._pieces: list[Piece] = []
        self._further: Iterator[Piece] | None = None
        self._finished = False
        self._lock = threading.Lock()
        self.is_from_file = False  # whether its pieces were read, and not rendered by this process

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(piece.nbytes for piece in self._pieces) + (0 if self._finished else _UNFINISHED_BYTES)

    def piece(self, index: int) -> tuple[Piece | None, bool]:
        """The piece with that index, None if the line has no sound; and whether it was rendered before.

        index: at most the number of pieces that were asked for.
        """
        if index < len(self._pieces):
            return self._pieces[index], True
        with self._lock:
            if not self._pieces and not self._finished:
                self._pieces = self._keeper.read(self._key)
                self._finished = self.is_from_file = bool(self._pieces)
            repeated = index < len(self._pieces) or self._finished
            piece = next(iter(self._pieces[index:]), None) if repeated else self._next_piece()
        self._keeper.measure(self._key, self)
        if self._finished and not repeated:
            self._keeper.write(self._key, self._pieces)
        return piece, repeated

    def _next_piece(self) -> Piece | None:
        further = self._further or itertools.islice(self._render(), len(self._pieces), None)
        self._further = None  # after an exception it is begun again
        piece = next(further, None)
        if piece is not None:
            self._pieces.append(piece)
        if piece is None or piece.last:
            self._finished = True
        else:
            self._further = further
        return piece


class KeptSpeech(Generic[Piece]):
    """Keeps the lines that were asked for last, ``max_bytes`` in all. May be used from several threads.

    files: where lines are kept as well; None: in memory only.
    """

    def __init__(self, max_bytes: int, files: SpeechFiles[Piece] | None = None) -> None:
        self._max_bytes, self._files = max_bytes, files
        self._writer = ThreadPoolExecutor(1, "vivavoce-speech-files")  # its thread starts with the first line
        self._room = threading.Semaphore(_MAX_UNWRITTEN_LINES)
        self._lock = threading.Lock()
        self._lines: OrderedDict[Hashable, KeptLine[Piece]] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self.used_bytes = 0

    def line(self, key: Hashable | None, render: Callable[[], Iterator[Piece]]) -> KeptLine[Piece]:
        """The line with that key; ``render`` makes its pieces where they are not kept.

        key: None for a line that is not shared and not kept.
        """
        with self._lock:
            if (kept := self._lines.get(key)) is not None:
                self._lines.move_to_end(key)
                return kept
            line = KeptLine(key, render, self)
            if self._max_bytes and key is not None:
                self._lines[key] = line
        self.measure(key, line)
        return line

    def read(self, key: Hashable | None) -> list[Piece]:
        """The pieces of a line that is on file; none, if it is not."""
        return self._files.read(key) if self._files is not None and key is not None else []

    def write(self, key: Hashable | None, pieces: Sequence[Piece]) -> None:
        """Have a line written that is rendered to its end, unless too many wait for that."""
        if self._files is not None and key is not None and pieces and self._room.acquire(blocking=False):
            self._writer.submit(self._write, self._files, key, pieces)

    def _write(self, files: SpeechFiles[Piece], key: Hashable, pieces: Sequence[Piece]) -> None:
        try:
            files.write(key, pieces, self._keys)
        finally:
            self._room.release()

    def _keys(self) -> list[Hashable]:
        with self._lock:
            return list(self._lines)

    def close(self) -> None:
        """Forget all lines, and with them the voice that rendered them, once those that wait are written."""
        if self._files is None:
            self._clear()
        else:
            self._writer.submit(self._clear)
        self._writer.shutdown(wait=False)

    def _clear(self) -> None:
        with self._lock:
            self._lines.clear()
            self._sizes.clear()
            self.used_bytes = 0

    def measure(self, key: Hashable, line: KeptLine[Piece]) -> None:
        """Take account of the size of a line that is kept, and drop those that were asked for longest ago."""
        with self._lock:
            if self._lines.get(key) is not line:
                return
            size = line.nbytes
            self.used_bytes += size - self._sizes.get(key, 0)
            self._sizes[key] = size
            while self.used_bytes > self._max_bytes:
                oldest, _ = self._lines.popitem(last=False)
                self.used_bytes -= self._sizes.pop(oldest)


def keep_speech(config: KeptSpeechConfig, line_format: Callable[[], LineFormat[Piece]]) -> KeptSpeech[Piece]:
    """Keep what a config says. line_format: made only if there are files."""
    if not config.max_bytes or config.folder is None:
        return KeptSpeech(config.max_bytes)
    return KeptSpeech(config.max_bytes, SpeechFiles(config.folder, config.max_file_bytes, line_format()))
