"""The index of voices on file: a row a voice in SQLite, and what a row may say.

What else a store is, files and locks, is ``voice_store.py``.

Source: sqlite.org/wal.html; sqlite.org/pragma.html (secure_delete, user_version).
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ..errors import BadRequest, BundleError, UnknownVoice

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")  # BCP 47
_MAX_NAME_CHARACTERS = 200  # characters
_MAX_NOTE_CHARACTERS = 10_000  # characters of a consent statement, or of where a recording is from
_LOCK_TIMEOUT_S = 10.0  # that another process may hold the lock; a change holds it for some milliseconds

# One script a format, each from the one before it; PRAGMA user_version says how many were run.
_MIGRATIONS = (
    """
    CREATE TABLE voices (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        content TEXT NOT NULL,
        version INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        transcript TEXT NOT NULL,
        created_at REAL NOT NULL,
        changed_at REAL NOT NULL,
        language TEXT NOT NULL,
        owner TEXT NOT NULL,
        consent TEXT NOT NULL,
        provenance TEXT NOT NULL,
        source TEXT NOT NULL
    ) STRICT;
    CREATE INDEX voices_content ON voices (content);
    CREATE INDEX voices_owner ON voices (owner);
    CREATE INDEX voices_name ON voices (name);
    """,
)


@dataclass(frozen=True, slots=True)
class VoiceMetadata:
    """What is known about a voice besides its sound.

    language: BCP 47, "" for not told. owner: id of the key that made it, "" for the operator. consent: what
    the speaker agreed to. provenance: where the recording is from. source: its SHA-256, in hexadecimal.
    """

    language: str = ""
    owner: str = ""
    consent: str = ""
    provenance: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A row of the index. content: hash of the prompt; bytes: of its file; times: seconds since 1970."""

    id: str
    name: str
    content: str
    version: int
    bytes: int
    transcript: str
    created_at: float
    changed_at: float
    about: VoiceMetadata

    @property
    def language(self) -> str:
        """BCP 47, "" for not told."""
        return self.about.language


COLUMNS = (
    "id, name, content, version, bytes, transcript, created_at, changed_at, "
    "language, owner, consent, provenance, source"
)


def find_row(index: sqlite3.Connection, voice_id: str) -> StoredVoice | None:
    """The voice of that id; None where there is none."""
    if _ID.fullmatch(voice_id) is None:
        return None
    row = index.execute(f"SELECT {COLUMNS} FROM voices WHERE id = ?", (voice_id,)).fetchone()
    return None if row is None else voice_from_row(row)


def require_row(index: sqlite3.Connection, voice_id: str) -> StoredVoice:
    """The voice of that id; raises UnknownVoice."""
    voice = find_row(index, voice_id)
    if voice is None:
        raise UnknownVoice(f"no voice {voice_id[:140]!r} in the store")
    return voice


def voice_from_row(row: tuple[Any, ...]) -> StoredVoice:
    """A row of ``COLUMNS``."""
    return StoredVoice(*(*row[:8], VoiceMetadata(*row[8:])))


def checked_id(voice_id: str) -> str:
    """The id, if it may be one; raises BadRequest."""
    if _ID.fullmatch(voice_id) is None:
        raise BadRequest(
            f"voice id {voice_id[:140]!r}; 1 to 128 letters, digits, '.', '_' and '-' are allowed, "
            "a letter or digit first"
        )
    return voice_id


def checked_name(name: str) -> str:
    """The name, if a voice may have it; raises BadRequest."""
    if not 1 <= len(name) <= _MAX_NAME_CHARACTERS or not name.isprintable():
        raise BadRequest(
            f"a voice's name has {len(name)} characters; 1 to {_MAX_NAME_CHARACTERS} printable ones may be"
        )
    return name


def checked_metadata(about: VoiceMetadata) -> VoiceMetadata:
    """What is known about a voice, if that may be kept; raises BadRequest."""
    if about.language and _LANGUAGE.fullmatch(about.language) is None:
        raise BadRequest(
            f"a voice's language is {about.language[:40]!r}; a code such as 'en' or 'en-GB' may be"
        )
    for field, note in zip(VoiceMetadata.__slots__, astuple(about), strict=True):
        if len(note) > _MAX_NOTE_CHARACTERS:
            raise BadRequest(
                f"a voice's {field} has {len(note):,} characters; at most {_MAX_NOTE_CHARACTERS:,} may be"
            )
        check_text(field, note)
    return about


def check_text(field: str, text: str) -> None:
    """Raises BadRequest for half of a character, which JSON can say and no file can hold."""
    if LONE_SURROGATE.search(text):
        raise BadRequest(f"a voice's {field} holds half of a character (a lone surrogate); text is wanted")


@contextmanager
def open_index(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the index in a folder, for any thread, one at a time."""
    connection = sqlite3.connect(
        folder / "index.sqlite", timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    with closing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = ON")  # who is removed is not to be read in free pages
        yield connection


def migrate(index: sqlite3.Connection, folder: Path) -> None:
    """Bring the index to today's format; under the lock, so that of several processes one does."""
    (format_number,) = index.execute("PRAGMA user_version").fetchone()
    if format_number > len(_MIGRATIONS):
        raise BundleError(
            f"{folder}: a store of format {format_number}, made by a later vivavoce; "
            f"this one knows up to {len(_MIGRATIONS)}"
        )
    for number, script in enumerate(_MIGRATIONS[format_number:], format_number + 1):
        for statement in script.split(";"):
            index.execute(statement)
        index.execute(f"PRAGMA user_version = {number}")
