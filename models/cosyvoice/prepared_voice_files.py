"""Prepared voices on file: what the networks computed from a recording, so that a restart need not repeat it.

    store/contents/VOICE.npz                      the recording of an enrolled voice
    store/prepared/VOICE.PART-KEY.safetensors     arrays of one network; KEY names the weights and settings

Only voices whose recording is in the store are kept, and they are deleted with it. A file that is damaged or
of another form is deleted and made again. Files are safetensors, which hold no code. A file gets its name
when it is complete, so several processes may share the folder.
"""

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..whole_files import written_whole

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[np.generic]]

_FORMAT = "1"
PREPARED_FOLDER, CONTENTS_FOLDER = "prepared", "contents"


class PreparedVoiceFolder:
    """The prepared voices of a store, for one bundle and one set of settings.

    store: folder of the ``VoiceStore``. key: equal for equal weights and settings. max_bytes: of all files;
    the one that was used longest ago is deleted first.
    """

    def __init__(self, store: Path, key: str, max_bytes: int) -> None:
        self._folder, self._contents = store / PREPARED_FOLDER, store / CONTENTS_FOLDER
        self._key = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._max_bytes = max_bytes

    def keeps(self, voice_id: str) -> bool:
        """Whether the voice may be kept on file: its recording is."""
        return (self._contents / f"{voice_id}.npz").exists()

    def load(self, voice_id: str, part: str, wanted: Arrays) -> dict[str, NDArray[np.generic]] | None:
        """The arrays of a voice, or None. wanted: arrays of the same names, shapes and types."""
        path = self._path(voice_id, part)
        if not (self.keeps(voice_id) and path.exists()):
            return None
        try:
            stored = _read(path, wanted)
            os.utime(path)
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            logger.warning("%s is made again: %s", path.name, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return stored

    def save(self, voice_id: str, part: str, arrays: Arrays) -> None:
        """Keep the arrays of a voice, if it may be kept and there is room."""
        size = sum(array.nbytes for array in arrays.values())
        if not self.keeps(voice_id) or size > self._max_bytes:
            return
        path = self._path(voice_id, part)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if shutil.disk_usage(self._folder).free < 2 * size:
                logger.warning(
                    "%s is not kept: the disk has room for less than twice %d bytes", path.name, size
                )
                return
            self._make_room(size)
            metadata = {"format": _FORMAT, "checksum": _checksum(arrays)}
            contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            with written_whole(path) as partial:
                save_file(contiguous, partial, metadata)
        except (OSError, SafetensorError) as error:
            logger.warning("%s is not kept: %s", path.name, error)

    def _path(self, voice_id: str, part: str) -> Path:
        return self._folder / f"{voice_id}.{part}-{self._key}.safetensors"

    def _make_room(self, size: int) -> None:
        """Delete the files used longest ago until ``size`` more bytes fit."""
        used = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.iterdir())
        total = sum(held for _, held, _ in used)
        for _, held, path in used:
            if total + size <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= held


def _read(path: Path, wanted: Arrays) -> dict[str, NDArray[np.generic]]:
    with safe_open(path, framework="numpy") as file:
        about = file.metadata() or {}
        if about.get("format") != _FORMAT or set(file.keys()) != set(wanted):
            raise ValueError("it is of another form")
        stored = {name: file.get_tensor(name) for name in wanted}
    for name, array in wanted.items():
        if (stored[name].shape, stored[name].dtype) != (array.shape, array.dtype):
            raise ValueError(f"{name} is {list(stored[name].shape)}, expected {list(array.shape)}")
    if about["checksum"] != _checksum(stored):
        raise ValueError("its checksum differs")
    return stored


def _checksum(arrays: Arrays) -> str:
    """The sum of all words; at the speed of memory, where a digest would take a second for 1 GB."""
    total = 0
    for name in sorted(arrays):
        data = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        words = data.view(np.uint64) if data.nbytes % 8 == 0 else data
        total = (total * 31 + int(words.sum(dtype=np.uint64))) % 2**64
    return str(total)
