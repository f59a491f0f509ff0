"""Recordings of calls: WAV files with the caller on the left and the speech on the right.

The media report both sides with the time at which they were sent or received (``RecordedAudio``). One thread
writes the files of all calls, once a second and call; a file can be read while its call is up, and after a
crash. A disk that fails ends recordings, not calls.
"""

import logging
import re
import time
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ...adapters.audio.call_timeline import CallSide, CallTimeline
from ...adapters.audio.resample import Resampler, soxr_resampler
from ...adapters.media.call_media import CallMedia, RecordedAudio
from ...tts_engine.errors import BadRequest, VivavoceError

logger = logging.getLogger(__name__)

_WRITE_EVERY_S: Final = 1.0
_MAX_LATE_S: Final = 1.0  # after which audio of a side is taken for missing
_MAX_NAME_CHARACTERS: Final = 100  # of the call's id in a file's name


class CallNotRecordable(BadRequest):
    """Calls cannot be recorded here."""


class RecordingFailed(VivavoceError):
    """The file of a recording cannot be made; the message names the system's error."""


class CallRecorder:
    """Records one call. All methods but ``_write`` belong to the event loop's thread.

    Args:
        wav: open file, 16 bit stereo at ``sample_rate``; ``close`` closes it.
        writer: writes it, in the order of the submissions.
    """

    def __init__(
        self,
        call_id: str,
        path: Path,
        wav: wave.Wave_write,
        writer: ThreadPoolExecutor,
        now: Callable[[], float],
    ) -> None:
        self.path = path
        self._call_id = call_id
        self._wav = wav
        self._writer = writer
        self._now = now
        self._sample_rate = wav.getframerate()
        self._timeline = CallTimeline(start=now(), sample_rate=self._sample_rate)
        self._resamplers: dict[tuple[CallSide, int], Resampler] = {}
        self._write_at = now() + _WRITE_EVERY_S
        self._failed = False

    def take(self, audio: RecordedAudio) -> None:
        """Take audio of one side."""
        side = CallSide.CALLER if audio.from_caller else CallSide.AGENT
        if audio.drops_later:
            self._timeline.cut(side, audio.at)
        self._timeline.add(side, self._resampled(side, audio), audio.at)
        now = self._now()
        if now >= self._write_at:
            self._write_at = now + _WRITE_EVERY_S
            self._submit(self._timeline.take(now - _MAX_LATE_S))

    def close(self) -> None:
        """Write the rest and close the file."""
        self._submit(self._timeline.take(self._now()))
        self._writer.submit(self._close)

    def _resampled(self, side: CallSide, audio: RecordedAudio) -> bytes:
        if audio.sample_rate == self._sample_rate:
            return audio.pcm
        key = (side, audio.sample_rate)
        if key not in self._resamplers:
            self._resamplers[key] = soxr_resampler(audio.sample_rate, self._sample_rate)
        return self._resamplers[key].push(audio.pcm)

    def _submit(self, pcm: bytes) -> None:
        if pcm and not self._failed:
            self._writer.submit(self._write, pcm)

    def _write(self, pcm: bytes) -> None:
        if self._failed:
            return
        try:
            self._wav.writeframes(pcm)
        except OSError as error:
            self._failed = True
            logger.error("Call %s: its recording %s ends here: %s", self._call_id, self.path, error)

    def _close(self) -> None:
        try:
            self._wav.close()
        except OSError as error:
            logger.error("Call %s: its recording %s is incomplete: %s", self._call_id, self.path, error)


class CallRecordings:
    """Makes the recorders of calls.

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
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="vivavoce-recordings")

    def begin(self, call_id: str, sample_rate: int) -> CallRecorder:
        """Open a file for a call at ``sample_rate`` (Hz); raises RecordingFailed."""
        name = re.sub(r"[^\w.-]", "_", call_id)[:_MAX_NAME_CHARACTERS]
        path = self._folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}.wav"
        number = 1
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            while path.exists():
                number += 1
                path = path.with_stem(f"{path.stem.removesuffix(f'-{number - 1}')}-{number}")
            wav = wave.Wave_write(str(path))
        except OSError as error:
            raise RecordingFailed(f"the call cannot be recorded: {error}") from error
        wav.setnchannels(len(CallSide))
        wav.setsampwidth(2)
        wav.setframerate(sample_rate)
        return CallRecorder(call_id, path, wav, self._writer, self._now)

    def close(self) -> None:
        """Wait until every file is written. Recorders must be closed."""
        self._writer.shutdown()


class CallRecording:
    """Whether and where one call is recorded.

    Args:
        media: of the call; they report what is recorded.
        recordings: makes the recorders; None: the call cannot be recorded.
    """

    def __init__(self, call_id: str, media: CallMedia, recordings: CallRecordings | None) -> None:
        self._call_id, self._media, self._recordings = call_id, media, recordings
        self._recorder: CallRecorder | None = None

    def begin(self) -> str:
        """Record from now on, if not already; return the file's name.

        Raises CallNotRecordable and RecordingFailed.
        """
        if self._recordings is None:
            raise CallNotRecordable("calls cannot be recorded; the setting recordings names no folder")
        if self._recorder is None:
            self._recorder = self._recordings.begin(self._call_id, self._media.sample_rate)
            self._media.set_recording(True)
        return self._recorder.path.name

    def end(self) -> str:
        """End the recording; return the file's name, "" if there was none."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return ""
        self._media.set_recording(False)
        recorder.close()
        return recorder.path.name

    def take(self, audio: RecordedAudio) -> None:
        """Record audio of either side, unless the recording has ended."""
        if self._recorder is not None:
            self._recorder.take(audio)
