"""API keys: created, stored as hashes in one file, verified in constant time, changed while the server runs.

    vv_3f9c2a71_q0T...            the key, shown once: an id to find it by, and 256 random bits
    {"id": "3f9c2a71", "secret_sha256": ..., "name": ..., "scopes": [...], ...}      its record in the file

A plain SHA-256 protects a random secret of 256 bits. Slow password hashes are for passwords that people
choose, and would let a flood of wrong keys occupy the processor.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import math
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ...tts_engine.errors import BadRequest
from .errors import KeyRefused

logger = logging.getLogger(__name__)

_KEY_PATTERN = re.compile(r"vv_([0-9a-f]{8})_([A-Za-z0-9_-]{43})", re.ASCII)
_KEYS_FILE_REMEDY = "restore it, or name a new file, which 'vivavoce keys add' makes"
_DUMMY_SECRET_SHA256 = "0" * 64  # compared if the id is unknown, so that both cases take the same time
# For which a file that cannot be read ends nothing: an editor may replace a file in two steps.
_UNREADABLE_GRACE_S: Final = 1.0


class Scope(StrEnum):
    """A permission of a key."""

    SPEAK = "speak"
    ENROLL = "enrol"
    PAGE = "page"  # the page and its browser calls
    CALLS_OWN = "calls:own"  # the calls API, for calls that belong to the key
    CALLS_ALL = "calls:all"  # the calls API, for every call; includes CALLS_OWN
    ORIGINATE = "originate"  # placing calls
    ADMIN = "admin"  # all others, the metrics and the voices of all keys
    CALLS = "calls"  # of older keys: PAGE, CALLS_ALL and ORIGINATE


def included_scopes(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return scopes together with those that they include."""
    included = set(scopes)
    if Scope.ADMIN in included:
        return frozenset(Scope)
    if Scope.CALLS in included:
        included |= {Scope.PAGE, Scope.CALLS_ALL, Scope.ORIGINATE}
    if Scope.CALLS_ALL in included:
        included.add(Scope.CALLS_OWN)
    return frozenset(included)


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a key; None is unlimited."""

    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    streams: int | None = None  # utterances at once
    max_calls: int | None = None  # that the key opened; None: as ``streams``
    max_sockets: int | None = None  # WebSockets; None: unlimited, but as ``streams`` on calls


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The record of a key in the file."""

    id: str  # 8 hexadecimal digits, the public part of the key
    name: str  # for the operator
    scopes: tuple[Scope, ...]
    limits: KeyLimits
    created_at: int  # Unix seconds
    revoked_at: int | None  # Unix seconds; None while the key is valid
    secret_sha256: str  # 64 hexadecimal digits
    lexicon: str | None = None  # path of a lexicon whose words come before the server's
    expires_at: int | None = None  # Unix seconds; None: never
    agents: tuple[str, ...] = ()  # names of agents whose calls belong to the key
    destinations: tuple[str, ...] = ()  # patterns of what may be called; (): everything
    keeps_speech: bool = True  # whether what it says may be kept in memory, for streams that say the same
    complete_wav: bool = False  # whether a WAV is one complete file, if a request does not say 'stream'
    changed_at: int = 0  # Unix seconds of the last change of the record; 0: none

    def is_valid_at(self, unix_s: float) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or unix_s < self.expires_at)

    def permits_as(self, other: "ApiKey") -> bool:
        """Return whether two records of a key permit the same."""
        return (self.secret_sha256, self.scopes, self.agents, self.destinations) == (
            other.secret_sha256,
            other.scopes,
            other.agents,
            other.destinations,
        )

    def as_entry(self) -> dict[str, Any]:
        """Return the record as JSON has it, without fields that have their defaults."""
        return {**_changed_fields(self), "limits": _changed_fields(self.limits)}


class KeysFile:
    """The keys of one JSON file, of mode 0600.

    A write replaces the file as a whole. The file is read again at the next check after its inode, size or
    modification time has changed.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        """Open nothing yet. now: Unix seconds."""
        self._path = path
        self._now = now
        self._read_identity: tuple[int, int, int] | None = None
        self._was_read = False  # a file that is missing has been removed then
        self._keys: dict[str, ApiKey] = {}  # when the file could be read last
        self._merged: dict[str, ApiKey] = {}
        self._unreadable_since = math.inf
        self._logged_fault = ""  # the fault of the file that was logged last

    def __iter__(self) -> Iterator[ApiKey]:
        if not self._path.exists():
            return iter(())
        self._refresh()
        return iter(tuple(self._keys.values()))

    def check(self, key: str) -> ApiKey:
        """Return the record of a key; raise KeyRefused if it is not valid or the file cannot be read."""
        if not self._try_refresh():
            raise KeyRefused()
        parts = _KEY_PATTERN.fullmatch(key)
        if parts is None:
            raise KeyRefused()
        record = self._find(parts[1])
        expected_sha256 = _DUMMY_SECRET_SHA256 if record is None else record.secret_sha256
        matches = hmac.compare_digest(_sha256(parts[2]), expected_sha256)
        if record is None or not matches or not record.is_valid_at(self._now()):
            raise KeyRefused()
        return record

    def is_current(self, record: ApiKey) -> bool:
        """Return whether a key is valid and permits what the record does, which ``check`` returned before.

        A file that is missing or damaged counts after a second.
        """
        is_readable, now = self._try_refresh(), self._now()
        if not is_readable and now >= self._unreadable_since + _UNREADABLE_GRACE_S:
            return False
        found = self._find(record.id)
        return found is not None and found.is_valid_at(now) and found.permits_as(record)

    def add(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        limits: KeyLimits,
        lexicon: str | None = None,
        **others: Any,
    ) -> str:
        """Make a key, store its hash and return the key, which is stored nowhere; raise BadRequest.

        others: fields of ``ApiKey`` that have a default.
        """
        if not scopes:
            raise BadRequest("a key without scopes has no use; give at least one")
        with self._locked_for_change() as keys:
            id, secret = _unused_id(keys), secrets.token_urlsafe(32)
            made_at = int(self._now())
            keys[id] = ApiKey(id, name, scopes, limits, made_at, None, _sha256(secret), lexicon, **others)
        return f"vv_{id}_{secret}"

    def change(self, id: str, change: Callable[[ApiKey], ApiKey]) -> ApiKey:
        """Replace the record of a key and return it; raise BadRequest if no key has that id."""
        with self._locked_for_change() as keys:
            if id not in keys:
                raise BadRequest(f"no key {id!r} in {self._path}")
            changed = change(keys[id])
            if changed != keys[id]:
                keys[id] = replace(changed, changed_at=max(int(self._now()), keys[id].changed_at + 1))
            return keys[id]

    def revoke(self, id: str) -> ApiKey:
        """Refuse a key from now on and return its record; raise BadRequest if no key has that id."""
        revoked_at = int(self._now())
        return self.change(id, lambda key: replace(key, revoked_at=key.revoked_at or revoked_at))

    def merge(self, keys: Iterable[ApiKey]) -> None:
        """Accept the keys of other gateways too.

        A key that one of them revoked is revoked; otherwise the record that was changed last counts.
        """
        self._merged = {key.id: key for key in keys}

    def _find(self, id: str) -> ApiKey | None:
        own, merged = self._keys.get(id), self._merged.get(id)
        return own if merged is None else latest_record(own, merged)

    def _try_refresh(self) -> bool:
        """Read the file if it has changed; return whether it can be read, and log why it cannot."""
        try:
            self._refresh()
        except BadRequest as error:
            self._log_fault_once(str(error))
            self._unreadable_since = min(self._unreadable_since, self._now())
            return False
        return True

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self._was_read:
                return  # the gateway has the keys of others
            self._read_identity = None
            raise _unreadable(self._path, error) from error
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if identity != self._read_identity:
            self._keys = _read_keys(self._path)
            self._read_identity, self._was_read = identity, True
        self._unreadable_since, self._logged_fault = math.inf, ""

    def _log_fault_once(self, fault: str) -> None:
        if fault != self._logged_fault:  # once, not at every request
            logger.error("All keys are refused: %s", fault)
            self._logged_fault = fault

    @contextmanager
    def _locked_for_change(self) -> Iterator[dict[str, ApiKey]]:
        """Yield the keys for a change, written if the block does not raise; other processes wait."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path.with_name(self._path.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = _read_keys(self._path) if self._path.exists() else {}
            yield keys
            _write_keys(self._path, keys)


def latest_record(own: ApiKey | None, other: ApiKey) -> ApiKey:
    """Return which of two records of a key counts: a revoked one, or else the one that was changed last."""
    if own is None or other.revoked_at is not None:
        return other
    if own.revoked_at is not None:
        return own
    return other if other.changed_at > own.changed_at else own


def _changed_fields(record: "ApiKey | KeyLimits") -> dict[str, Any]:
    # A gateway of an older version can read a record without what is new to it.
    values = ((field, getattr(record, field.name)) for field in fields(record))
    return {
        field.name: value for field, value in values if field.default is MISSING or value != field.default
    }


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _unused_id(keys: dict[str, ApiKey]) -> str:
    while (id := secrets.token_hex(4)) in keys:
        pass
    return id


def _read_keys(path: Path) -> dict[str, ApiKey]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["keys"]
        return {entry["id"]: parse_key(entry) for entry in entries}
    except OSError as error:
        raise _unreadable(path, error) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"{path}: not a keys file: not JSON ({error}); {_KEYS_FILE_REMEDY}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"{path}: not a keys file: got {error!r}; {_KEYS_FILE_REMEDY}") from error


def _unreadable(path: Path, error: OSError) -> BadRequest:
    return BadRequest(f"{path}: cannot be read: {error.strerror}")


def parse_key(entry: dict[str, object]) -> ApiKey:
    """Read a record. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
    record = dict(entry)
    scopes = tuple(Scope(scope) for scope in record.pop("scopes"))  # type: ignore[attr-defined]
    limits = KeyLimits(**record.pop("limits"))  # type: ignore[arg-type]
    if not isinstance(record.get("lexicon"), str | None):
        raise TypeError(f"lexicon is {record['lexicon']!r}; allowed is a path or null")
    if not isinstance(record.get("expires_at"), int | None):
        raise TypeError(f"expires_at is {record['expires_at']!r}; allowed is a number of seconds or null")
    for name in ("keeps_speech", "complete_wav"):
        if not isinstance(record.get(name, True), bool):
            raise TypeError(f"{name} is {record[name]!r}; allowed is true or false")
    for name in ("agents", "destinations"):
        record[name] = _texts(name, record.get(name, ()))
    return ApiKey(scopes=scopes, limits=limits, **record)  # type: ignore[arg-type]


def _texts(name: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} is {values!r}; allowed is a list of texts")
    return tuple(values)


def _write_keys(path: Path, keys: dict[str, ApiKey]) -> None:
    content = json.dumps({"keys": [key.as_entry() for key in keys.values()]}, indent=2)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # made with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
