"""One AudioSocket connection of Pipecat's transport: the caller's audio and keys are kept for a pipeline, the
bot's speech leaves in packets of 20 ms on an absolute schedule, silence included.

The connection is ``audiosocket_leg``'s, the pace ``playout.Playout``'s; who answers is the exchange's affair
(``pipecat_audiosocket``), and what goes on in the pipeline the transport's.
"""

import asyncio
from collections import deque
from typing import Final, Protocol, assert_never
from uuid import UUID

from ..tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from ..tts_engine.errors import MissingExtra
from .audiosocket import Audio, CallId, Dtmf
from .audiosocket_leg import AudioSocketLeg
from .audiosocket_line import Patience
from .playout import Playout, PlayoutStats
from .resample import Passthrough

try:
    from loguru import logger
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat transport", "pipecat") from error

_PATIENCE: Final = Patience(first_message_s=5.0, stalled_s=5.0)
_MOST_AUDIO_UNREAD: Final = 150  # messages, 3 s; what a pipeline cannot keep up with is dropped
_MOST_KEYS_UNREAD: Final = 64


class Exchange(Protocol):
    """What a leg asks of the server."""

    def admit(self, leg: "Leg") -> bool:
        """A connection came; whether it may become a call."""

    def open(self, leg: "Leg", uuid: UUID) -> int:
        """A call has begun; answers the rate at which it is sent audio, Hz."""

    def leave(self, leg: "Leg") -> None:
        """A call is over; its connection may take a moment longer."""

    def forget(self) -> None:
        """A connection is gone."""


class Leg(AudioSocketLeg):
    """One connection to ``exchange``."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(_PATIENCE)
        self.sample_rate = 8_000
        self.listening = False  # whether a pipeline takes the caller's audio
        self.inbox: deque[Audio | Dtmf] = deque()
        self.heard_or_over = asyncio.Event()  # set when something is in the inbox, or nothing more comes
        self.sent_or_over = asyncio.Event()  # set, and cleared by who waits, at each packet
        self.dropped_audio = 0
        self._exchange = exchange
        self._uuid: UUID | None = None
        self._started = self._loop.time()
        self._playout: Playout | None = None
        self._ticker: asyncio.TimerHandle | None = None

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
        if self._playout is None or self.over:
            return 0.0
        return self._playout.lead_s(self._loop.time())

    def play(self, pcm: bytes) -> None:
        """Queue speech behind what is there."""
        if self._playout is not None and not self.over:
            self._playout.push(_chunk(pcm, self.sample_rate))

    def finish(self) -> None:
        """End what is being said: silence after it is no underrun."""
        if self._playout is not None:
            self._playout.finish()

    def discard(self) -> None:
        """Drop what has not been sent."""
        if self._playout is not None:
            self._playout.discard(self._loop.time())
        self.sent_or_over.set()

    # What the connection tells

    def admit(self) -> bool:
        """Whether one more fits."""
        if self._exchange.admit(self):
            return True
        logger.warning(f"Call from {self.name} refused: too many calls are up")
        return False

    def take(self, event: CallId | Audio | Dtmf) -> None:
        """Begin the call, or keep what is heard for the pipeline."""
        match event:
            case CallId(uuid):
                self._open(uuid)
            case Audio() | Dtmf():
                self._keep(event)
            case _:
                assert_never(event)

    def on_over(self, reason: str) -> None:
        """Stop sending, and wake who waits for the caller."""
        if self._ticker is not None:
            self._ticker.cancel()
        self._exchange.leave(self)
        self.heard_or_over.set()
        self.sent_or_over.set()
        self._log_numbers(reason)

    def on_gone(self) -> None:
        """Let the exchange know."""
        self._exchange.forget()

    def log_fault(self, fault: str) -> None:
        """Warn."""
        logger.warning(f"Call {self.name}: {fault}")

    def log_failure(self, error: Exception) -> None:
        """With the traceback."""
        logger.opt(exception=error).error(f"Call {self.name} failed")

    def _open(self, uuid: UUID) -> None:
        self._uuid = uuid
        self.sample_rate = self._exchange.open(self, uuid)
        self._playout = Playout(
            start=self._loop.time(), sample_rate=self.sample_rate, resampler=Passthrough()
        )
        logger.info(f"Call {self.name} opened from {self.peer}")
        self._tick()

    def _keep(self, event: Audio | Dtmf) -> None:
        full = len(self.inbox) >= _MOST_AUDIO_UNREAD
        if isinstance(event, Dtmf):
            full = len(self.inbox) >= _MOST_AUDIO_UNREAD + _MOST_KEYS_UNREAD
        elif not self.listening:
            return  # said before the bot was there to listen
        if full:
            self.dropped_audio += 1
            return
        self.inbox.append(event)
        self.heard_or_over.set()

    # What the peer hears

    def _tick(self) -> None:
        assert self._playout is not None
        for packet in self._playout.due(self._loop.time()):
            self.send(Audio(self.sample_rate, packet))
        if self.over:
            return
        self.sent_or_over.set()
        self._ticker = self._loop.call_at(self._playout.next_due(), self._tick)

    def _log_numbers(self, reason: str) -> None:
        stats = self.stats
        logger.info(
            f"Call {self.name} closed after {self._loop.time() - self._started:.1f} s, {reason}: "
            f"{stats.packets} packets, {stats.late_packets} late, {stats.skipped_packets} skipped, "
            f"{self.dropped} dropped, {stats.underruns} underruns, "
            f"{self.dropped_audio} messages of the caller not taken"
        )


def _chunk(pcm: bytes, sample_rate: int) -> AudioChunk:
    # Playout takes what an engine makes; text and words are Pipecat's affair here.
    samples = len(pcm) // 2 * SAMPLE_RATE // sample_rate
    return AudioChunk(pcm, 0, (0, samples), (0, 0), (), Provenance(None, None, 0.0, 0.0), False)
