"""One AudioSocket connection of Pipecat's transport: the caller's audio and keys are kept for a pipeline, the
bot's speech leaves in packets of 20 ms on an absolute schedule, silence included.

The connection is ``audiosocket_leg``'s, the pace ``playout.Playout``'s; who answers is the exchange's affair
(``pipecat_audiosocket``), and what goes on in the pipeline the transport's.
"""

import asyncio
from collections import deque
from typing import Final, Protocol, assert_never
from uuid import UUID

from ....tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from ....tts_engine.errors import MissingExtra
from ...audio.resample import PassthroughResampler
from ...audiosocket.asyncio_protocol import AudioSocketProtocol
from ...audiosocket.protocol import AudioSocketAudio, CallId, Dtmf
from ...audiosocket.server_connection import AudioSocketTimeouts
from ...playback.playout import Playout, PlayoutStats

try:
    from loguru import logger
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat transport", "pipecat") from error

_TIMEOUTS: Final = AudioSocketTimeouts(first_message_s=5.0, stalled_s=5.0)
_MAX_UNREAD_MESSAGES: Final = 150  # messages, 3 s; what a pipeline cannot keep up with is dropped
_MAX_UNREAD_KEYS: Final = 64


class CallProtocolOwner(Protocol):
    """What a leg asks of the server."""

    def admit(self, protocol: "PipecatAudioSocketProtocol") -> bool:
        """A connection came; whether it may become a call."""

    def open_call(self, protocol: "PipecatAudioSocketProtocol", uuid: UUID) -> int:
        """A call has begun; answers the rate at which it is sent audio, Hz."""

    def call_ended(self, protocol: "PipecatAudioSocketProtocol") -> None:
        """A call is over; its connection may take a moment longer."""

    def connection_closed(self) -> None:
        """A connection is gone."""


class PipecatAudioSocketProtocol(AudioSocketProtocol):
    """One connection to ``exchange``."""

    def __init__(self, owner: CallProtocolOwner) -> None:
        super().__init__(_TIMEOUTS)
        self.sample_rate = 8_000
        self.is_receiving = False  # whether a pipeline takes the caller's audio
        self.inbox: deque[AudioSocketAudio | Dtmf] = deque()
        self.input_or_end = asyncio.Event()  # set when something is in the inbox, or nothing more comes
        self.packet_sent_or_end = asyncio.Event()  # set, and cleared by who waits, at each packet
        self.dropped_messages = 0
        self._owner = owner
        self._uuid: UUID | None = None
        self._started = self._loop.time()
        self._playout: Playout | None = None
        self._tick_timer: asyncio.TimerHandle | None = None

    # What the transport's two ends call

    @property
    def name(self) -> str:
        """For logs: the call's id, once there is one."""
        return self.peer if self._uuid is None else str(self._uuid)

    @property
    def stats(self) -> PlayoutStats:
        """What was sent so far."""
        return PlayoutStats() if self._playout is None else self._playout.stats

    def lead_s(self) -> float:
        """Seconds of speech that the caller has not heard yet."""
        if self._playout is None or self.ended:
            return 0.0
        return self._playout.lead_s(self._loop.time())

    def play(self, pcm: bytes) -> None:
        """Queue speech behind what is there."""
        if self._playout is not None and not self.ended:
            self._playout.push(_chunk(pcm, self.sample_rate))

    def finish(self) -> None:
        """End what is being said: silence after it is no underrun."""
        if self._playout is not None:
            self._playout.finish()

    def discard(self) -> None:
        """Drop what has not been sent."""
        if self._playout is not None:
            self._playout.discard(self._loop.time())
        self.packet_sent_or_end.set()

    # What the connection tells

    def admit(self) -> bool:
        """Whether one more fits."""
        if self._owner.admit(self):
            return True
        logger.warning(f"Call from {self.name} refused: too many calls are up")
        return False

    def handle_event(self, event: CallId | AudioSocketAudio | Dtmf) -> None:
        """Begin the call, or keep what is heard for the pipeline."""
        match event:
            case CallId(uuid):
                self._open(uuid)
            case AudioSocketAudio() | Dtmf():
                self._enqueue(event)
            case _:
                assert_never(event)

    def on_call_ended(self, reason: str) -> None:
        """Stop sending, and wake who waits for the caller."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._owner.call_ended(self)
        self.input_or_end.set()
        self.packet_sent_or_end.set()
        self._log_numbers(reason)

    def on_disconnected(self) -> None:
        """Let the exchange know."""
        self._owner.connection_closed()

    def log_protocol_error(self, fault: str) -> None:
        """Warn."""
        logger.warning(f"Call {self.name}: {fault}")

    def log_internal_error(self, error: Exception) -> None:
        """With the traceback."""
        logger.opt(exception=error).error(f"Call {self.name} failed")

    def _open(self, uuid: UUID) -> None:
        self._uuid = uuid
        self.sample_rate = self._owner.open_call(self, uuid)
        self._playout = Playout(
            start=self._loop.time(), sample_rate=self.sample_rate, resampler=PassthroughResampler()
        )
        logger.info(f"Call {self.name} opened from {self.peer}")
        self._tick()

    def _enqueue(self, event: AudioSocketAudio | Dtmf) -> None:
        full = len(self.inbox) >= _MAX_UNREAD_MESSAGES
        if isinstance(event, Dtmf):
            full = len(self.inbox) >= _MAX_UNREAD_MESSAGES + _MAX_UNREAD_KEYS
        elif not self.is_receiving:
            return  # said before the bot was there to listen
        if full:
            self.dropped_messages += 1
            return
        self.inbox.append(event)
        self.input_or_end.set()

    # What the peer hears

    def _tick(self) -> None:
        assert self._playout is not None
        for packet in self._playout.due(self._loop.time()):
            self.send(AudioSocketAudio(self.sample_rate, packet))
        if self.ended:
            return
        self.packet_sent_or_end.set()
        self._tick_timer = self._loop.call_at(self._playout.next_due(), self._tick)

    def _log_numbers(self, reason: str) -> None:
        stats = self.stats
        logger.info(
            f"Call {self.name} closed after {self._loop.time() - self._started:.1f} s, {reason}: "
            f"{stats.packets} packets, {stats.late_packets} late, {stats.skipped_packets} skipped, "
            f"{self.dropped} dropped, {stats.underruns} underruns, "
            f"{self.dropped_messages} messages of the caller not taken"
        )


def _chunk(pcm: bytes, sample_rate: int) -> AudioChunk:
    # Playout takes what an engine makes; text and words are Pipecat's affair here.
    samples = len(pcm) // 2 * SAMPLE_RATE // sample_rate
    return AudioChunk(pcm, 0, (0, samples), (0, 0), (), Provenance(None, None, 0.0, 0.0), False)
