"""Base of the simulated carriers: the stream's queue, the caller's audio, and refusals.

A message that the carrier would refuse ends the call, so that a test sees it; ``refusal`` has the reason.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from shared.calls.peers.peer import Message, PeerStep
from shared.calls.peers.queue import PACKET_MS, PeerQueue
from vivavoce.adapters.media_streams.stream_format import StreamFormat


class RefusedMessage(ValueError):
    """The carrier would refuse a message of ours."""


class SimulatedCarrier(ABC):
    """One stream of a carrier.

    Args:
        path: of the gateway's WebSocket.
        audio: of the stream, in both directions.
    """

    subprotocols: tuple[str, ...] = ()

    def __init__(self, call_id: str, path: str, audio: StreamFormat) -> None:
        self.call_id = call_id
        self.path = path
        self.sample_rate = audio.sample_rate
        self.has_hung_up = False
        self.refusal = ""
        self.flushes = 0
        self.queue = PeerQueue(audio.bytes_per_ms * PACKET_MS)
        self._audio = audio
        self._packet_bytes = audio.bytes_per_ms * PACKET_MS
        self._packets = 0  # of the caller
        self._rest = b""  # of the audio, which may have any length
        self._silence = bytes(2 * audio.sample_rate * PACKET_MS // 1000)
        self.say(self._silence)

    def say(self, pcm: bytes) -> None:
        """Send ``pcm``, 20 ms of s16le, as every packet of the caller from now on."""
        self._caller_packet = self._audio.encode(pcm)

    def receive(self, message: Message) -> list[Message]:
        """Take a message of the gateway; return the replies."""
        try:
            return list(self._receive(message))
        except (ValueError, KeyError, TypeError) as error:
            self.refusal = repr(error)
            self.has_hung_up = True
            return []

    def step(self) -> PeerStep:
        """Play one packet, and send one of the caller."""
        played = self.queue.play()
        self._packets += 1
        marks = (self._played(name) for name in played.marks)
        messages = (*self._caller_messages(self._caller_packet), *marks)
        return PeerStep(messages, self._audio.decode(played.audio) or self._silence)

    def hang_up(self) -> list[Message]:
        """Return nothing: the carrier closes the WebSocket."""
        return []

    # Implemented by a carrier

    @abstractmethod
    def start(self) -> list[Message]:
        """Return the first messages."""

    @abstractmethod
    def press(self, digit: str) -> list[Message]:
        """Return the messages of a key."""

    @abstractmethod
    def _receive(self, message: Message) -> Iterable[Message]:
        """Take a message; raises ValueError, KeyError or TypeError for one that the carrier refuses."""

    @abstractmethod
    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        """Return the messages of a packet of the caller; the number of packets so far counts it."""

    @abstractmethod
    def _played(self, name: str) -> Message:
        """Return the report that the audio before a mark was played."""

    # For carriers

    def _queue_audio(self, audio: bytes) -> None:
        """Queue audio of any length."""
        audio = self._rest + audio
        whole = len(audio) // self._packet_bytes * self._packet_bytes
        self.queue.add_audio(audio[:whole])
        self._rest = audio[whole:]

    def _clear(self) -> tuple[str, ...]:
        """Drop what is queued; return the marks that were dropped."""
        self.flushes += 1
        self._rest = b""
        return self.queue.clear()


def media_stream_path(carrier: str, token: str = "") -> str:
    """Return the path of the gateway's WebSocket for a carrier."""
    return f"/v1/media-streams/{carrier}" + (f"/{token}" if token else "")


def require_fields(message: Mapping[str, Any], *fields: str) -> None:
    """Raise RefusedMessage unless a message has those fields and no others."""
    if set(message) != set(fields):
        raise RefusedMessage(f"got the fields {sorted(message)}, not {sorted(fields)}")
