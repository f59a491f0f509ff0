"""TODO."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...tts_engine.chunk import Word
from ..openai.speech_request import OpenAISpeechSettings


@dataclass(frozen=True, slots=True)
class NativeStreamConfig:
    """How utterances are spoken. word_times: whether ``AudioWords`` is wanted."""

    settings: OpenAISpeechSettings
    word_times: bool


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
