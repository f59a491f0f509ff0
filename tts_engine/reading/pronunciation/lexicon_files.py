"""Lexicons on file: TOML, and the W3C's Pronunciation Lexicon Specification; read again when they change.

    [words]
    nginx = "engine x"                                            another text that is read instead
    Siobhan = "/ʃɪˈvɔːn/"                                         phonemes in slashes, IPA
    "Saoirse Ronan" = { ipa = "ˈsɜːʃə ˈroʊnən", say = "Sersha Ronan" }    ``say``: for voices without phonemes
    "重庆" = { pinyin = "chong2 qing4" }                             Mandarin, with tone digits

Of PLS: ``lexeme``, ``grapheme``, ``phoneme`` (the preferred or first one, alphabet "ipa") and ``alias``.
Document types are refused, so there are no entities to expand; size and depth are bounded.
Source: W3C Pronunciation Lexicon Specification 1.0; OWASP XML External Entity Prevention Cheat Sheet.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from xml.parsers import expat

from ...errors import BadRequest
from ..kit.data_files import parse_toml
from .ipa import BadIpa, read_ipa
from .lexicon import MAX_RESPELLING_CHARACTERS, Lexicon, Pronunciation, fold_phrase
from .pinyin import read_pinyin

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 16 * 2**20
MAX_ENTRIES: Final = 200_000  # about 100 MB
_MAX_DEPTH: Final = 16  # PLS needs 3
_SUFFIXES: Final = (".toml", ".pls", ".xml")
_ENTRY_FIELDS: Final = {"ipa": "phonemes", "say": "respelling", "pinyin": "pinyin"}


class BadLexicon(BadRequest):
    """A lexicon cannot be used; the message has the file, the line and the reason."""


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
            parse = parse_toml_lexicon if file.suffix == ".toml" else parse_pls
            entries |= parse(file.read_bytes(), str(file))
    except OSError as error:
        raise BadLexicon(f"{path}: cannot be read: {error.strerror}") from error
    if not files:
        raise BadLexicon(f"{path}: has no file that ends in {', '.join(_SUFFIXES)}")
    if len(entries) > MAX_ENTRIES:
        raise BadLexicon(f"{path}: {len(entries)} words; at most {MAX_ENTRIES} are allowed")
    return Lexicon(entries)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    return [path]


def parse_toml_lexicon(data: bytes, name: str) -> dict[str, Pronunciation]:
    """Return the entries of a TOML lexicon; raises BadLexicon. name: of the file, for messages."""
    try:
        text = data.decode("utf-8")
        table = parse_toml(text)
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError, which name the place
        raise BadLexicon(f"{name}: not TOML in UTF-8: {error}") from None
    words = table.get("words")
    if not isinstance(words, dict) or len(table) > 1:
        raise BadLexicon(f"{name}: has {sorted(table) or 'no table'}; allowed is one table, [words]")
    entries = {}
    for phrase, value in words.items():
        try:
            entries[fold_phrase(phrase)] = _toml_pronunciation(value)
        except ValueError as error:
            raise BadLexicon(f"{name}, line {_line_of(phrase, text)}: {phrase!r}: {error}") from None
    return entries


def _toml_pronunciation(value: object) -> Pronunciation:
    match value:
        case str() if len(value) > 1 and value.startswith("/") and value.endswith("/"):
            return make_pronunciation(phonemes=value)
        case str():
            return make_pronunciation(respelling=value)
        case dict() if value.keys() <= _ENTRY_FIELDS.keys():
            fields = {_ENTRY_FIELDS[key]: said for key, said in value.items() if isinstance(said, str)}
            if len(fields) == len(value):
                return make_pronunciation(**fields)
    raise ValueError(
        "allowed is a text, or a table with ipa, pinyin and say; a word with a stop needs quotes"
    )


def make_pronunciation(respelling: str = "", phonemes: str = "", pinyin: str = "") -> Pronunciation:
    """Return a checked pronunciation; raises ValueError (BadIpa and BadPinyin are such)."""
    respelling = " ".join(respelling.split())
    if not (respelling or phonemes.strip() or pinyin.strip()):
        raise ValueError("a respelling, phonemes or pinyin are needed")
    if len(respelling) > MAX_RESPELLING_CHARACTERS:
        raise ValueError(f"{len(respelling)} characters; at most {MAX_RESPELLING_CHARACTERS} are allowed")
    return Pronunciation(
        respelling,
        read_ipa(phonemes) if phonemes.strip() else "",
        read_pinyin(pinyin) if pinyin.strip() else "",
    )


def _line_of(phrase: str, text: str) -> int:
    """The line of an entry; tomllib does not tell it, so each line is read alone until one has the entry."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if phrase in parse_toml(line):
                return number
        except ValueError:  # a line of a value that goes on
            continue
    return 1


def parse_pls(data: bytes, name: str) -> dict[str, Pronunciation]:
    """Return the entries of a PLS document; raises BadLexicon. name: of the file, for messages."""
    reader = _PlsReader(name)
    parser = reader.parser
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well-formed")
        raise BadLexicon(f"{name}, line {error.lineno}: {reason}") from None
    return reader.entries


class _PlsReader:
    def __init__(self, name: str) -> None:
        self.entries: dict[str, Pronunciation] = {}
        self._name = name
        self._open: list[str] = []
        self._alphabets: list[str] = []  # of each open element
        self._text = ""
        self._preferred = self._is_preferred = False
        self._graphemes: list[str] = []
        self._phonemes = self._alias = ""
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text

    def _refuse_doctype(self, *_: object) -> NoReturn:
        self._refuse("a document type is not allowed")

    def _refuse(self, reason: str) -> NoReturn:
        raise BadLexicon(f"{self._name}, line {self.parser.CurrentLineNumber}: {reason}")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if len(self._open) == _MAX_DEPTH:
            self._refuse(f"at most {_MAX_DEPTH} nested elements are allowed")
        if not self._open and name != "lexicon":
            self._refuse("the outermost element must be lexicon")
        inherited = self._alphabets[-1] if self._alphabets else "ipa"
        self._alphabets.append(attributes.get("alphabet", inherited))
        self._open.append(name)
        self._text = ""
        if name == "lexeme":
            self._graphemes, self._phonemes, self._alias, self._preferred = [], "", "", False
        self._is_preferred = attributes.get("prefer") == "true"

    def _add_text(self, text: str) -> None:
        self._text += text

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        alphabet = self._alphabets.pop()
        self._open.pop()
        text = " ".join(self._text.split())
        self._text = ""
        if name == "grapheme":
            self._graphemes.append(text)
        elif name == "alias" and not self._alias:
            self._alias = text
        elif name == "phoneme":
            self._take_phonemes(text, alphabet)
        elif name == "lexeme":
            self._add_entry()

    def _take_phonemes(self, text: str, alphabet: str) -> None:
        if alphabet != "ipa":
            self._refuse(f"the alphabet {alphabet!r} is not known; allowed is ipa")
        try:
            read_ipa(text)
        except BadIpa as error:
            self._refuse(str(error))
        if not self._phonemes or (self._is_preferred and not self._preferred):
            self._phonemes, self._preferred = text, self._is_preferred

    def _add_entry(self) -> None:
        try:
            pronunciation = make_pronunciation(self._alias, self._phonemes)
            self.entries |= {fold_phrase(grapheme): pronunciation for grapheme in self._graphemes}
        except ValueError as error:
            self._refuse(str(error))
        if not self._graphemes:
            self._refuse("a lexeme needs a grapheme")


def lexicon_of(entries: Mapping[str, Any]) -> Lexicon:
    """Return the lexicon of entries as a TOML file has them; raises BadLexicon with the entry."""
    return Lexicon(dict(_checked(entries)))


def _checked(entries: Mapping[str, Any]) -> Iterator[tuple[str, Pronunciation]]:
    for phrase, value in entries.items():
        try:
            yield fold_phrase(phrase), _toml_pronunciation(value)
        except ValueError as error:
            raise BadLexicon(f"pronunciation of {phrase[:80]!r}: {error}") from None
