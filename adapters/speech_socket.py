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
from .openai_speech import (
    InvalidRequestError,
    JsonFields,
    OpenAISpeechSettings,
    parse_json_object,
    parse_speech_settings,
)

MAX_TEXT_CHARACTERS: Final = 64 * 1024  # characters in one message


@dataclass(frozen=True, slots=True)
class NativeStreamConfig:
    """How utterances are spoken. word_times: whether ``AudioWords`` is wanted."""

    settings: OpenAISpeechSettings
    word_times: bool


# From the client


@dataclass(frozen=True, slots=True)
class InputText:
    """More text of an utterance, of the configuration that it began with."""

    utterance: int
    text: str
    configuration: NativeStreamConfig


@dataclass(frozen=True, slots=True)
class InputFlush:
    """Speak what is buffered."""

    utterance: int


@dataclass(frozen=True, slots=True)
class InputDone:
    """No more text of an utterance."""

    utterance: int


@dataclass(frozen=True, slots=True)
class InputCancel:
    """Drop every utterance up to this one, which is not sent yet."""

    utterance: int


@dataclass(frozen=True, slots=True)
class ConfigAccepted:
    """A configuration was taken."""

    configuration: NativeStreamConfig


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The client has had enough."""


NativeStreamEvent = InputText | InputFlush | InputDone | InputCancel | ConfigAccepted | CloseRequested

# To the client


@dataclass(frozen=True, slots=True)
class AudioStart:
    """Audio of an utterance follows. text: what of it is known by now."""

    utterance: int
    text: str
    audio_format: str
    sample_rate: int


@dataclass(frozen=True, slots=True)
class AudioWords:
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
class StreamErrorReport:
    """Something was wrong with a message, or with an utterance."""

    message: str
    code: str | None = None
    param: str | None = None
    utterance: int | None = None
    retry_after_s: float | None = None


NativeStreamServerEvent = AudioStart | AudioWords | AudioDone | UtteranceDone | StreamErrorReport


class NativeStreamConnection:
    """The client's half of one socket: what its messages mean, in the order in which they come."""

    def __init__(self) -> None:
        self._configuration: NativeStreamConfig | None = None
        self._utterance = 0
        self._has_input = False

    def receive_data(self, message: str | bytes) -> NativeStreamEvent:
        """What one message says; raises ProtocolError, and is as before then."""
        if isinstance(message, bytes):
            raise InvalidRequestError("got a binary message; only text messages are understood")
        fields = JsonFields(parse_json_object(message))
        match fields.values.get("type"):
            case "session.config":
                return self._parse_config(fields)
            case "input.text":
                return self._parse_text(fields)
            case "input.flush":
                self._require_configuration("input.flush")
                return InputFlush(self._utterance)
            case "input.done":
                return InputDone(self._end_utterance("input.done"))
            case "input.cancel":
                return InputCancel(self._end_utterance("input.cancel"))
            case "session.close":
                return CloseRequested()
            case other:
                allowed = "session.config, input.text, input.flush, input.done, input.cancel, session.close"
                _refuse(f"Unknown message type: {other!r}; there are {allowed}")

    def _parse_config(self, fields: JsonFields) -> ConfigAccepted:
        if self._has_input:
            _refuse(
                "session.config cannot be applied while an utterance is in progress; send input.done first"
            )
        if fields.boolean("word_timestamps"):
            fields.refuse("word_timestamps", "would put audio into JSON; 'word_times' tells times beside it")
        self._configuration = NativeStreamConfig(
            parse_speech_settings(fields, "wav"), fields.boolean("word_times")
        )
        return ConfigAccepted(self._configuration)

    def _parse_text(self, fields: JsonFields) -> InputText:
        configuration = self._require_configuration("input.text")
        text = fields.text("text", MAX_TEXT_CHARACTERS)
        if text is None:
            _refuse("input.text requires a string value", "text")
        self._has_input = True
        return InputText(self._utterance, text, configuration)

    def _end_utterance(self, message_type: str) -> int:
        self._require_configuration(message_type)
        self._has_input = False
        self._utterance += 1
        return self._utterance - 1

    def _require_configuration(self, message_type: str) -> NativeStreamConfig:
        if self._configuration is None:
            _refuse(f"Expected session.config, got: {message_type}")
        return self._configuration


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise InvalidRequestError(message, param)


def encode(event: NativeStreamServerEvent) -> str:
    """The text message that tells an event."""
    return json.dumps(_message_fields(event), separators=(",", ":"))


def _message_fields(event: NativeStreamServerEvent) -> Mapping[str, Any]:
    match event:
        case AudioStart():
            return {
                "type": "audio.start",
                "utterance_index": event.utterance,
                "sentence_index": 0,
                "sentence_text": event.text,
                "format": event.audio_format,
                "sample_rate": event.sample_rate,
                "channels": 1,
            }
        case AudioWords(utterance, words):
            return {"type": "audio.words", "utterance_index": utterance, "words": [*map(_word_fields, words)]}
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
        case StreamErrorReport():
            optional_fields = {
                "code": event.code,
                "param": event.param,
                "utterance_index": event.utterance,
                "retry_after_s": event.retry_after_s,
            }
            present_fields = {name: value for name, value in optional_fields.items() if value is not None}
            return {"type": "error", "message": event.message, **present_fields}
        case _:
            assert_never(event)


def _word_fields(word: Word) -> Mapping[str, Any]:
    return {
        "word": word.text,
        "start_ms": round(1_000 * word.start_s),
        "end_ms": round(1_000 * word.stop_s),
        "text_start": word.text_start,
        "text_end": word.text_stop,
    }
