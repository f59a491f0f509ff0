"""The SQLite index of a voice store: one row for each voice, and the checks of its fields.

Files, transactions and locks are in ``store``.

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
_MAX_NAME_CHARACTERS = 200
_MAX_NOTE_CHARACTERS = 10_000  # of a consent statement or a provenance
_LOCK_TIMEOUT_S = 10.0  # to wait for another process's lock, which lasts some milliseconds

# Each script upgrades the format before it; PRAGMA user_version counts the scripts that have run.
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
    "CREATE TABLE removals (id TEXT PRIMARY KEY, removed_at REAL NOT NULL) STRICT",
)


@dataclass(frozen=True, slots=True)
class VoiceMetadata:
    """What is known about a voice besides its sound; "" where a field is unknown."""

    language: str = ""  # BCP 47
    owner: str = ""  # id of the key that enrolled it; "" is the operator
    consent: str = ""  # what the speaker agreed to
    provenance: str = ""  # where the recording comes from
    source: str = ""  # SHA-256 of the recording, in hexadecimal


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A row of the index."""

    id: str
    name: str  # as shown to people; need not be unique
    content: str  # hash of the prompt
    version: int  # of the model, see ``StorablePrompt.model_version``
    bytes: int  # of the prompt's file
    transcript: str  # of the recording
    created_at: float  # seconds since 1970
    changed_at: float  # seconds since 1970
    about: VoiceMetadata

    @property
    def language(self) -> str:
        """BCP 47; "" if unknown."""
        return self.about.language


COLUMNS = (
    "id, name, content, version, bytes, transcript, created_at, changed_at, "
    "language, owner, consent, provenance, source"
)


def find_row(index: sqlite3.Connection, voice_id: str) -> StoredVoice | None:
    """The voice with that id, or None."""
    if _ID.fullmatch(voice_id) is None:
        return None
    row = index.execute(f"SELECT {COLUMNS} FROM voices WHERE id = ?", (voice_id,)).fetchone()
    return None if row is None else voice_from_row(row)


def require_row(index: sqlite3.Connection, voice_id: str) -> StoredVoice:
    """The voice with that id. Raises UnknownVoice."""
    voice = find_row(index, voice_id)
    if voice is None:
        raise UnknownVoice(f"no voice {voice_id[:140]!r} in the store")
    return voice


def insert_voice(index: sqlite3.Connection, voice: StoredVoice) -> None:
    """Add a row, in the place of the one with its id."""
    values = (*astuple(voice)[:-1], *astuple(voice.about))
    index.execute(f"INSERT OR REPLACE INTO voices VALUES ({', '.join('?' * len(values))})", values)
    index.execute("DELETE FROM removals WHERE id = ?", (voice.id,))


def voice_from_row(row: tuple[Any, ...]) -> StoredVoice:
    """The voice in a row of ``COLUMNS``."""
    return StoredVoice(*(*row[:8], VoiceMetadata(*row[8:])))


def checked_id(voice_id: str) -> str:
    """Return the id. Raises BadRequest if it is not allowed."""
    if _ID.fullmatch(voice_id) is None:
        raise BadRequest(
            f"voice id {voice_id[:140]!r}; 1 to 128 letters, digits, '.', '_' and '-' are allowed, "
            "a letter or digit first"
        )
    return voice_id


def checked_name(name: str) -> str:
    """Return the name. Raises BadRequest if it is not allowed."""
    if not 1 <= len(name) <= _MAX_NAME_CHARACTERS or not name.isprintable():
        raise BadRequest(
            f"a voice's name has {len(name)} characters; "
            f"1 to {_MAX_NAME_CHARACTERS} printable ones are allowed"
        )
    return name


def checked_metadata(about: VoiceMetadata) -> VoiceMetadata:
    """Return the metadata. Raises BadRequest if a field is not allowed."""
    if about.language and _LANGUAGE.fullmatch(about.language) is None:
        raise BadRequest(
            f"a voice's language is {about.language[:40]!r}; a code such as 'en' or 'en-GB' is allowed"
        )
    for field, note in zip(VoiceMetadata.__slots__, astuple(about), strict=True):
        if len(note) > _MAX_NOTE_CHARACTERS:
            raise BadRequest(
                f"a voice's {field} has {len(note):,} characters; "
                f"at most {_MAX_NOTE_CHARACTERS:,} are allowed"
            )
        check_text(field, note)
    return about


def check_text(field: str, text: str) -> None:
    """Raise BadRequest for a lone surrogate, which JSON can carry but UTF-8 cannot."""
    if LONE_SURROGATE.search(text):
        raise BadRequest(
            f"a voice's {field} holds half of a character (a lone surrogate); "
            "only whole characters are allowed"
        )


@contextmanager
def open_index(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the index in a folder, usable by any thread, one at a time."""
    connection = sqlite3.connect(
        folder / "index.sqlite", timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    with closing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = ON")  # removed voices leave nothing in free pages
        connection.create_function(
            "casefold", 1, str.casefold, deterministic=True
        )  # SQLite's knows ASCII only
        yield connection


def migrate(index: sqlite3.Connection, folder: Path) -> None:
    """Upgrade the index to the current format. The write lock is held, so only one process does it."""
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
