"""``vivavoce say``: streams text to a voice, and its speech to a file, a pipe or a player."""

import asyncio
import codecs
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from .....adapters.ssml.document import SsmlDocument
from .....adapters.ssml.input import parse_ssml
from .....tts_engine.chunk import AudioChunk, Word
from .....tts_engine.engine import Engine
from .....tts_engine.errors import BadRequest
from .....tts_engine.speech_engine import SpeechStream
from .....tts_engine.stream_request import StreamRequest
from .....tts_engine.voices.voice_sequence import VoiceSequence
from ....calls.text_feed import TextFeed
from .output import SpeechSink, check_output, check_subtitles, open_sink, write_subtitles

_STDIN = 0
_READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SayOptions:
    """Output, voice and engine of one ``say``."""

    out: str | None  # path of a file, "-" for raw s16le on standard output, None to play it
    subtitles: Path | None  # file
    voice: str | None  # id; None is the engine's default
    speed: float  # 0.5 to 2.0
    seed: int
    sample_rate: int  # Hz of the output: 24000 or 8000
    is_ssml: bool = False  # the text is one SSML document, also if it does not begin with <speak
    # As in ``Engine.open``:
    bundle: str = "default"
    voices: Path | None = None  # folder of the voice store
    precision: str = "auto"
    device: str = "auto"
    executor: str = "auto"


async def say(text: str | None, options: SayOptions) -> None:
    """Speak ``text``, or standard input as it arrives if ``text`` is None.

    A text that begins with ``<speak`` is an SSML document, whose pitch and volume are ignored. Raises
    VivavoceError when the text, the voice or the output is invalid, or when there is nothing to say.
    """
    check_output(options.out)
    check_subtitles(options.subtitles)
    source = await _source(text, options)
    async with (
        await Engine.open(
            options.bundle,
            voices=options.voices,
            precision=options.precision,
            device=options.device,
            executor=options.executor,
            warm_up=False,  # the text itself is the first sentence
        ) as engine,
        VoiceSequence.open(engine, StreamRequest(options.voice, options.speed, options.seed)) as stream,
        TextFeed(stream, source, set_voice=stream.set_voice) as feed,
    ):
        first = await anext(stream)
        if first.final and not feed.has_failed:
            raise BadRequest("nothing to say: the text has no word; give TEXT or standard input some words")
        if not feed.has_failed:
            # Opened last: an error before this point leaves an existing file untouched.
            with open_sink(options.out, options.sample_rate) as sink:
                words = await _write_speech(
                    first, stream, feed, sink, None if text is None else len(feed.text)
                )
            if options.subtitles is not None and not feed.has_failed:
                write_subtitles(options.subtitles, feed.text, words)
        await feed.raise_source_error()


async def _source(text: str | None, options: SayOptions) -> str | SsmlDocument | AsyncIterator[str]:
    """Return the text, or standard input for None; a document is read to its end. Raises BadSsml."""
    if not options.is_ssml:
        return standard_input() if text is None else text
    if text is None:
        text = "".join([piece async for piece in standard_input()])
    return parse_ssml(text.strip())


async def _write_speech(
    first: AudioChunk, stream: SpeechStream, feed: TextFeed, sink: SpeechSink, characters: int | None
) -> list[Word]:
    """Write ``first`` and all later chunks; return their words.

    characters: of the whole text; None while it is still arriving.
    """
    started = time.monotonic()
    await asyncio.to_thread(sink.write, first.pcm)
    # Imported after the first sound, which need not wait for it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    spoken_s, words = first.seconds, list(first.words)
    columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=characters)
        async for chunk in stream:
            if feed.has_failed:  # is reported now, not after the speech
                break
            await asyncio.to_thread(sink.write, chunk.pcm)
            spoken_s += chunk.seconds
            words += chunk.words
            progress.update(
                bar, completed=_spoken_characters(chunk), description=f"{spoken_s:.1f} s of speech"
            )
    console.print(f"{spoken_s:.1f} s of speech in {time.monotonic() - started:.1f} s", highlight=False)
    return words


def _spoken_characters(chunk: AudioChunk) -> int:
    """The position in the text that the chunk has reached."""
    if chunk.final:
        return chunk.text[1]
    return chunk.words[-1].text_stop if chunk.words else chunk.text[0]


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
