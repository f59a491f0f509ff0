"""API keys: made, kept as hashes in one file, checked in constant time, revoked while the server runs.

    vv_3f9c2a71_q0T...            the key, shown once: an id to find it by, and 256 random bits
    {"id": "3f9c2a71", "secret_sha256": ..., "name": ..., "scopes": [...], ...}      what is kept

A plain SHA-256 is enough for a secret that nobody can guess: slow hashes protect passwords that people
choose, and would let a flood of wrong keys occupy the processor.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from ...tts_engine.errors import BadRequest
from .errors import KeyRefused

logger = logging.getLogger(__name__)

_KEY = re.compile(r"vv_([0-9a-f]{8})_([A-Za-z0-9_-]{43})", re.ASCII)
_NO_SECRET = "0" * 64  # compared with when the id is unknown, so that both take as long


class Scope(StrEnum):
    """What a key may do. admin: everything, metrics and all voices included."""

    SPEAK = "speak"
    ENROL = "enrol"
    CALLS = "calls"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may use; None is as much as it likes."""

    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    streams: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept. created_at, revoked_at: Unix seconds."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    limits: KeyLimits
    created_at: int
    revoked_at: int | None
    secret_sha256: str


class KeysFile:
    """The keys in one JSON file, mode 0600, written whole or not at all. A change is seen at the next check.

    The file is read again when its identity, size or time of change differs from what was read last.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_as: tuple[int, int, int] | None = None
        self._keys: dict[str, Key] = {}
        self._logged = ""  # what is wrong with the file

    def __iter__(self) -> Iterator[Key]:
        self._refresh()
        return iter(tuple(self._keys.values()))

    def check(self, key: str) -> Key:
        """The record of a key; raises KeyRefused, whatever is wrong with it or with the file."""
        try:
            self._refresh()
        except BadRequest as error:
            self._log(str(error))
            raise KeyRefused() from None
        parts = _KEY.fullmatch(key)
        if parts is None:
            raise KeyRefused()
        found = self._keys.get(parts[1])
        wanted = _NO_SECRET if found is None else found.secret_sha256
        matches = hmac.compare_digest(_hashed(parts[2]), wanted)
        if found is None or not matches or found.revoked_at is not None:
            raise KeyRefused()
        return found

    def add(self, name: str, scopes: tuple[Scope, ...], limits: KeyLimits) -> str:
        """Make a key and keep its hash; the key itself is in the answer and nowhere else."""
        if not scopes:
            raise BadRequest("a key without scopes may do nothing; give at least one")
        with self._exclusively() as keys:
            id, secret = _unused_id(keys), secrets.token_urlsafe(32)
            keys[id] = Key(id, name, scopes, limits, int(time.time()), None, _hashed(secret))
        return f"vv_{id}_{secret}"

    def revoke(self, id: str) -> Key:
        """Refuse a key from now on; raises BadRequest where no key has that id."""
        with self._exclusively() as keys:
            if id not in keys:
                raise BadRequest(f"no key {id!r} in {self._path}")
            if keys[id].revoked_at is None:
                keys[id] = replace(keys[id], revoked_at=int(time.time()))
            return keys[id]

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._keys, self._read_as = {}, None
            return
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if identity != self._read_as:
            self._keys = _read(self._path)
            self._read_as = identity
            self._logged = ""

    def _log(self, fault: str) -> None:
        if fault != self._logged:  # once, not at every request
            logger.error("Nobody is let in: %s", fault)
            self._logged = fault

    @contextmanager
    def _exclusively(self) -> Iterator[dict[str, Key]]:
        """The keys to change, written when the block ends well; other processes wait meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path.with_name(self._path.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = _read(self._path) if self._path.exists() else {}
            yield keys
            _write(self._path, keys)


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _unused_id(keys: dict[str, Key]) -> str:
    while (id := secrets.token_hex(4)) in keys:
        pass
    return id


def _read(path: Path) -> dict[str, Key]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["keys"]
        return {entry["id"]: _key(entry) for entry in entries}
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f"{path}: no file of keys ({error!r}); restore it or make a new one") from error


def _key(entry: dict[str, object]) -> Key:
    fields = dict(entry)
    scopes = tuple(Scope(scope) for scope in fields.pop("scopes"))  # type: ignore[attr-defined]
    limits = KeyLimits(**fields.pop("limits"))  # type: ignore[arg-type]
    return Key(scopes=scopes, limits=limits, **fields)  # type: ignore[arg-type]


def _write(path: Path, keys: dict[str, Key]) -> None:
    content = json.dumps({"keys": [asdict(key) for key in keys.values()]}, indent=2)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # made with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
