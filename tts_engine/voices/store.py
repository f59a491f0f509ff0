"""Voices on file: what they are by content, and an index of who is which.

    folder/
        index.sqlite         a row a voice: id, name, content, what is known about it
        contents/HASH.npz    a prompt, without pickle; several ids may share one

Ids and contents are apart: the same recording enrolled twice is one file, an id may be given a new recording,
and no id ever becomes a path. Several processes may use a folder. A change holds SQLite's write lock, its
files included, and their order is such that a crash never leaves a row without its file:

    add       lock | file | row | unlock
    remove    lock | row  | unlock          lock | the file, if no row has it by now | unlock

What a crash leaves is a file without a row; those are deleted as a store is opened. Prompts fit the release
that they were enrolled with, so a store is opened for one, and says so of the others.

Source: sqlite.org/lang_transaction.html (BEGIN IMMEDIATE).
"""

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ...models.cosyvoice.front_end.voice_encoder import VoicePrompt, VoicePromptError
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
    migrate,
    open_index,
    require_row,
    voice_from_row,
)
from .prompt_cache import PromptCache

__all__ = ["StoredVoice", "VoiceMetadata", "VoicePrompt", "VoiceStore", "VoiceStoreLimits", "checked_id"]

_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class VoiceStoreLimits:
    """How much is kept. An owner's share is what keeps one key from filling the house.

    max_bytes: on disk, where a voice takes 170 to 500 kB. max_cache_bytes: of prompts held ready.
    """

    max_voices: int = 10_000
    max_voices_per_owner: int = 1_000
    max_bytes: int = 4 * 2**30
    max_cache_bytes: int = 128 * 2**20


class VoiceStore:
    """A folder of voices. Safe from any thread and from several processes; blocks for milliseconds.

    version: of the bundle that the prompts are for, 2 or 3; None to look after the folder without one.
    Every method raises Overloaded where the disk is full or the lock is not to be had, with nothing changed.
    """

    def __init__(
        self,
        folder: Path,
        version: int | None,
        limits: VoiceStoreLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the folder, make it where there is none; raises BundleError for one that is none of ours."""
        self.folder = folder
        self.version = version
        self.limits = limits or VoiceStoreLimits()
        self.cache = PromptCache(self.limits.max_cache_bytes)
        self._clock = clock
        self._contents = folder / "contents"
        with ExitStack() as opened:
            with _store_errors(folder):
                # A voice is personal: nobody else on the machine needs to read it.
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
        """Let go of the index; nothing is lost without it."""
        self._resources.close()

    def add(
        self,
        prompt: VoicePrompt,
        *,
        name: str,
        about: VoiceMetadata | None = None,
        voice_id: str | None = None,
    ) -> StoredVoice:
        """Keep a prompt under an id, a new one unless one is given; raises BadRequest over a limit."""
        voice_id = _new_id() if voice_id is None else checked_id(voice_id)
        about = checked_metadata(about or VoiceMetadata())
        with self._transaction() as index:
            if find_row(index, voice_id) is not None:
                raise BadRequest(f"there is a voice {voice_id!r} already; remove it first or take another id")
            self._check_count(index, about.owner)
            size = self._write(index, prompt)
            now = self._clock()
            voice = StoredVoice(
                voice_id,
                checked_name(name),
                prompt.id,
                prompt.version.value,
                size,
                prompt.transcript,
                now,
                now,
                about,
            )
            values = (*astuple(voice)[:-1], *astuple(about))
            index.execute(f"INSERT INTO voices VALUES ({', '.join('?' * len(values))})", values)
        return voice

    def get(self, voice_id: str) -> VoicePrompt:
        """The prompt of a voice.

        Raises UnknownVoice, BadRequest for one of another release, BundleError for a damaged file.
        """
        voice = self._require(voice_id)
        if self.version is not None and voice.version != self.version:
            raise BadRequest(
                f"voice {voice_id!r} was enrolled with CosyVoice {voice.version}, and CosyVoice "
                f"{self.version} is loaded; enrol its recording again"
            )
        try:
            return self.cache.get(voice.content, lambda: self._load(voice))
        except FileNotFoundError as error:
            if self._require(voice_id).content != voice.content:
                return self.get(voice_id)  # given a new recording between the look and the load
            raise BundleError(f"voice {voice_id!r}: its file is gone; enrol it again") from error
        except OSError as error:
            raise _store_unavailable(error.strerror or str(error)) from error

    def find(self, voice_id: str) -> StoredVoice | None:
        """What is known about a voice; None where there is none."""
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
        """Voices in order of age: of these owners, that name, a release; None: of any. most: -1 for all."""
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

    def rename(self, voice_id: str, name: str) -> StoredVoice:
        """Give a voice another name; raises UnknownVoice."""
        with self._transaction() as index:
            index.execute(
                "UPDATE voices SET name = ?, changed_at = ? WHERE id = ?",
                (checked_name(name), self._clock(), voice_id),
            )
            return require_row(index, voice_id)

    def replace(self, voice_id: str, prompt: VoicePrompt, about: VoiceMetadata | None = None) -> StoredVoice:
        """Give a voice another prompt, and what is known about it unless None; raises UnknownVoice."""
        with self._transaction() as index:
            before = require_row(index, voice_id)
            size = self._write(index, prompt)
            values = (
                *(prompt.id, prompt.version.value, size, prompt.transcript, self._clock()),
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

    def remove(self, voice_id: str) -> StoredVoice:
        """Delete a voice, and its file with the last id that has it; what it was. Raises UnknownVoice."""
        with self._transaction() as index:
            voice = require_row(index, voice_id)
            index.execute("DELETE FROM voices WHERE id = ?", (voice_id,))
        self._delete_if_unreferenced(voice.content)
        return voice

    def _require(self, voice_id: str) -> StoredVoice:
        with self._reading_index() as index:
            return require_row(index, voice_id)

    def _load(self, voice: StoredVoice) -> VoicePrompt:
        try:
            prompt = VoicePrompt.load(self._path(voice.content))
        except VoicePromptError as fault:
            raise BundleError(f"voice {voice.id!r}: {fault}") from fault
        if prompt.id != voice.content:
            raise BundleError(f"voice {voice.id!r}: its file was changed or damaged; enrol it again")
        return prompt

    def _path(self, content: str) -> Path:
        return self._contents / f"{content}.npz"

    def _write(self, index: sqlite3.Connection, prompt: VoicePrompt) -> int:
        """Put a prompt on disk for good, and say how many bytes; under the lock."""
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
        """Delete a file that no voice has any more."""
        with self._transaction() as index:
            if not index.execute("SELECT 1 FROM voices WHERE content = ?", (content,)).fetchone():
                self._path(content).unlink(missing_ok=True)

    def _delete_orphans(self, index: sqlite3.Connection) -> None:
        """Delete what a crash has left; under the lock, which whoever writes a file holds."""
        kept = {f"{content}.npz" for (content,) in index.execute("SELECT DISTINCT content FROM voices")}
        for path in self._contents.iterdir():
            if path.name not in kept:
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
