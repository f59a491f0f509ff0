"""The outputs of ``vivavoce say``: a file of any format, raw samples on a pipe, or a sound player.

Each takes 24 kHz s16le. A player is the package sounddevice, or the first installed one of ``PLAYERS``.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from .....adapters import subtitles
from .....adapters.audio.pcm import wav_header, wav_stream_header
from .....adapters.audio.resample import resampler_to
from .....tts_engine.chunk import Word
from .....tts_engine.errors import BadRequest, VivavoceError

if TYPE_CHECKING:  # imports FFmpeg, which samples do not need
    from .....adapters.audio.encoders import Codec
    from .....adapters.audio.format_kind import Encoder

CODECS: Final[dict[str, "Codec"]] = {
    ".wav": "wav",
    ".mp3": "mp3",
    ".flac": "flac",
    ".opus": "opus",
    ".ogg": "opus",
    ".webm": "webm",
    ".aac": "aac",
    ".m4a": "m4a",
    ".pcm": "pcm",
    ".raw": "pcm",
}
PLAYERS: Final = {  # of a WAV stream on standard input
    "aplay": ("-q", "-"),
    "paplay": ("--raw", "--format=s16le", "--channels=1", "--rate={rate}"),
    "ffplay": ("-loglevel", "error", "-nodisp", "-autoexit", "-"),
}
_HEADERLESS_PLAYERS = frozenset({"paplay"})  # libsndfile reads no WAV from a pipe
_STDOUT = 1


class OutputNotWritable(VivavoceError):
    """The output cannot be written; the message names the file and the system's error."""


class NoSoundDevice(VivavoceError):
    """The system has no device that plays sound, or the device failed."""


class SpeechSink(Protocol):
    """Takes speech, as a context manager that completes it at its end, or drops it after an exception."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...

    def write(self, pcm: bytes) -> None:
        """Take 24 kHz s16le, and wait while the output is full; raises OSError."""


def check_subtitles(file: Path | None) -> None:
    """Raise BadRequest if a file of subtitles has no known extension."""
    if file is not None and file.suffix.lower()[1:] not in subtitles.FORMATS:
        raise BadRequest(f"{file}: subtitles are .{', .'.join(subtitles.FORMATS)}")


def write_subtitles(file: Path, text: str, words: Sequence[Word]) -> None:
    """Write the subtitles of a text. Raises OutputNotWritable."""
    written = subtitles.FORMATS[file.suffix.lower()[1:]](subtitles.make_cues(text, words))
    try:
        file.write_text(written, encoding="utf-8")
    except OSError as error:
        raise OutputNotWritable(f"{file}: {error.strerror}") from error


def check_output(out: str | None) -> None:
    """Raise BadRequest if a file has no known extension, or if ``out`` is None and nothing can play sound."""
    if out is None and not _has_sounddevice() and _find_player() is None:
        raise BadRequest(
            f"found nothing to play sound with ({', '.join(PLAYERS)} or the package sounddevice); "
            "write a file with -o out.wav"
        )
    if out not in (None, "-"):
        _codec_of(Path(str(out)))


def _codec_of(path: Path) -> "Codec":
    try:
        return CODECS[path.suffix.lower()]
    except KeyError:
        raise BadRequest(
            f"-o {path}: got the extension {path.suffix!r}; allowed are {', '.join(CODECS)}, "
            "and - for raw s16le on standard output"
        ) from None


@contextlib.contextmanager
def open_sink(out: str | None, sample_rate: int) -> Iterator[SpeechSink]:
    """Open the output: a file's path, "-" for raw samples on standard output, or None for a player.

    sample_rate: Hz of the output. Raises OutputNotWritable, at the end of the block too.
    """
    try:
        if out == "-":
            # A closed pipe is not an error: the reader has heard enough.
            with contextlib.suppress(BrokenPipeError), StandardOutput(sample_rate) as sink:
                yield sink
        else:
            with _open_player(sample_rate) if out is None else _open_file(Path(out), sample_rate) as sink:
                yield sink
    except OSError as error:
        raise OutputNotWritable(f"cannot write {out or 'sound'}: {error.strerror or error}") from None


def _open_file(path: Path, sample_rate: int) -> SpeechSink:
    codec = _codec_of(path)
    if codec == "wav":
        return GrowingWavFile(path, sample_rate)
    from .....adapters.audio.encoders import AudioFormat, open_encoder

    return EncodedFile(path, open_encoder(AudioFormat(codec, sample_rate)))


def _open_player(sample_rate: int) -> SpeechSink:
    if _has_sounddevice():
        return SoundDevicePlayer(sample_rate)
    player = _find_player()
    assert player is not None, "check_output found one"
    return PlayerProcess(player, sample_rate)


def _has_sounddevice() -> bool:
    return importlib.util.find_spec("sounddevice") is not None


def _find_player() -> str | None:
    return next((path for path in map(shutil.which, PLAYERS) if path), None)


class StandardOutput:
    """Raw s16le on standard output, unbuffered."""

    def __init__(self, sample_rate: int) -> None:
        self._resampler = resampler_to(sample_rate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            _write_all(_STDOUT, self._resampler.drain())

    def write(self, pcm: bytes) -> None:
        """Write samples; raises BrokenPipeError when the reader has closed the pipe."""
        _write_all(_STDOUT, self._resampler.push(pcm))


class EncodedFile:
    """A file that is encoded while it is written."""

    def __init__(self, path: Path, encoder: "Encoder") -> None:
        self._encoder = encoder
        self._file = path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file as file:
            file.write(self._encoder.finish())

    def write(self, pcm: bytes) -> None:
        """Append 24 kHz s16le."""
        self._file.write(self._encoder.push(pcm))


class GrowingWavFile:
    """A WAV file written incrementally; closing it writes the final length into the header."""

    def __init__(self, path: Path, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._resampler = resampler_to(sample_rate)
        self._file = path.open("wb")
        self._header_bytes = self._file.write(wav_header(sample_rate, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file as file:
            file.write(self._resampler.drain())
            pcm_bytes = file.tell() - self._header_bytes
            file.seek(0)
            file.write(wav_header(self._sample_rate, pcm_bytes))

    def write(self, pcm: bytes) -> None:
        """Append 24 kHz s16le."""
        self._file.write(self._resampler.push(pcm))


class SoundDevicePlayer:
    """Plays on the default device through the package sounddevice, which is not a dependency of vivavoce."""

    def __init__(self, sample_rate: int) -> None:
        import sounddevice

        self._resampler = resampler_to(sample_rate)
        try:
            self._stream = sounddevice.RawOutputStream(sample_rate, channels=1, dtype="int16")
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise NoSoundDevice(f"cannot play sound: {error}; write a file with -o out.wav") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stream.abort()
        else:
            self._stream.write(self._resampler.drain())
            self._stream.stop()  # waits until all is played
        self._stream.close()

    def write(self, pcm: bytes) -> None:
        """Play samples after the earlier ones; waits while the device has enough."""
        self._stream.write(self._resampler.push(pcm))


class PlayerProcess:
    """A player that reads from a pipe. Its end is the end of the sound."""

    def __init__(self, program: str, sample_rate: int) -> None:
        name = Path(program).name
        arguments = [argument.format(rate=sample_rate) for argument in PLAYERS[name]]
        self._name = name
        self._process = subprocess.Popen(
            [program, *arguments],
            bufsize=0,  # nothing is left to write when the player is killed
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._resampler = resampler_to(sample_rate)
        self._header = b"" if name in _HEADERLESS_PLAYERS else wav_stream_header(sample_rate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        with self._process:
            if kind is None:
                self._feed(self._resampler.drain())
                self._finish()

    def write(self, pcm: bytes) -> None:
        """Play samples after the earlier ones; waits while the player has enough."""
        self._feed(self._resampler.push(pcm))

    def _feed(self, pcm: bytes) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return  # the user closed the player
        data, self._header = self._header + pcm, b""
        try:
            _write_all(self._process.stdin.fileno(), data)
        except BrokenPipeError:
            self._finish()

    def _finish(self) -> None:
        assert self._process.stdin is not None and self._process.stderr is not None
        self._process.stdin.close()
        if self._process.wait() != 0:
            messages = self._process.stderr.read().decode(errors="replace").strip()
            lines = messages.splitlines() or ["no message"]
            raise OutputNotWritable(
                f"{self._name} cannot play sound: {lines[-1]}; write a file with -o out.wav"
            )


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
