"""The folder that clients may name files of: recordings that they read, speech that the server writes.

    FOLDER/recordings/anna.wav         placed by the operator; read when a client names "anna.wav"
    FOLDER/speech/KEY/output.wav       written for a client's key

APIs of servers that run beside their client exchange paths instead of audio. A client's path is looked up in
the folder and nowhere else: an absolute path, "..", and a link that leads outside are refused. Only the user
of the server may read what it writes.
"""

import os
import re
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from ....tts_engine.errors import BadRequest, Overloaded
from ...access.private_files import create_private_file, make_private_folder, write_all
from ...web.errors import ResourceNotFound

MAX_RECORDING_BYTES: Final = 20_000_000
MAX_SPEECH_FILES: Final = 1_000  # of a key; beyond it the oldest are deleted
_MAX_NAME_CHARACTERS: Final = 256
_MAX_PART_BYTES: Final = 255  # between two slashes, as file systems allow
_RETRY_AFTER_S: Final = 60.0  # until the operator has made room on the disk


class ExchangeFolder:
    """Reads recordings and writes speech; without a folder it refuses both. The methods take milliseconds."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = None if folder is None else folder.resolve()

    def read_recording(self, name: str) -> bytes:
        """Return the bytes of a recording; raises BadRequest, or ResourceNotFound if there is none."""
        path = self._path_in("recordings", name)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_RECORDING_BYTES + 1)
        except OSError:
            raise ResourceNotFound(f"there is no recording {name!r} in the server's folder") from None
        if len(data) > MAX_RECORDING_BYTES:
            raise BadRequest(f"the recording {name!r} has more than {MAX_RECORDING_BYTES:,} bytes")
        return data

    def check_writable(self, name: str, key_id: str) -> None:
        """Raise BadRequest if ``write_speech`` would refuse the name."""
        self._speech_path(name, key_id)

    def write_speech(self, name: str, data: bytes, key_id: str) -> Path:
        """Write a file of a key's speech; return its path. Raises BadRequest, or Overloaded if it cannot.

        A file of that name is replaced.
        """
        path = self._speech_path(name, key_id)
        draft = path.with_name(f".{os.urandom(8).hex()}")
        try:
            make_private_folder(path.parent)
            with create_private_file(draft) as file:
                write_all(file, data)
            draft.replace(path)
            self._delete_oldest(_speech_place(key_id))
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise Overloaded(
                f"the speech cannot be written: {error.strerror}", reason="disk", retry_after_s=_RETRY_AFTER_S
            ) from None
        return path

    def _speech_path(self, name: str, key_id: str) -> Path:
        path = self._path_in(_speech_place(key_id), name)
        if path.is_dir() or any(parent.is_file() for parent in path.parents):
            raise BadRequest(f"path {name[:80]!r} is a folder, or a part of it is a file")
        return path

    def _path_in(self, place: str, name: str) -> Path:
        if self._folder is None:
            raise BadRequest("this server exchanges no files; it needs a folder (setting 'exchange_folder')")
        parts = PurePosixPath(name.replace("\\", "/"))
        is_unsafe = not parts.name or parts.is_absolute() or ".." in parts.parts or not name.isprintable()
        if is_unsafe or len(name) > _MAX_NAME_CHARACTERS or parts.name.startswith("."):
            raise BadRequest(f"got path {name[:80]!r}; allowed are names inside the server's folder")
        if any(len(part.encode()) > _MAX_PART_BYTES for part in parts.parts):
            raise BadRequest(f"path {name[:80]!r} has a part of more than {_MAX_PART_BYTES} bytes")
        root = self._folder / place
        path = (root / parts).resolve()  # follows links
        if not path.is_relative_to(root):
            raise BadRequest(f"path {name[:80]!r} leads outside the server's folder")
        return path

    def _delete_oldest(self, place: str) -> None:
        assert self._folder is not None
        files = [path for path in (self._folder / place).rglob("*") if path.is_file()]
        if len(files) > MAX_SPEECH_FILES:
            files.sort(key=_modified_at)
            for path in files[:-MAX_SPEECH_FILES]:
                path.unlink(missing_ok=True)


def _modified_at(path: Path) -> float:
    with suppress(FileNotFoundError):  # another thread has deleted it, or it was a draft
        return path.stat().st_mtime
    return 0.0


def _speech_place(key_id: str) -> str:
    return f"speech/{re.sub(r'[^A-Za-z0-9_-]', '_', key_id)}"
