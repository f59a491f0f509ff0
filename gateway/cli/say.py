"""``vivavoce say``: streams text to a voice and its speech to a WAV file or, as raw s16le, to a pipe."""

import asyncio
import codecs
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ...adapters.audio.codecs import wav_header
from ...adapters.audio.resample import resampler_to
from ...tts_engine.engine import Engine
from ...tts_engine.errors import VivavoceError
from ...tts_engine.stream import Stream
from ..calls.text_feed import TextFeed

_STDIN, _STDOUT = 0, 1
_READ_BYTES = 4096


class OutputNotWritable(VivavoceError):
    """The output cannot be written; the message names the file and the system's error."""


@dataclass(frozen=True, slots=True)
class SayOptions:
    """Output, voice and engine of one ``say``."""

    out: str  # path of a WAV file, or "-" for raw s16le on standard output
    voice: str | None  # id; None is the engine's default
    speed: float  # 0.5 to 2.0
    seed: int
    sample_rate: int  # Hz of the output: 24000 or 8000
    # As in ``Engine.open``:
    bundle: str = "default"
    voices: Path | None = None  # folder of the voice store
    precision: str = "fp32"
    device: str = "auto"


class PcmSink(Protocol):
    """Writes s16le samples."""

    def write(self, pcm: bytes) -> None:
        """Append samples; raises OSError."""


async def say(text: str | None, options: SayOptions) -> None:
    """Speak ``text``, or standard input as it arrives if ``text`` is None.

    Raises VivavoceError when the text, the voice or the output is invalid.
    """
    async with (
        await Engine.open(
            options.bundle, voices=options.voices, precision=options.precision, device=options.device
        ) as engine,
        engine.stream(voice=options.voice, speed=options.speed, seed=options.seed) as stream,
    ):
        # Opened last: an error before this point leaves an existing file untouched.
        with _open_sink(options) as sink:
            async with TextFeed(stream, standard_input() if text is None else text) as feed:
                await _write_speech(stream, feed, sink, options)
                await feed.raise_source_error()


async def _write_speech(stream: Stream, feed: TextFeed, sink: PcmSink, options: SayOptions) -> None:
    console = Console(stderr=True)
    resampler = resampler_to(options.sample_rate)
    started, spoken_s = time.monotonic(), 0.0
    with console.status("speaking") as status:
        async for chunk in stream:
            if feed.has_failed:
                break  # report the error now, not after the speech that is still queued
            sink.write(resampler.push(chunk.pcm))
            spoken_s += chunk.seconds
            status.update(f"{spoken_s:.1f} s of speech")
        sink.write(resampler.drain())
    console.print(f"{spoken_s:.1f} s of speech in {time.monotonic() - started:.1f} s", highlight=False)


@contextlib.contextmanager
def _open_sink(options: SayOptions) -> Iterator[PcmSink]:
    try:
        with contextlib.suppress(BrokenPipeError):  # the reader closed the pipe, which is not an error
            if options.out == "-":
                yield _StandardOutput()
            else:
                with GrowingWavFile(Path(options.out), options.sample_rate) as file:
                    yield file
    except OSError as error:
        raise OutputNotWritable(f"cannot write {options.out}: {error.strerror or error}") from None


class _StandardOutput:
    def write(self, pcm: bytes) -> None:
        while pcm:
            pcm = pcm[os.write(_STDOUT, pcm) :]


class GrowingWavFile:
    """A WAV file written incrementally; closing it writes the final length into the header."""

    def __init__(self, path: Path, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._bytes = 0
        self._file = path.open("wb")
        self._file.write(wav_header(sample_rate, 0))

    def __enter__(self) -> "GrowingWavFile":
        return self

    def __exit__(self, *_: object) -> None:
        with self._file as file:
            file.seek(0)
            file.write(wav_header(self._sample_rate, self._bytes))

    def write(self, pcm: bytes) -> None:
        """Append s16le."""
        self._file.write(pcm)
        self._bytes += len(pcm)


async def standard_input() -> AsyncIterator[str]:
    """Standard input as it arrives, decoded as UTF-8, until its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        await _wait_readable(_STDIN)
        data = os.read(_STDIN, _READ_BYTES)
        if text := decoder.decode(data, final=not data):
            yield text
        if not data:
            return


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return  # epoll refuses regular files, whose reads never block
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
