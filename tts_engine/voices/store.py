"""A folder of enrolled voices: prompts stored by content hash, and an index of voices.

    folder/
        index.sqlite         one row for each voice: id, name, content hash, metadata
        contents/HASH.npz    a prompt, without pickle; several ids may share one
        prepared/HASH.*      what the networks computed from it; deleted with it

Ids and contents are separate: a recording enrolled twice is stored once, an id can get a new recording, and
an id never becomes a path. Several processes may use a folder. A change holds SQLite's write lock while it
writes its files, in an order that never leaves a row without its file after a crash:

    add       lock | file | row | unlock
    remove    lock | row  | unlock          lock | the file, if no row refers to it by now | unlock

A crash may leave a file without a row; opening the store deletes those. A prompt fits only the model that it
was encoded with, so a store is opened for one model and refuses prompts of others.

Source: sqlite.org/lang_transaction.html (BEGIN IMMEDIATE).
"""

import json
import math
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ...models.prompt_file import VoicePromptError
from ..errors import BadRequest, BundleError, Overloaded
from .index import (
    COLUMNS,
    LONE_SURROGATE,
    StoredVoice,
    VoiceMetadata,
    check_text,
    checked_id,
    checked_metadata,
    checked_name,
    find_row,
    insert_voice,
    migrate,
    open_index,
    require_row,
    voice_from_row,
)
from .packed_prompt import PackedPrompt, StorablePrompt, model_name
from .prompt_cache import PromptCache

__all__ = ["StoredVoice", "VoiceMetadata", "VoiceStore", "VoiceStoreLimits", "checked_id"]

_RETRY_S = 5.0  # suggested to clients when the disk is full or the lock is not free


@dataclass(frozen=True, slots=True)
class VoiceStoreLimits:
    """Limits of a store."""

    max_voices: int = 10_000
    max_voices_per_owner: int = 1_000  # so that one key cannot fill the store
    max_bytes: int = 4 * 2**30  # on disk; a voice takes 170 to 500 kB
    max_cache_bytes: int = 128 * 2**20  # of prompts in memory


class VoiceStore:
    """A folder of voices, for any thread and several processes. Methods block for milliseconds.

    version: of the model in use (``StorablePrompt.model_version``); None lists and changes voices of every
    model, for administration. read_prompt: reads a file of that model's prompts.
    Every method raises Overloaded, with nothing changed, if the disk is full or the lock is not free in time.
    """

    def __init__(
        self,
        folder: Path,
        version: int | None,
        limits: VoiceStoreLimits | None = None,
        clock: Callable[[], float] = time.time,
        read_prompt: Callable[[Path], StorablePrompt] = PackedPrompt.load,
    ) -> None:
        """Open the folder, or create it. Raises BundleError if it holds something else or a later format."""
        self.folder = folder
        self.version = version
        self.limits = limits or VoiceStoreLimits()
        self.cache = PromptCache(self.limits.max_cache_bytes)
        self._clock, self._read_prompt = clock, read_prompt
        self._contents, self._prepared = folder / "contents", folder / "prepared"
        with ExitStack() as opened:
            with _store_errors(folder):
                # Voices are personal data: other users of the machine get no access.
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._contents.mkdir(mode=0o700, exist_ok=True)
                self._write_lock, self._write_connection = (
                    threading.Lock(),
                    opened.enter_context(open_index(folder)),
                )
                self._read_lock, self._read_connection = (
                    threading.Lock(),
                    opened.enter_context(open_index(folder)),
                )
            with self._transaction() as index:
                migrate(index, folder)
                self._delete_orphans(index)
            self._resources = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index. Changes are on disk already."""
        self._resources.close()

    def add(
        self,
        prompt: StorablePrompt,
        *,
        name: str,
        about: VoiceMetadata | None = None,
        voice_id: str | None = None,
    ) -> StoredVoice:
        """Store a prompt. voice_id: None generates one. Raises BadRequest if a limit or check is broken."""
        voice_id = _new_id() if voice_id is None else checked_id(voice_id)
        about = checked_metadata(about or VoiceMetadata())
        with self._transaction() as index:
            if find_row(index, voice_id) is not None:
                raise BadRequest(f"there is a voice {voice_id!r} already; remove it first or take another id")
            self._check_count(index, about.owner)
            size = self._write(index, prompt)
            now = self._clock()
            content = (prompt.id, prompt.model_version, size, prompt.transcript)
            voice = StoredVoice(voice_id, checked_name(name), *content, now, now, about)
            insert_voice(index, voice)
        return voice

    def adopt(self, voice: StoredVoice, prompt: StorablePrompt) -> None:
        """Store a voice as another store has it, in the place of one with its id. Raises as ``add``."""
        checked_id(voice.id), checked_name(voice.name), checked_metadata(voice.about)
        with self._transaction() as index:
            before = find_row(index, voice.id)
            if before is None:
                self._check_count(index, voice.about.owner)
            insert_voice(index, replace(voice, bytes=self._write(index, prompt)))
        if before is not None:
            self._delete_if_unreferenced(before.content)

    def removals(self) -> dict[str, float]:
        """When each voice that is no more was removed, in seconds since 1970."""
        with self._reading_index() as index:
            return dict(index.execute("SELECT id, removed_at FROM removals").fetchall())

    @property
    def changes(self) -> int:
        """A number that is another one after each change, of any process."""
        with self._reading_index() as index:
            return int(index.execute("PRAGMA data_version").fetchone()[0])

    def get(self, voice_id: str) -> StorablePrompt:
        """Load the prompt of a voice.

        Raises UnknownVoice, BadRequest for a prompt of another model, BundleError for a damaged file.
        """
        voice = self._require(voice_id)
        if self.version is not None and voice.version != self.version:
            raise BadRequest(
                f"voice {voice_id!r} was enrolled with {model_name(voice.version)}, and "
                f"{model_name(self.version)} is loaded; enrol its recording again"
            )
        try:
            return self.cache.get(voice.content, lambda: self._load(voice))
        except FileNotFoundError as error:
            if self._require(voice_id).content != voice.content:
                return self.get(voice_id)  # replaced between the two reads
            raise BundleError(f"voice {voice_id!r}: its file is gone; enrol it again") from error
        except OSError as error:
            raise _store_unavailable(error.strerror or str(error)) from error

    def find(self, voice_id: str) -> StoredVoice | None:
        """The voice with that id, or None."""
        with self._reading_index() as index:
            return find_row(index, voice_id)

    def list(
        self,
        owners: Iterable[str] | None = None,
        *,
        name: str | None = None,
        version: int | None = None,
        max_count: int = -1,
    ) -> tuple[StoredVoice, ...]:
        """The voices that match every filter which is not None, oldest first. max_count: -1 for all."""
        if name is not None and LONE_SURROGATE.search(name):
            return ()
        filters = {"name": name, "version": version}
        conditions = ["1"] + [f"{column} = :{column}" for column in filters if filters[column] is not None]
        if owners is not None:
            conditions.append("owner IN (SELECT value FROM json_each(:owners))")
        with self._reading_index() as index:
            rows = index.execute(
                f"SELECT {COLUMNS} FROM voices WHERE {' AND '.join(conditions)} "
                "ORDER BY created_at, rowid LIMIT :most",
                {**filters, "owners": json.dumps(list(owners or ())), "most": max_count},
            )
            return tuple(voice_from_row(row) for row in rows)

    def find_folded(self, folded: str, owners: Iterable[str]) -> StoredVoice | None:
        """The newest voice of those owners whose case-folded id or name is ``folded``, or None."""
        if LONE_SURROGATE.search(folded):
            return None
        with self._reading_index() as index:
            row = index.execute(
                f"SELECT {COLUMNS} FROM voices WHERE owner IN (SELECT value FROM json_each(:owners)) "
                "AND (:version IS NULL OR version = :version) "
                "AND :folded IN (casefold(id), casefold(name)) ORDER BY created_at DESC, rowid DESC",
                {"folded": folded, "owners": json.dumps(list(owners)), "version": self.version},
            ).fetchone()
        return None if row is None else voice_from_row(row)

    def rename(self, voice_id: str, name: str) -> StoredVoice:
        """Change a voice's name. Raises UnknownVoice."""
        with self._transaction() as index:
            changed_at = self._time_after(require_row(index, voice_id))
            index.execute(
                "UPDATE voices SET name = ?, changed_at = ? WHERE id = ?",
                (checked_name(name), changed_at, voice_id),
            )
            return require_row(index, voice_id)

    def replace(
        self, voice_id: str, prompt: StorablePrompt, about: VoiceMetadata | None = None
    ) -> StoredVoice:
        """Change a voice's prompt, and its metadata unless None. Raises UnknownVoice."""
        with self._transaction() as index:
            before = require_row(index, voice_id)
            size = self._write(index, prompt)
            values = (
                *(prompt.id, prompt.model_version, size, prompt.transcript, self._time_after(before)),
                *astuple(checked_metadata(about or before.about)),
            )
            index.execute(
                "UPDATE voices SET (content, version, bytes, transcript, changed_at, "
                "language, owner, consent, provenance, source) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?",
                (*values, voice_id),
            )
            after = require_row(index, voice_id)
        self._delete_if_unreferenced(before.content)
        return after

    def remove(self, voice_id: str, removed_at: float | None = None) -> StoredVoice:
        """Delete a voice, and its file unless another id shares it. Raises UnknownVoice.

        removed_at: seconds since 1970; None is now.
        """
        with self._transaction() as index:
            voice = require_row(index, voice_id)
            removal = (voice_id, self._time_after(voice) if removed_at is None else removed_at)
            index.execute("DELETE FROM voices WHERE id = ?", (voice_id,))
            index.execute("INSERT OR REPLACE INTO removals VALUES (?, ?)", removal)
        self._delete_if_unreferenced(voice.content)
        return voice

    def _time_after(self, before: StoredVoice) -> float:
        """Now; later than the last change, which a machine with a fast clock may have made."""
        return max(self._clock(), math.nextafter(before.changed_at, math.inf))

    def _require(self, voice_id: str) -> StoredVoice:
        with self._reading_index() as index:
            return require_row(index, voice_id)

    def _load(self, voice: StoredVoice) -> StorablePrompt:
        try:
            prompt = self._read_prompt(self._path(voice.content))
        except VoicePromptError as fault:
            raise BundleError(f"voice {voice.id!r}: {fault}") from fault
        if prompt.id != voice.content:
            raise BundleError(f"voice {voice.id!r}: its file was changed or damaged; enrol it again")
        return prompt

    def _path(self, content: str) -> Path:
        return self._contents / f"{content}.npz"

    def _write(self, index: sqlite3.Connection, prompt: StorablePrompt) -> int:
        """Write a prompt durably; its size on disk. The lock is held."""
        check_text("transcript", prompt.transcript)
        path = self._path(prompt.id)
        partial = path.with_suffix(".new")
        try:
            prompt.save(partial)
            size = partial.stat().st_size
            self._check_bytes(index, prompt.id, size)
            _flush_to_disk(partial)
            partial.replace(path)
            _flush_to_disk(self._contents)
        finally:
            partial.unlink(missing_ok=True)
        return size

    def _check_count(self, index: sqlite3.Connection, owner: str) -> None:
        (count,) = index.execute("SELECT count(*) FROM voices").fetchone()
        if count >= self.limits.max_voices:
            raise BadRequest(
                f"the store has {count:,} voices, of {self.limits.max_voices:,} allowed; remove some"
            )
        (count,) = index.execute("SELECT count(*) FROM voices WHERE owner = ?", (owner,)).fetchone()
        if owner and count >= self.limits.max_voices_per_owner:
            raise BadRequest(
                f"this key has {count:,} voices, of {self.limits.max_voices_per_owner:,} allowed; remove some"
            )

    def _check_bytes(self, index: sqlite3.Connection, content: str, size: int) -> None:
        (stored_bytes,) = index.execute(
            "SELECT coalesce(sum(bytes), 0) FROM "
            "(SELECT DISTINCT content, bytes FROM voices WHERE content != ?)",
            (content,),
        ).fetchone()
        if stored_bytes + size > self.limits.max_bytes:
            raise BadRequest(
                f"the store has {stored_bytes:,} bytes, of {self.limits.max_bytes:,} allowed, "
                f"and the voice needs {size:,}; remove some"
            )

    def _delete_if_unreferenced(self, content: str) -> None:
        """Delete a file if no voice refers to it."""
        with self._transaction() as index:
            if not index.execute("SELECT 1 FROM voices WHERE content = ?", (content,)).fetchone():
                self._path(content).unlink(missing_ok=True)
                for prepared in self._prepared.glob(f"{content}.*"):
                    prepared.unlink(missing_ok=True)

    def _delete_orphans(self, index: sqlite3.Connection) -> None:
        """Delete files without a row, left by a crash. The lock is held, so no file is being written."""
        kept = {f"{content}.npz" for (content,) in index.execute("SELECT DISTINCT content FROM voices")}
        prepared = self._prepared.iterdir() if self._prepared.is_dir() else ()
        for path in (*self._contents.iterdir(), *prepared):
            if f"{path.name.partition('.')[0]}.npz" not in kept or path.suffix in (".new", ".partial"):
                path.unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _store_errors(self.folder), self._write_lock:
            self._write_connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._write_connection
                self._write_connection.execute("COMMIT")
            finally:
                if self._write_connection.in_transaction:
                    self._write_connection.execute("ROLLBACK")

    @contextmanager
    def _reading_index(self) -> Iterator[sqlite3.Connection]:
        with _store_errors(self.folder), self._read_lock:
            yield self._read_connection


def _new_id() -> str:
    return f"voice_{secrets.token_hex(16)}"


@contextmanager
def _store_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _store_unavailable(str(error)) from error
    except sqlite3.DatabaseError as error:
        raise BundleError(f"{folder}/index.sqlite: no index of voices, or a damaged one ({error})") from error
    except OSError as error:
        raise _store_unavailable(error.strerror or str(error)) from error


def _store_unavailable(why: str) -> Overloaded:
    return Overloaded(
        f"the voice store cannot be used now ({why}); nothing was changed",
        reason="voice store",
        retry_after_s=_RETRY_S,
    )


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
