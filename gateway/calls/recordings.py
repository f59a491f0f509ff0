"""Recordings of calls: WAV files with the caller on the left and the speech on the right.

The media report both sides with the time at which they were sent or received (``RecordedAudio``). One thread
opens and writes the files of all calls, once a second and call; a file can be read while its call is up, and
after a crash. Only the user of the server may read them. A disk that fails or is too slow ends recordings,
not calls.
"""

import asyncio
import errno
import logging
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from ...adapters.audio.call_timeline import CallSide, CallTimeline
from ...adapters.audio.pcm import wav_header
from ...adapters.audio.resample import Resampler, soxr_resampler
from ...adapters.media.call_media import CallMedia, RecordedAudio
from ...tts_engine.errors import BadRequest, VivavoceError
from ..access.private_files import create_private_file, make_private_folder, write_all

logger = logging.getLogger(__name__)

_WRITE_EVERY_S: Final = 1.0
_MAX_NAME_BYTES: Final = 100  # of the call's id in a file's name, which has at most 255
_MAX_UNWRITTEN_BYTES: Final = 128 << 20  # of all calls: 40 s of 100 calls at 8 kHz
_MAX_WAV_BYTES: Final = 0xFFFFFFFF - 36  # of audio: the header has 32 bits for the length of all after them

Result = TypeVar("Result")


class CallNotRecordable(BadRequest):
    """The call cannot be recorded, or not any more."""


class RecordingFailed(VivavoceError):
    """The file of a recording cannot be made, or could not be written to its end; the message says why."""


class CallRecordings:
    """Makes the recorders of calls, and has the thread that writes their files, in the order of submissions.

    At most 128 MiB of audio wait for it. All methods but ``_write`` belong to the event loop's thread.

    Args:
        folder: of the files; it is made if it is missing.
        records_all: whether each call is recorded from its beginning.
    """

    def __init__(
        self, folder: Path, *, records_all: bool = False, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.records_all = records_all
        self._folder = folder
        self._now = now
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="vivavoce-recordings")
        self._submitted_bytes = 0
        self._written_bytes = 0  # or dropped; only the writer's thread changes it

    def begin(
        self, call_id: str, sample_rate: int, on_broken: Callable[["CallRecorder", RecordingFailed], None]
    ) -> "CallRecorder":
        """Record a call at ``sample_rate`` (Hz) from now on; ``on_broken`` as in ``CallRecorder``."""
        safe_id = re.sub(r"[^\w.-]", "_", call_id).encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
        path = self._folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_id}.wav"
        return CallRecorder(call_id, path, sample_rate, self, self._now, on_broken)

    def submit(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run ``work`` in the thread."""
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def submit_audio(self, write: Callable[[bytes], None], pcm: bytes) -> bool:
        """Run ``write(pcm)`` in the thread; return False, and do nothing, if too much waits already."""
        if self._submitted_bytes - self._written_bytes + len(pcm) > _MAX_UNWRITTEN_BYTES:
            return False
        self._submitted_bytes += len(pcm)
        self._executor.submit(self._write, write, pcm)
        return True

    def close(self) -> None:
        """Wait until every file is written. Recorders must be closed."""
        self._executor.shutdown()

    def _write(self, write: Callable[[bytes], None], pcm: bytes) -> None:
        try:
            write(pcm)
        finally:
            self._written_bytes += len(pcm)


class CallRecorder:
    """Records one call, from its making to ``close``.

    ``_open``, ``_write`` and ``_close`` belong to the writer's thread, all else to the event loop's.

    Args:
        path: of the file; a number is added if there is one of that name.
        sample_rate: Hz, of the file.
        on_broken: called once in the event loop, with the error, if the file cannot be written to its end.
    """

    def __init__(
        self,
        call_id: str,
        path: Path,
        sample_rate: int,
        writer: CallRecordings,
        now: Callable[[], float],
        on_broken: Callable[["CallRecorder", RecordingFailed], None],
    ) -> None:
        self._call_id = call_id
        self._path = path
        self._sample_rate = sample_rate
        self._writer = writer
        self._now = now
        self._timeline = CallTimeline(start=now(), sample_rate=sample_rate)
        self._resamplers: dict[tuple[CallSide, int], Resampler] = {}
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._has_ended = False  # audio is dropped from now on
        self._is_broken = False  # audio that waits is dropped too; belongs to the writer's thread
        self._file: BinaryIO | None = None  # from ``_open`` on; belongs to the writer's thread
        self._audio_bytes = 0  # in the file
        self.opened = writer.submit(self._open)  # name of the file, or RecordingFailed
        self._timer = self._loop.call_later(_WRITE_EVERY_S, self._write_due)

    def take(self, audio: RecordedAudio) -> None:
        """Take audio of one side."""
        side = CallSide.CALLER if audio.from_caller else CallSide.AGENT
        if audio.drops_later:
            self._timeline.cut(side, audio.at)
        self._timeline.add(side, self._resampled(side, audio), audio.at)

    def close(self) -> None:
        """Write the rest and close the file."""
        self._timer.cancel()
        self._submit_until(self._now())
        self._writer.submit(self._close)

    def _resampled(self, side: CallSide, audio: RecordedAudio) -> bytes:
        if audio.sample_rate == self._sample_rate:
            return audio.pcm
        key = (side, audio.sample_rate)
        if key not in self._resamplers:
            self._resamplers[key] = soxr_resampler(audio.sample_rate, self._sample_rate)
        return self._resamplers[key].push(audio.pcm)

    def _write_due(self) -> None:
        self._timer = self._loop.call_later(_WRITE_EVERY_S, self._write_due)
        self._submit_until(self._timeline.settled(self._now()))

    def _submit_until(self, until: float) -> None:
        for pcm in self._timeline.pieces(until):
            self._submit(pcm)

    def _submit(self, pcm: bytes) -> None:
        if pcm and not self._has_ended and not self._writer.submit_audio(self._write, pcm):
            self._end(f"the disk is too slow, {_MAX_UNWRITTEN_BYTES >> 20} MiB of recordings are unwritten")

    def _end(self, reason: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        logger.error("Call %s: its recording %s ends here: %s", self._call_id, self._path, reason)
        self._on_broken(self, RecordingFailed(f"the recording {self._path.name} ended: {reason}"))

    def _open(self) -> str:
        try:
            make_private_folder(self._path.parent)
            self._file = self._create()
            self._write_header(self._file)  # a disk that is full is found now
        except OSError as error:
            self._is_broken = True
            if self._file is not None:
                self._path.unlink(missing_ok=True)
            raise RecordingFailed(f"the call cannot be recorded: {error}") from error
        return self._path.name

    def _create(self) -> BinaryIO:
        stem, number = self._path.stem, 1
        while True:
            try:
                return create_private_file(self._path)
            except FileExistsError:
                number += 1
                self._path = self._path.with_stem(f"{stem}-{number}")

    def _write(self, pcm: bytes) -> None:
        if self._file is None or self._is_broken:
            return
        try:
            if self._audio_bytes + len(pcm) > _MAX_WAV_BYTES:
                raise OSError(errno.EFBIG, "a WAV file has at most 4 GiB")
            self._file.seek(0, os.SEEK_END)
            write_all(self._file, pcm)
            self._audio_bytes += len(pcm)
            self._write_header(self._file)
        except OSError as error:
            self._is_broken = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._end, str(error))

    def _write_header(self, file: BinaryIO) -> None:
        file.seek(0)
        write_all(file, wav_header(self._sample_rate, self._audio_bytes, channels=len(CallSide)))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


class CallRecording:
    """Whether and where one call is recorded.

    Args:
        media: of the call; they report what is recorded.
        recordings: makes the recorders; None: the call cannot be recorded.
        on_failed: takes the error of a file that could not be made, or not be written to its end.
        closed: set at the end of the call.
    """

    def __init__(
        self,
        call_id: str,
        media: CallMedia,
        recordings: CallRecordings | None,
        on_failed: Callable[[RecordingFailed], None],
        closed: asyncio.Event,
    ) -> None:
        self._call_id, self._media, self._recordings = call_id, media, recordings
        self._on_failed = on_failed
        self._closed = closed
        self._recorder: CallRecorder | None = None
        self._failure: RecordingFailed | None = None  # of the last recording, until a caller is told

    @property
    def is_on(self) -> bool:
        """Whether the call is being recorded."""
        return self._recorder is not None

    def begin(self) -> "asyncio.Future[str]":
        """Record from now on, if not already.

        The result is the file's name, or RecordingFailed: of the new file, or of one that ended by itself
        before; then nothing is begun. It need not be awaited. Raises CallNotRecordable.
        """
        if self._closed.is_set():
            raise CallNotRecordable("the call is over")
        if self._recordings is None:
            raise CallNotRecordable("calls cannot be recorded; the setting recordings names no folder")
        if self._failure is not None:
            return self._report_failure()
        if self._recorder is None:
            self._recorder = self._recordings.begin(self._call_id, self._media.sample_rate, self._on_broken)
            self._recorder.opened.add_done_callback(self._on_opened)
            self._media.set_recording(True)
        return self._recorder.opened

    def end(self) -> "asyncio.Future[str]":
        """End the recording. The result is as that of ``begin``, or "" if there was none."""
        if self._failure is not None:
            return self._report_failure()
        recorder = self._stop()
        if recorder is None:
            nothing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            nothing.set_result("")
            return nothing
        return recorder.opened

    def take(self, audio: RecordedAudio) -> None:
        """Record audio of either side, unless the recording has ended."""
        if self._recorder is not None:
            self._recorder.take(audio)

    def _stop(self) -> CallRecorder | None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self._media.set_recording(False)
            recorder.close()
        return recorder

    def _report_failure(self) -> "asyncio.Future[str]":
        assert self._failure is not None
        failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        failed.set_exception(self._failure)
        failed.exception()  # it need not be awaited
        self._failure = None
        return failed

    def _on_opened(self, opened: "asyncio.Future[str]") -> None:
        if opened.cancelled() or (error := opened.exception()) is None:
            return
        logger.error("Call %s: %s", self._call_id, error)
        if self._recorder is not None and self._recorder.opened is opened:
            self._stop()
        if isinstance(error, RecordingFailed):
            self._on_failed(error)

    def _on_broken(self, recorder: CallRecorder, error: RecordingFailed) -> None:
        if recorder is self._recorder:
            self._stop()
            self._failure = error
        self._on_failed(error)
