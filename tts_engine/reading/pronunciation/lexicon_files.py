"""Lexicons on file, in the formats of ``LEXICON_FORMATS``; read again when they change."""

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ...errors import BadRequest
from .entries import BadLexicon
from .formats.pls import PLS
from .formats.toml import TOML
from .lexicon import Lexicon, Pronunciation

logger = logging.getLogger(__name__)

LEXICON_FORMATS: Final = (TOML, PLS)
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_ENTRIES: Final = 200_000  # about 100 MB
_PARSE: Final = {suffix: each.parse for each in LEXICON_FORMATS for suffix in each.suffixes}


class LexiconFile:
    """A lexicon file, or a folder of them, read again after a change that ``current`` notices.

    A change is read on a thread of its own, because 10,000 words take 0.3 s; until then the lexicon stays as
    it was. In a folder, a file later in the alphabet overrides earlier ones. A change that cannot be read is
    logged once, and the lexicon stays as it was. ``current`` belongs to one thread.
    """

    def __init__(self, path: Path, until_read: Lexicon | None = None) -> None:
        """Read the file, or have ``current`` read it and return ``until_read`` before. Raises BadLexicon."""
        self._path = path
        self._read_identity = self._identity() if until_read is None else None
        self._lexicon = read_lexicon(path) if until_read is None else until_read
        self._reading: threading.Thread | None = None

    def current(self) -> Lexicon:
        """Return the lexicon that was read last; a change of the file is read from now on."""
        if self._reading is None or not self._reading.is_alive():
            identity = self._identity()
            if identity != self._read_identity:
                self._read_identity = identity
                self._reading = threading.Thread(target=self._read_again, name="lexicon", daemon=True)
                self._reading.start()
        return self._lexicon

    def wait_read(self) -> None:
        """Wait until a change that ``current`` noticed is read."""
        if self._reading is not None:
            self._reading.join()

    def _read_again(self) -> None:
        try:
            self._lexicon = read_lexicon(self._path)
            logger.info("%s: %d words", self._path, len(self._lexicon.entries))
        except BadLexicon as error:
            logger.error("The lexicon stays as it was: %s", error)

    def _identity(self) -> tuple[tuple[str, int, int, int], ...]:
        try:
            states = [(file.name, file.stat()) for file in _files(self._path)]
        except OSError:
            return ()
        return tuple((name, state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states)


class NamedLexicons:
    """Lexicons that requests choose by name. Belongs to one thread."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        """Read a file, or a folder, for each name. Raises BadLexicon."""
        self._files = {name: LexiconFile(path) for name, path in paths.items()}

    def current(self, names: Iterable[str]) -> tuple[Lexicon, ...]:
        """Return the lexicons as they are now, in the order of their names. Raises BadRequest."""
        wanted = tuple(names)
        for name in wanted:
            if name not in self._files:
                raise BadRequest(f"no lexicon {name[:80]!r}; there are {', '.join(sorted(self._files))}")
        return tuple(self._files[name].current() for name in wanted)


def read_lexicon(path: Path) -> Lexicon:
    """Return the lexicon of a file, or of all files of a folder; raises BadLexicon."""
    entries: dict[str, Pronunciation] = {}
    try:
        files = _files(path)
        for file in files:
            if file.stat().st_size > MAX_FILE_BYTES:
                raise BadLexicon(f"{file}: longer than {MAX_FILE_BYTES // 2**20} MiB")
            entries |= _PARSE.get(file.suffix, PLS.parse)(file.read_bytes(), str(file))
    except OSError as error:
        raise BadLexicon(f"{path}: cannot be read: {error.strerror}") from error
    if not files:
        raise BadLexicon(f"{path}: has no file that ends in {', '.join(_PARSE)}")
    if len(entries) > MAX_ENTRIES:
        raise BadLexicon(f"{path}: {len(entries)} words; at most {MAX_ENTRIES} are allowed")
    return Lexicon(entries)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _PARSE)
    return [path]
