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

from typing import Final, NoReturn

from ..openai.json_fields import InvalidRequestError, JsonFields, parse_json_object
from ..openai.speech_request import parse_speech_settings
from .events import (
    CloseRequested,
    ConfigAccepted,
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    NativeStreamConfig,
    NativeStreamEvent,
)

MAX_TEXT_CHARACTERS: Final = 64 * 1024  # characters in one message


# From the client


# To the client


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
