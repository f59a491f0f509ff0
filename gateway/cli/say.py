"""``vivavoce say``: text in, a WAV file or a raw pipe out, both as they come."""

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
    """The output cannot be written; the message says where and why."""


@dataclass(frozen=True, slots=True)
class SayOptions:
    """What is wanted: where to (a WAV file, or "-": raw s16le on standard output), how, at how many Hz.

    bundle, voices, precision, device: who speaks, as ``Engine.open`` has them.
    """

    out: str
    voice: str | None
    speed: float
    seed: int
    sample_rate: int
    bundle: str = "default"
    voices: Path | None = None
    precision: str = "fp32"
    device: str = "auto"


class PcmSink(Protocol):
    """Takes s16le."""

    def write(self, pcm: bytes) -> None:
        """Take more of it; raises OSError."""


async def say(text: str | None, options: SayOptions) -> None:
    """Speak ``text``, or standard input where there is none, as it arrives.

    Raises:
        VivavoceError: the text, the voice or the output is at fault.
    """
    async with (
        await Engine.open(
            options.bundle, voices=options.voices, precision=options.precision, device=options.device
        ) as engine,
        engine.stream(voice=options.voice, speed=options.speed, seed=options.seed) as stream,
    ):
        # Opened last, so that whatever keeps the voice from speaking leaves a file as it was.
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
                break  # the sentence about it shall not wait for an hour of speech
            sink.write(resampler.push(chunk.pcm))
            spoken_s += chunk.seconds
            status.update(f"{spoken_s:.1f} s of speech")
        sink.write(resampler.drain())
    console.print(f"{spoken_s:.1f} s of speech in {time.monotonic() - started:.1f} s", highlight=False)


@contextlib.contextmanager
def _open_sink(options: SayOptions) -> Iterator[PcmSink]:
    try:
        with contextlib.suppress(BrokenPipeError):  # a reader that has enough is no error
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
    """A WAV file that grows; whenever it is closed, it is whole."""

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
    """Standard input in the pieces in which it arrives, until it ends."""
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
        return  # epoll takes no plain files, and they never block
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
