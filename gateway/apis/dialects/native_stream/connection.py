"""Order and states of the native stream's messages: a client's parsed messages in, events with utterances
out.

    no configuration --session.config--> idle --input.text--> in an utterance --input.done, input.cancel-->
    idle

The state machine has no I/O and no clock. A configuration holds for the utterances that begin after it.
"""

from dataclasses import dataclass
from typing import assert_never

from ...kits.openai.errors import InvalidRequestError
from .models import (
    InputCancelMessage,
    InputDoneMessage,
    InputFlushMessage,
    InputTextMessage,
    NativeStreamMessage,
    SessionCloseMessage,
    SessionConfig,
)


@dataclass(frozen=True, slots=True)
class ConfigAccepted:
    """A configuration holds from the next utterance on."""

    configuration: SessionConfig


@dataclass(frozen=True, slots=True)
class InputText:
    """More text of an utterance, with the configuration that it began with."""

    utterance: int
    text: str
    configuration: SessionConfig


@dataclass(frozen=True, slots=True)
class InputFlush:
    """The utterance's buffered text is to be spoken."""

    utterance: int


@dataclass(frozen=True, slots=True)
class InputDone:
    """The utterance's text is complete."""

    utterance: int


@dataclass(frozen=True, slots=True)
class InputCancel:
    """Every utterance up to this one is dropped, except for what is sent."""

    utterance: int


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The client asks for the end of the connection."""


NativeStreamEvent = InputText | InputFlush | InputDone | InputCancel | ConfigAccepted | CloseRequested


class NativeStreamConnection:
    """The state of one connection: its configuration and the number of its utterance."""

    def __init__(self) -> None:
        self._configuration: SessionConfig | None = None
        self._utterance = 0  # index of the one that is being, or will be, written
        self._has_input = False  # whether it has begun

    def receive(self, message: NativeStreamMessage) -> NativeStreamEvent:
        """Return a message's event; raises InvalidRequestError if it is out of order, and changes nothing."""
        match message:
            case SessionConfig():
                return self._configure(message)
            case InputTextMessage(type=message_type, text=text):
                configuration = self._require_configuration(message_type)
                self._has_input = True
                return InputText(self._utterance, text, configuration)
            case InputFlushMessage(type=message_type):
                self._require_configuration(message_type)
                return InputFlush(self._utterance)
            case InputDoneMessage(type=message_type):
                return InputDone(self._end_utterance(message_type))
            case InputCancelMessage(type=message_type):
                return InputCancel(self._end_utterance(message_type))
            case SessionCloseMessage():
                return CloseRequested()
            case _:
                assert_never(message)

    def _configure(self, configuration: SessionConfig) -> ConfigAccepted:
        if self._has_input:
            raise InvalidRequestError(
                "session.config cannot be applied while an utterance is in progress; send input.done first"
            )
        self._configuration = configuration
        return ConfigAccepted(configuration)

    def _end_utterance(self, message_type: str) -> int:
        self._require_configuration(message_type)
        self._has_input = False
        self._utterance += 1
        return self._utterance - 1

    def _require_configuration(self, message_type: str) -> SessionConfig:
        if self._configuration is None:
            raise InvalidRequestError(f"Expected session.config, got: {message_type}")
        return self._configuration
