"""Speech over a WebSocket, text streamed in and audio out, in vLLM-Omni's shape: messages and their order.

    client   session.config  input.text*  input.done     input.text* ...      session.close
    server       audio.start  audio.words?  (binary)* ... audio.done  session.done

Text messages are JSON objects with a "type", binary ones are audio. ``input.done`` ends an utterance and not
the connection; ``input.flush`` speaks what is buffered, ``input.cancel`` drops what is not yet sent, and both
go beyond vLLM-Omni, as do ``audio.words`` (asked for with "word_times") and "code" in errors. A configuration
holds for the utterances that begin after it, and so does the voice of its "ref_audio". Not here: sockets,
time, keys, voices.

Source: vLLM-Omni at 0131cb55, entrypoints/openai/serving_speech_stream.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, assert_never

from ..tts_engine.chunk import Word
from .openai_speech import Fields, ProtocolError, SpeechSettings, read_object, read_settings

MOST_TEXT: Final = 64 * 1024  # characters in one message


@dataclass(frozen=True, slots=True)
class Configuration:
    """How utterances are spoken. word_times: whether ``WordsBegin`` is wanted."""

    settings: SpeechSettings
    word_times: bool


# From the client


@dataclass(frozen=True, slots=True)
class TextPushed:
    """More text of an utterance, of the configuration that it began with."""

    utterance: int
    text: str
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Flushed:
    """Speak what is buffered."""

    utterance: int


@dataclass(frozen=True, slots=True)
class InputDone:
    """No more text of an utterance."""

    utterance: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Drop every utterance up to this one, which is not sent yet."""

    utterance: int


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration was taken."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Closed:
    """The client has had enough."""


Event = TextPushed | Flushed | InputDone | Cancelled | Configured | Closed

# To the client


@dataclass(frozen=True, slots=True)
class AudioStarts:
    """Audio of an utterance follows. text: what of it is known by now."""

    utterance: int
    text: str
    audio_format: str
    sample_rate: int


@dataclass(frozen=True, slots=True)
class WordsBegin:
    """Words that begin in the audio that follows; their times are those of the utterance."""

    utterance: int
    words: Sequence[Word]


@dataclass(frozen=True, slots=True)
class AudioDone:
    """The audio of an utterance has been sent, or failed."""

    utterance: int
    total_bytes: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class UtteranceDone:
    """An utterance is over. sentences: 1 where it was spoken, 0 where there was nothing to say."""

    utterance: int
    sentences: int
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Something was wrong with a message, or with an utterance."""

    message: str
    code: str | None = None
    param: str | None = None
    utterance: int | None = None
    retry_after_s: float | None = None


ServerEvent = AudioStarts | WordsBegin | AudioDone | UtteranceDone | Failed


class Connection:
    """The client's half of one socket: what its messages mean, in the order in which they come."""

    def __init__(self) -> None:
        self._configuration: Configuration | None = None
        self._utterance = 0
        self._has_input = False

    def receive_data(self, message: str | bytes) -> Event:
        """What one message says; raises ProtocolError, and is as before then."""
        if isinstance(message, bytes):
            raise ProtocolError("got a binary message; only text messages are understood")
        fields = Fields(read_object(message))
        match fields.values.get("type"):
            case "session.config":
                return self._configured(fields)
            case "input.text":
                return self._text(fields)
            case "input.flush":
                self._require_configuration("input.flush")
                return Flushed(self._utterance)
            case "input.done":
                return InputDone(self._end_utterance("input.done"))
            case "input.cancel":
                return Cancelled(self._end_utterance("input.cancel"))
            case "session.close":
                return Closed()
            case other:
                allowed = "session.config, input.text, input.flush, input.done, input.cancel, session.close"
                _refuse(f"Unknown message type: {other!r}; there are {allowed}")

    def _configured(self, fields: Fields) -> Configured:
        if self._has_input:
            _refuse(
                "session.config cannot be applied while an utterance is in progress; send input.done first"
            )
        if fields.flag("word_timestamps"):
            fields.refuse("word_timestamps", "would put audio into JSON; 'word_times' tells times beside it")
        self._configuration = Configuration(read_settings(fields, "wav"), fields.flag("word_times"))
        return Configured(self._configuration)

    def _text(self, fields: Fields) -> TextPushed:
        configuration = self._require_configuration("input.text")
        text = fields.text("text", MOST_TEXT)
        if text is None:
            _refuse("input.text requires a string value", "text")
        self._has_input = True
        return TextPushed(self._utterance, text, configuration)

    def _end_utterance(self, what: str) -> int:
        self._require_configuration(what)
        self._has_input = False
        self._utterance += 1
        return self._utterance - 1

    def _require_configuration(self, what: str) -> Configuration:
        if self._configuration is None:
            _refuse(f"Expected session.config, got: {what}")
        return self._configuration


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise ProtocolError(message, param)


def encode(event: ServerEvent) -> str:
    """The text message that tells an event."""
    return json.dumps(_fields_of(event), separators=(",", ":"))


def _fields_of(event: ServerEvent) -> Mapping[str, Any]:
    match event:
        case AudioStarts():
            return {
                "type": "audio.start",
                "utterance_index": event.utterance,
                "sentence_index": 0,
                "sentence_text": event.text,
                "format": event.audio_format,
                "sample_rate": event.sample_rate,
                "channels": 1,
            }
        case WordsBegin(utterance, words):
            return {"type": "audio.words", "utterance_index": utterance, "words": [*map(_word, words)]}
        case AudioDone(utterance, total_bytes, failed):
            return {
                "type": "audio.done",
                "utterance_index": utterance,
                "sentence_index": 0,
                "total_bytes": total_bytes,
                "error": failed,
            }
        case UtteranceDone(utterance, sentences, cancelled):
            return {
                "type": "session.done",
                "utterance_index": utterance,
                "total_sentences": sentences,
                "cancelled": cancelled,
            }
        case Failed():
            told = {
                "code": event.code,
                "param": event.param,
                "utterance_index": event.utterance,
                "retry_after_s": event.retry_after_s,
            }
            given = {name: value for name, value in told.items() if value is not None}
            return {"type": "error", "message": event.message, **given}
        case _:
            assert_never(event)


def _word(word: Word) -> Mapping[str, Any]:
    return {
        "word": word.text,
        "start_ms": round(1_000 * word.start_s),
        "end_ms": round(1_000 * word.stop_s),
        "text_start": word.text_start,
        "text_end": word.text_stop,
    }
