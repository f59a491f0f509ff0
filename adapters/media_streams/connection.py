"""One media stream without I/O: WebSocket messages of the peer become events, commands become messages.

A wire derives ``MediaStreamConnection`` and translates single messages; the order of events, the bounds and
the end are the same for all:

    NEW  --StreamStarted-->  OPEN  --StreamStopped-->  ENDED      messages after the end are dropped
"""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, assert_never

from .events import (
    MediaStreamProtocolError,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamMark,
    StreamPaused,
    StreamResumed,
    StreamStarted,
    StreamStopped,
    StreamWarning,
)
from .peer_playout import PeerClear, PeerCommand, PeerMark, PeerMedia
from .stream_format import StreamFormat

MAX_MESSAGE_BYTES: Final = 128 * 1024  # 1 s of audio at 48 kHz in base64
MAX_UNREAD_MESSAGES: Final = 1_000
DIGITS: Final = frozenset("0123456789*#ABCD")
_CALL_ID: Final = re.compile(r"[\w.:@+=-]{1,200}", re.ASCII)  # a part of the calls API's paths

Message = str | bytes


class MediaStreamState(Enum):
    """State of a stream."""

    NEW = "before its start"
    OPEN = "in the call"
    ENDED = "after its end"


_IN_CALL: Final = (StreamAudio, StreamMark, StreamKey, StreamPaused, StreamResumed, StreamWarning)
TRANSITIONS: Final[Mapping[MediaStreamState, Mapping[type[StreamEvent], MediaStreamState]]] = (
    MappingProxyType(
        {
            MediaStreamState.NEW: {
                StreamStarted: MediaStreamState.OPEN,
                StreamWarning: MediaStreamState.NEW,
                StreamStopped: MediaStreamState.ENDED,
            },
            MediaStreamState.OPEN: {
                **dict.fromkeys(_IN_CALL, MediaStreamState.OPEN),
                StreamStopped: MediaStreamState.ENDED,
            },
            MediaStreamState.ENDED: {},
        }
    )
)


class MediaStreamConnection(ABC):
    """Our side of one stream.

    After each ``receive_data`` take every event of ``events()``. Derived classes implement ``_read_text`` and
    ``_read_binary``, which raise MediaStreamProtocolError, and the messages of the three commands.
    """

    def __init__(self) -> None:
        self._state = MediaStreamState.NEW
        self._unread: deque[Message] = deque()
        self._failure = ""  # text of the first protocol error
        self._format: StreamFormat | None = None

    @property
    def state(self) -> MediaStreamState:
        """The state after the events taken so far."""
        return self._state

    def receive_data(self, message: Message) -> None:
        """Take one message; raises ValueError above 1,000 without ``events()``."""
        if len(self._unread) >= MAX_UNREAD_MESSAGES:
            raise ValueError(
                f"more than {MAX_UNREAD_MESSAGES} messages are unread; take events() after each one"
            )
        self._unread.append(message)

    def receive_audio(self, message: Message) -> bytes | None:
        """Return the audio of a message that has nothing else, s16le at the rate of the stream.

        None: this is another message, or one with a fault, which ``receive_data`` takes. Most messages are
        audio, and this costs less than half as much as ``events``, which would yield the same.
        """
        is_open = self._state is MediaStreamState.OPEN and not self._failure
        if not is_open or self._unread or len(message) > MAX_MESSAGE_BYTES:
            return None
        data = self._read_audio(message)
        return None if data is None else self._decode(data)

    def events(self) -> Iterator[StreamEvent]:
        """Yield the events of the messages received so far.

        Raises MediaStreamProtocolError at the first message that violates the protocol, after the events
        before it, and again at every later call.
        """
        if self._failure:
            raise MediaStreamProtocolError(self._failure)
        while self._unread and self._state is not MediaStreamState.ENDED:
            try:
                for event in self._read(self._unread.popleft()):
                    self._advance(event)
                    yield event
            except MediaStreamProtocolError as error:
                self._failure = str(error)
                self._unread.clear()
                raise
        self._unread.clear()

    def send(self, command: PeerCommand) -> list[Message]:
        """Return the messages of a command; raises ValueError before StreamStarted."""
        if self._format is None:
            raise ValueError("the stream has not started; its format is not known")
        match command:
            case PeerMedia(pcm):
                return self._speech_messages(pcm)
            case PeerMark(name):
                return [self._mark_message(name)]
            case PeerClear():
                return self._clear_messages()
            case _:
                assert_never(command)

    def send_hangup(self) -> list[Message]:
        """Return the messages that end the call, before the WebSocket is closed."""
        return []

    # Implemented by a wire

    def _read_audio(self, message: Message) -> bytes | None:
        """Return the encoded audio of a message that has nothing else, None if in doubt."""
        return message if isinstance(message, bytes) else None

    @abstractmethod
    def _read_text(self, text: str) -> Iterable[StreamEvent]:
        """Return the events of a text message."""

    @abstractmethod
    def _read_binary(self, data: bytes) -> Iterable[StreamEvent]:
        """Return the events of a binary message."""

    @abstractmethod
    def _media_messages(self, audio: bytes) -> list[Message]:
        """Return the messages of encoded speech, whole packets."""

    @abstractmethod
    def _mark_message(self, name: str) -> Message:
        """Return the message of a mark."""

    @abstractmethod
    def _clear_messages(self) -> list[Message]:
        """Return the messages that drop the peer's queue."""

    # For wires

    def _speech_messages(self, pcm: bytes) -> list[Message]:
        """Return the messages of speech, s16le at the stream's rate, whole packets."""
        assert self._format is not None
        return self._media_messages(self._format.encode(pcm))

    def _audio_of(self, data: bytes) -> StreamAudio:
        """Decode the caller's audio; an incomplete sample at its end is dropped."""
        if self._format is None:
            raise MediaStreamProtocolError("got audio before the start of the stream")
        return StreamAudio(self._decode(data), self._format.sample_rate)

    def _decode(self, data: bytes) -> bytes:
        assert self._format is not None
        rest = len(data) % self._format.sample_bytes
        return self._format.decode(data[:-rest] if rest else data)

    def _read(self, message: Message) -> Iterable[StreamEvent]:
        if len(message) > MAX_MESSAGE_BYTES:
            raise MediaStreamProtocolError(
                f"got a message of {len(message)} bytes; at most {MAX_MESSAGE_BYTES} are read"
            )
        return self._read_text(message) if isinstance(message, str) else self._read_binary(message)

    def _advance(self, event: StreamEvent) -> None:
        state = TRANSITIONS[self._state].get(type(event))
        if state is None:
            raise MediaStreamProtocolError(f"got {_NAMES[type(event)]} {self._state.value}")
        if isinstance(event, StreamStarted):
            self._format = event.format
            if event.call_id and not _CALL_ID.fullmatch(event.call_id):
                raise MediaStreamProtocolError(
                    f"got the call id {event.call_id[:80]!r}; allowed are 200 letters, digits and _.:@+=-"
                )
        self._state = state


def keys_of(digit: str) -> list[StreamKey]:
    """Return the event of a key; none if it is not one that phones have, such as a hook flash."""
    return [StreamKey(digit.upper())] if digit.upper() in DIGITS else []


_NAMES: Final[Mapping[type[StreamEvent], str]] = MappingProxyType(
    {
        StreamStarted: "a start",
        StreamAudio: "audio",
        StreamMark: "a mark",
        StreamKey: "a key",
        StreamPaused: "a pause",
        StreamResumed: "a resumption",
        StreamWarning: "an error",
        StreamStopped: "a stop",
    }
)
