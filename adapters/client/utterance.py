"""One utterance of a server: text out as messages, pieces of speech and words in.

Source: the protocol is the native stream's, ``gateway/apis/dialects/native_stream/README.md``.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from ...tts_engine.chunk import Word
from ...tts_engine.errors import BadRequest, BadText, Overloaded, SynthesisFailed, UnknownVoice, VivavoceError
from .connection import ServerConnection, ServerUnavailable

_SERVER_ERROR_CODES: Final = ("server_error", "internal_error")
_MAX_MESSAGE_CHARACTERS: Final = 2**13  # sent; an eighth of the server's limit
_DRAIN_TIMEOUT_S: Final = 2.0  # for the messages after a cancel; then the connection is closed


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """Voice and audio format of an utterance; None leaves the choice to the server."""

    voice: str | None = None
    response_format: str = "pcm"  # pcm (s16le), wav, mp3, opus, aac, flac, ulaw, alaw
    sample_rate: int = 24_000  # Hz
    speed: float = 1.0  # factor of the voice's speed, 0.5 to 2.0
    seed: int = 0  # of the sampling; equal seeds give equal speech
    language: str | None = None
    instructions: str | None = None  # speaking style in words, for voices that support it
    word_times: bool = True  # report the words of each piece
    pronunciations: Mapping[str, str] | None = None  # by word or phrase: a text read instead, or "/IPA/"


@dataclass(frozen=True, slots=True)
class SpeechPiece:
    """A piece of encoded speech and its words."""

    audio: bytes  # in the requested format
    words: tuple[Word, ...]  # that begin in the piece or soon after; seconds from the first sample


class RemoteUtterance:
    """One utterance on a connection of the pool: text in, pieces of speech out.

    Attributes:
        time_to_first_audio_s: seconds from the first text to the first audio; None until then.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self.time_to_first_audio_s: float | None = None
        self._connection = connection
        self._index = connection.utterances
        self._first_text_at: float | None = None
        self._words: list[Word] = []
        self._failure: VivavoceError | None = None
        self._input_ended = False
        self._has_started = False  # the server has begun to send its audio
        self._last_finished_index = connection.utterances - 1

    async def configure(self, options: SpeechOptions) -> None:
        """Send the options; the server reports unsupported ones as an error of the utterance."""
        settings = {name: value for name, value in asdict(options).items() if value is not None}
        await self._connection.send({"type": "session.config", **settings})

    async def push_text(self, text: str) -> None:
        """Send text; it may be split anywhere."""
        if not text:
            return
        self._first_text_at = self._first_text_at or time.monotonic()
        for start in range(0, len(text), _MAX_MESSAGE_CHARACTERS):
            part = text[start : start + _MAX_MESSAGE_CHARACTERS]
            await self._connection.send({"type": "input.text", "text": part})

    async def flush(self) -> None:
        """Speak the text that the server buffers, without waiting for more."""
        await self._connection.send({"type": "input.flush"})

    async def keep_alive(self) -> None:
        """Reset the server's idle timeout of one minute while the text pauses."""
        await self._connection.send({"type": "input.text", "text": ""})

    async def end_input(self) -> None:
        """End the text of the utterance."""
        if not self._input_ended:
            self._input_ended = True
            await self._connection.send({"type": "input.done"})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SpeechPiece:
        """Return the next piece; raises the server's error, once, or ServerUnavailable."""
        while self._last_finished_index < self._index and self._failure is None:
            message = await self._connection.receive()
            if isinstance(message, bytes):
                return self._piece(message)
            self._handle_message(message)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        raise StopAsyncIteration

    async def cancel_and_drain(self) -> bool:
        """Cancel the rest and read its messages; returns False if that fails or takes more than 2 s.

        A server counts an utterance at input.done and at input.cancel, and sends session.done for each. A
        cancel after input.done therefore adds an empty utterance, which ends at once.
        """
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                unfinished = self._last_finished_index < self._index
                last = self._index + (unfinished and self._input_ended)
                if unfinished or not self._input_ended:
                    await self._connection.send({"type": "input.cancel"})
                await self._read_until(last)
        except (ServerUnavailable, TimeoutError):
            return False
        self._connection.utterances = last + 1
        return True

    async def _read_until(self, index: int) -> None:
        while self._last_finished_index < index:
            message = await self._connection.receive()
            if not isinstance(message, bytes):
                self._handle_message(message)

    def _piece(self, audio: bytes) -> SpeechPiece:
        if not self._has_started:
            raise ServerUnavailable(f"the server sent audio before that of utterance {self._index}")
        if self.time_to_first_audio_s is None and self._first_text_at is not None:
            self.time_to_first_audio_s = time.monotonic() - self._first_text_at
        words, self._words = tuple(self._words), []
        return SpeechPiece(audio, words)

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "audio.start" | "audio.words" | "audio.done", "utterance_index": index} if (
                index < self._index
            ):
                raise ServerUnavailable(f"the server sent speech of utterance {index} in {self._index}")
            case {"type": "audio.start"}:
                self._has_started = True
            case {"type": "audio.words", "words": words}:
                self._words += map(_parse_word, words)
            case {"type": "session.done", "utterance_index": index}:
                self._last_finished_index = int(index)
            case {"type": "error"}:
                self._failure = self._failure or _message_error(message)
            case _:
                pass  # audio.done, and messages of later servers


def _parse_word(fields: Mapping[str, Any]) -> Word:
    return Word(
        fields["word"],
        fields["start_ms"] / 1000,
        fields["end_ms"] / 1000,
        fields["text_start"],
        fields["text_end"],
    )


def _message_error(message: Mapping[str, Any]) -> VivavoceError:
    """Return the error of an error message."""
    description, wait_s = message.get("message", ""), message.get("retry_after_s")
    if wait_s is not None:
        return Overloaded(description, reason=message.get("code") or "refused", retry_after_s=float(wait_s))
    match message:
        case {"code": code} if code in _SERVER_ERROR_CODES:
            return SynthesisFailed(description)
        case {"code": "idle_timeout"}:
            return ServerUnavailable(description)
        case {"code": "voice_not_found"}:
            return UnknownVoice(description)
        case {"param": "input"} | {"code": "too_much_text"}:
            return BadText(description)
        case _:
            return BadRequest(description)
