"""The server's side of one AudioSocket call: time limits for the caller, and dropped packets.

``protocol.AudioSocketConnection`` knows single messages; this class adds the rules of a call. A caller that
violates them is reported with AudioSocketProtocolError. A caller that reads late loses whole packets, never
part of a packet. No I/O; times are arguments in monotonic seconds. ``pending_call`` and
``wire`` have the socket and the timers.

    connected  --CallId-->  call  --Hangup or AudioSocketProtocolError-->  ended
    first_message_s         stalled_s for the rest of a message, and for a caller that reads nothing

Source: app_audiosocket.c, chan_audiosocket.c and res_audiosocket.c of Asterisk 23.4.1, and measurements: a
payload 5 ms later than its header ends the call, two silent seconds end the application, and Asterisk buffers
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from ..call_rate_limit import CallRateLimit
from .g711_detection import G711Detector, PayloadEncoding
from .protocol import (
    HEADER_BYTES,
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketError,
    AudioSocketMessage,
    AudioSocketProtocolError,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
)

PTIME_S: Final = 0.020

_MAX_UNSENT_PACKETS: Final = 2  # in the transport's buffer; with more, the listener has fallen behind
_G711_ADVICE: Final = (
    "Asterisk sends raw G.711 labelled as 16-bit audio (8,000 bytes a second of kind 0x10): "
    "name the format in the dial plan, Dial(AudioSocket/host:port/uuid/c(slin))"
)


@dataclass(frozen=True, slots=True)
class AudioSocketTimeouts:
    """Time limits of one connection, in seconds."""

    first_message_s: float = 5.0  # from the connection to the call's id
    stalled_s: float = 5.0  # for the rest of an incomplete message, and without reading any packet
    silent_s: float | None = None  # without any message of an identified caller; None: unlimited


class AudioSocketServerConnection:
    """The connection of one caller, accepted at ``now``.

    After each ``receive_data`` or ``receive_eof``, take ``events``, then call ``check_deadline`` at
    ``deadline``.
    """

    def __init__(self, now: float, timeouts: AudioSocketTimeouts) -> None:
        self.dropped = 0  # packets not sent because the peer read late
        self.deadline: float | None = now + timeouts.first_message_s
        self._timeouts = timeouts
        self._connection = AudioSocketConnection(AudioSocketRole.SERVER)
        self._rate_limit = CallRateLimit(now, AudioSocketProtocolError)
        self._has_id = False
        self._g711_detector: G711Detector | None = G711Detector()  # None: the audio is known to be linear
        self._consecutive_drops = 0
        self._received_at = now  # the last message

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer, split anywhere."""
        self._connection.receive_data(data)

    def receive_audio(self, data: bytes, now: float) -> int | None:
        """Receive exactly one audio message; the rest is as ``AudioSocketConnection.receive_audio`` has it.

        Raises AudioSocketProtocolError as ``events`` does.
        """
        if self._g711_detector is not None:
            return None
        sample_rate = self._connection.receive_audio(data)
        if sample_rate is not None:
            self._count_audio(len(data) - HEADER_BYTES, sample_rate, now)
        return sample_rate

    def receive_eof(self) -> None:
        """Note that the peer has closed its side."""
        self._connection.receive_eof()

    def events(self, now: float) -> Iterator[CallId | AudioSocketAudio | Dtmf | Hangup]:
        """Yield the messages received by ``now``.

        Raises AudioSocketProtocolError, after the events before it, if the peer violates the protocol, sends
        faster than a phone does, sends G.711 labelled as 16-bit audio, or reports an error.
        """
        for event in self._connection.events():
            self._count(event, now)
            match event:
                case AudioSocketAudio():
                    yield event
                    self._check_for_g711(event, now)
                case Dtmf() | Hangup():
                    yield event
                case CallId():
                    self._has_id, self.deadline = True, None
                    yield event
                case AudioSocketError(code):
                    raise AudioSocketProtocolError(f"the peer reported error {code:#04x}")
                case _:
                    assert_never(event)
        if self._has_id:
            self._update_deadline(now)

    def check_deadline(self, now: float) -> None:
        """Raise AudioSocketProtocolError if the deadline has passed, or the caller is silent for too long."""
        silent_s = self._timeouts.silent_s
        if self._has_id and silent_s is not None and now - self._received_at >= silent_s:
            raise AudioSocketProtocolError(f"the caller has sent nothing for {silent_s:g} s")
        if self.deadline is None or now < self.deadline:
            return
        if not self._has_id:
            raise AudioSocketProtocolError(f"no call id within {self._timeouts.first_message_s:g} s")
        raise AudioSocketProtocolError(f"a message stayed incomplete for {self._timeouts.stalled_s:g} s")

    def encode_packet(self, sample_rate: int, pcm: bytes, unsent_bytes: int) -> bytes:
        """Return the message to write at once, or b"" to drop it because more than two are unsent."""
        message = self._connection.send_audio(sample_rate, pcm)
        if unsent_bytes > _MAX_UNSENT_PACKETS * len(message):
            self.dropped += 1
            self._consecutive_drops += 1
            return b""
        self._consecutive_drops = 0
        return message

    @property
    def stalled_s(self) -> float:
        """Time limit without reading, in seconds."""
        return self._timeouts.stalled_s

    @property
    def has_stalled(self) -> bool:
        """Whether the peer has read nothing for ``stalled_s``; a hangup message would not reach it."""
        return self._consecutive_drops * PTIME_S >= self._timeouts.stalled_s

    def encode_hangup(self) -> bytes:
        """Return the last message, 0x00, after which Asterisk continues with its dial plan."""
        return self._connection.send(Hangup())

    def _count(self, event: AudioSocketMessage, now: float) -> None:
        if isinstance(event, AudioSocketAudio):
            self._count_audio(len(event.payload), event.sample_rate, now)
        else:
            self._received_at = now
            self._rate_limit.take_control(now)

    def _count_audio(self, size: int, sample_rate: int, now: float) -> None:
        self._received_at = now
        self._rate_limit.take_audio(size / (2 * sample_rate), now)

    def _check_for_g711(self, audio: AudioSocketAudio, now: float) -> None:
        if self._g711_detector is None:
            return
        match self._g711_detector.verdict(audio.sample_rate, audio.payload, now):
            case PayloadEncoding.COMPANDED:
                raise AudioSocketProtocolError(_G711_ADVICE)
            case PayloadEncoding.LINEAR:
                self._g711_detector = None

    def _update_deadline(self, now: float) -> None:
        # More bytes of the same message do not extend its deadline.
        if not self._connection.in_message:
            self.deadline = None
        elif self.deadline is None:
            self.deadline = now + self._timeouts.stalled_s
