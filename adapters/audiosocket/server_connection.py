"""The server's side of one AudioSocket call: what a caller may do and by when, and which packet is not sent.

``audiosocket.Connection`` knows messages; this knows manners. Who breaks them is hung up on, for the reason
in a ``ProtocolError``; who reads late loses whole packets, never parts of one. Pure: time comes in as
monotonic seconds. The socket and the timer are ``audiosocket_leg``'s.

    no id yet  --CallId-->  a call  --Hangup or ProtocolError-->  over
    first_message_s         stalled_s for the rest of a message, and for a caller who takes nothing

Source: app_audiosocket.c, chan_audiosocket.c and res_audiosocket.c of Asterisk 23.4.1, and what they were
seen to do: a payload later than its header by 5 ms ends the call, two silent seconds end the application,
nothing is buffered.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from .protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketError,
    AudioSocketProtocolError,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
    MislabelledG711,
)

PTIME_S: Final = 0.020

_MAX_UNSENT_PACKETS: Final = 2  # unsent in the transport: more is a listener falling behind
_MAX_MESSAGE_BURST: Final = 1500  # 30 s of a line after a network stall
_MAX_MESSAGES_PER_S: Final = 200  # twice the densest line, 10 ms a message


@dataclass(frozen=True, slots=True)
class AudioSocketTimeouts:
    """Seconds: until a call's id must be there; that a peer may leave a message begun, or take nothing."""

    first_message_s: float = 5.0
    stalled_s: float = 5.0


class AudioSocketServerConnection:
    """One caller's connection, from ``now`` on.

    After each ``receive_data`` or ``receive_eof`` take ``events``, then come again at ``deadline``.
    """

    def __init__(self, now: float, timeouts: AudioSocketTimeouts) -> None:
        self.dropped = 0  # packets that the peer did not take in time
        self.deadline: float | None = now + timeouts.first_message_s
        self._timeouts = timeouts
        self._connection = AudioSocketConnection(AudioSocketRole.SERVER)
        self._started = now
        self._messages = 0
        self._has_id = False
        self._consecutive_drops = 0

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer, in any split."""
        self._connection.receive_data(data)

    def receive_eof(self) -> None:
        """The peer has closed its side: nothing more comes."""
        self._connection.receive_eof()

    def events(self, now: float) -> Iterator[CallId | AudioSocketAudio | Dtmf | Hangup]:
        """Yield what the peer has said by ``now``.

        Raises ProtocolError after the last good event where the peer breaks the protocol, sends faster than
        any line does, sends G.711 for 16-bit audio, or reports an error.
        """
        max_messages = _MAX_MESSAGE_BURST + _MAX_MESSAGES_PER_S * (now - self._started)
        for event in self._connection.events():
            self._messages += 1
            if self._messages > max_messages:
                raise AudioSocketProtocolError(
                    f"{self._messages} messages came faster than a line sends them"
                )
            match event:
                case AudioSocketAudio() | Dtmf() | Hangup():
                    yield event
                case CallId():
                    self._has_id, self.deadline = True, None
                    yield event
                case MislabelledG711():
                    raise AudioSocketProtocolError(event.advice)
                case AudioSocketError(code):
                    raise AudioSocketProtocolError(f"the peer reported error {code:#04x}")
                case _:
                    assert_never(event)
        if self._has_id:
            self._update_deadline(now)

    def check_deadline(self, now: float) -> None:
        """Raise ProtocolError where the peer has let the deadline pass."""
        if self.deadline is None or now < self.deadline:
            return
        if not self._has_id:
            raise AudioSocketProtocolError(f"no call id within {self._timeouts.first_message_s:g} s")
        raise AudioSocketProtocolError(
            f"a message was begun and not ended within {self._timeouts.stalled_s:g} s"
        )

    def encode_packet(self, packet: AudioSocketAudio, unsent_bytes: int) -> bytes:
        """The message to write at once; none where over two of them are unsent already."""
        message = self._connection.send(packet)
        if unsent_bytes > _MAX_UNSENT_PACKETS * len(message):
            self.dropped += 1
            self._consecutive_drops += 1
            return b""
        self._consecutive_drops = 0
        return message

    @property
    def has_stalled(self) -> bool:
        """Whether the peer has taken nothing for too long: it is not there to be told so."""
        return self._consecutive_drops * PTIME_S >= self._timeouts.stalled_s

    def encode_hangup(self) -> bytes:
        """The last message, 0x00, which lets the dial plan go on."""
        return self._connection.send(Hangup())

    def _update_deadline(self, now: float) -> None:
        if not self._connection.in_message:
            self.deadline = None
        elif self.deadline is None:
            self.deadline = now + self._timeouts.stalled_s
