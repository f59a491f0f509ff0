"""A channel of chan_websocket as Asterisk 23.4.1 was measured: queue, marks, flush, XOFF and limits.

Text messages over 128 bytes are ignored; the part of a message that is no whole frame is lost; a flush drops
the marks without a word and does not resume a paused channel; a full queue drops audio.
"""

import json
from typing import Final

from shared.calls.peers.peer import Message, PeerStep
from shared.calls.peers.queue import PACKET_MS, PeerQueue
from vivavoce.adapters.media_streams.asterisk import FORMATS, MAX_COMMAND_BYTES, MAX_MEDIA_BYTES, SUBPROTOCOL

XOFF_FRAMES: Final = 900
XON_FRAMES: Final = 800
MAX_FRAMES: Final = 1_000


class SimulatedAsterisk:
    """One channel.

    Args:
        format_name: of the audio in both directions, such as "ulaw" or "slin24".
        uses_json: whether control messages are JSON; else they are plain text.
    """

    path = "/v1/asterisk/media"
    subprotocols: tuple[str, ...] = (SUBPROTOCOL,)

    def __init__(self, call_id: str, format_name: str = "ulaw", *, uses_json: bool = True) -> None:
        self.call_id = call_id
        self.has_hung_up = False
        self.flushes = 0
        self.is_paused = False
        self._format_name = format_name
        self._format = FORMATS[format_name]
        self.sample_rate = self._format.sample_rate
        self._frame_bytes = self._format.bytes_per_ms * PACKET_MS
        self._uses_json = uses_json
        self.queue = PeerQueue(self._frame_bytes)
        self._is_full = False
        self._silence = bytes(2 * self.sample_rate * PACKET_MS // 1000)
        self.say(self._silence)

    def say(self, pcm: bytes) -> None:
        """Send ``pcm``, 20 ms of s16le, as every packet of the caller from now on."""
        self._caller_packet = self._format.encode(pcm)

    def start(self) -> list[Message]:
        """Return MEDIA_START."""
        return [
            self._event(
                "MEDIA_START",
                connection_id="vivavoce",
                channel="WebSocket/vivavoce/0x1",
                channel_id=self.call_id,
                format=self._format_name,
                optimal_frame_size=self._frame_bytes,
                ptime=PACKET_MS,
                **({"channel_variables": {"CONTEXT": "phones"}} if self._uses_json else {}),
            )
        ]

    def receive(self, message: Message) -> list[Message]:
        """Take a command or audio."""
        if isinstance(message, bytes):
            return self._receive_audio(message)
        if len(message.encode()) >= MAX_COMMAND_BYTES:
            return []
        command, correlation_id = self._parse(message)
        match command:
            case "MARK_MEDIA":
                self.queue.add_mark(correlation_id)
            case "FLUSH_MEDIA":
                self.flushes += self.queue.holds_speech  # else it drops silence, for speech that follows
                self.queue.clear()
                self._is_full = False
            case "PAUSE_MEDIA":
                self.is_paused = True
            case "CONTINUE_MEDIA":
                self.is_paused = False
            case "HANGUP":
                self.has_hung_up = True
        return []

    def step(self) -> PeerStep:
        """Play one frame, and send one of the caller."""
        messages: list[Message] = [self._caller_packet]
        if self.is_paused:
            return PeerStep(tuple(messages), self._silence)
        played = self.queue.play()
        messages += [self._event("MEDIA_MARK_PROCESSED", correlation_id=name) for name in played.marks]
        if self._is_full and self.queue.packets < XON_FRAMES:
            self._is_full = False
            messages.append(self._event("MEDIA_XON"))
        return PeerStep(tuple(messages), self._format.decode(played.audio) or self._silence)

    def press(self, digit: str) -> list[Message]:
        """Return DTMF_END."""
        return [self._event("DTMF_END", channel_id=self.call_id, digit=digit)]

    def hang_up(self) -> list[Message]:
        """Return nothing: Asterisk closes the WebSocket."""
        return []

    def _receive_audio(self, audio: bytes) -> list[Message]:
        if len(audio) > MAX_MEDIA_BYTES:
            self.has_hung_up = True
            return []
        if self.queue.packets < MAX_FRAMES:
            self.queue.add_audio(audio)
        if self.queue.packets < XOFF_FRAMES or self._is_full:
            return []
        self._is_full = True
        return [self._event("MEDIA_XOFF")]

    def _parse(self, text: str) -> tuple[str, str]:
        if self._uses_json:
            message = json.loads(text)
            return message["command"], message.get("correlation_id", "")
        command, _, correlation_id = text.partition(" ")
        return command, correlation_id

    def _event(self, name: str, **fields: object) -> str:
        if self._uses_json:
            return json.dumps({"event": name, **fields})
        return " ".join([name, *(f"{key}:{value}" for key, value in fields.items())])
