"""API keys: created, stored as hashes in one file, verified in constant time, revoked while the server runs.

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
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from ...tts_engine.errors import BadRequest
from .errors import KeyRefused

logger = logging.getLogger(__name__)

_KEY_PATTERN = re.compile(r"vv_([0-9a-f]{8})_([A-Za-z0-9_-]{43})", re.ASCII)
_KEYS_FILE_REMEDY = "restore it, or name a new file, which 'vivavoce keys add' makes"
_DUMMY_SECRET_SHA256 = "0" * 64  # compared if the id is unknown, so that both cases take the same time


class Scope(StrEnum):
    """A permission of a key. ``ADMIN`` includes all others, the metrics and the voices of all keys."""

    SPEAK = "speak"
    ENROLL = "enrol"
    CALLS = "calls"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a key; None is unlimited."""

    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    streams: int | None = None  # open at once


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


class KeysFile:
    """The keys of one JSON file, of mode 0600.

    A write replaces the file as a whole. The file is read again at the next check after its inode, size or
    modification time has changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_identity: tuple[int, int, int] | None = None
        self._keys: dict[str, ApiKey] = {}
        self._merged: dict[str, ApiKey] = {}
        self._logged_fault = ""  # the fault of the file that was logged last

    def __iter__(self) -> Iterator[ApiKey]:
        self._refresh()
        return iter(tuple(self._keys.values()))

    def check(self, key: str) -> ApiKey:
        """Return the record of a key; raise KeyRefused if it is not valid or the file cannot be read."""
        try:
            self._refresh()
        except BadRequest as error:
            self._log_fault_once(str(error))
            raise KeyRefused() from None
        parts = _KEY_PATTERN.fullmatch(key)
        if parts is None:
            raise KeyRefused()
        record = self._find(parts[1])
        expected_sha256 = _DUMMY_SECRET_SHA256 if record is None else record.secret_sha256
        matches = hmac.compare_digest(_sha256(parts[2]), expected_sha256)
        if record is None or not matches or record.revoked_at is not None:
            raise KeyRefused()
        return record

    def add(
        self, name: str, scopes: tuple[Scope, ...], limits: KeyLimits, lexicon: Path | None = None
    ) -> str:
        """Make a key, store its hash and return the key, which is stored nowhere; raise BadRequest."""
        if not scopes:
            raise BadRequest("a key without scopes has no use; give at least one")
        with self._locked_for_change() as keys:
            id, secret = _unused_id(keys), secrets.token_urlsafe(32)
            path = None if lexicon is None else str(lexicon.absolute())
            keys[id] = ApiKey(id, name, scopes, limits, int(time.time()), None, _sha256(secret), path)
        return f"vv_{id}_{secret}"

    def revoke(self, id: str) -> ApiKey:
        """Refuse a key from now on and return its record; raise BadRequest if no key has that id."""
        with self._locked_for_change() as keys:
            if id not in keys:
                raise BadRequest(f"no key {id!r} in {self._path}")
            if keys[id].revoked_at is None:
                keys[id] = replace(keys[id], revoked_at=int(time.time()))
            return keys[id]

    def merge(self, keys: Iterable[ApiKey]) -> None:
        """Accept the keys of other gateways too. A key that one of them revoked is revoked."""
        self._merged = {key.id: key for key in keys}

    def _find(self, id: str) -> ApiKey | None:
        own, merged = self._keys.get(id), self._merged.get(id)
        if own is None or (merged is not None and merged.revoked_at is not None):
            return merged
        return own

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._keys, self._read_identity = {}, None
            return
        except OSError as error:
            raise _unreadable(self._path, error) from error
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if identity != self._read_identity:
            self._keys = _read_keys(self._path)
            self._read_identity = identity
            self._logged_fault = ""

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
    fields = dict(entry)
    scopes = tuple(Scope(scope) for scope in fields.pop("scopes"))  # type: ignore[attr-defined]
    limits = KeyLimits(**fields.pop("limits"))  # type: ignore[arg-type]
    if not isinstance(fields.get("lexicon"), str | None):
        raise TypeError(f"lexicon is {fields['lexicon']!r}; allowed is a path or null")
    return ApiKey(scopes=scopes, limits=limits, **fields)  # type: ignore[arg-type]


def _write_keys(path: Path, keys: dict[str, ApiKey]) -> None:
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
