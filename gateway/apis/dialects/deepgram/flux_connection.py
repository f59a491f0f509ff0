"""A ``/v2/speak`` connection: turns of text, of which an interruption answers what was heard.

Positions are milliseconds of the session's audio. An interruption sets the session back to what the client
has played, as the audio after it is dropped:

    turns    |---- 1 ----|---- 2 ----|            the client has played up to ^; turn 2 is interrupted
                              ^
    session  |---------------|---- 3 ----|        turn 3 begins where the client stopped
"""

import math
from collections import deque
from dataclasses import replace
from typing import Final
from uuid import uuid4

from .....adapters.transcript_queue import Transcript
from .....tts_engine.chunk import SAMPLE_RATE, Word
from ...kits.transcript_socket import SpokenTexts, TranscriptConnection
from ...shell.speech import EncodedChunk, SynthesisOptions
from .errors import DEEPGRAM_ERRORS
from .flux_models import (
    FLUX_CLIENT_MESSAGE,
    FluxAppliedConfiguration,
    FluxCloseMessage,
    FluxConfigureFailureMessage,
    FluxConfigureMessage,
    FluxConfigureSuccessMessage,
    FluxConnectedMessage,
    FluxErrorMessage,
    FluxFlushedMessage,
    FluxFlushMessage,
    FluxInterruptMessage,
    FluxSessionMetadataMessage,
    FluxSpeakMessage,
    FluxSpeechInterruptedMessage,
    FluxSpeechMetadataMessage,
    FluxSpeechStartedMessage,
    FluxTurnMetadata,
    FluxWarningMessage,
)
from .models import DeepgramAnswer, parse_deepgram_message

_SPEED_RANGE: Final = (0.5, 1.5)
_SPEED_STEP: Final = 0.05
_MAX_TURNS_KEPT: Final = 16  # whose audio the client may still be playing
_CLOSE_POLICY: Final = 1008  # RFC 6455, 7.4.1


class FluxTurn(Transcript[SynthesisOptions]):
    """A turn, and when its words are heard."""

    def __init__(self, options: SynthesisOptions) -> None:
        super().__init__(options)
        self.speech_id = f"dg_sp_{uuid4().hex[:12]}"
        self.words: list[Word] = []
        self.start_ms = 0.0  # in the session
        self.duration_ms = 0.0

    def heard_text_stop(self, position_ms: float) -> int:
        """Return the number of characters heard by a position: of words whose middle has been played."""
        played_s = (position_ms - self.start_ms) / 1_000
        heard = [word.text_stop for word in self.words if (word.start_s + word.stop_s) / 2 <= played_s]
        return max(heard, default=0)

    def metadata(self) -> FluxTurnMetadata:
        """Return what the turn amounts to so far."""
        return FluxTurnMetadata(
            speech_id=self.speech_id,
            audio_duration_ms=round(self.duration_ms),
            input_character_count=self.characters,
            billable_character_count=self.characters,
        )


class _FluxTurns(SpokenTexts):
    def make_transcript(self) -> FluxTurn:
        return FluxTurn(self.options)


class FluxConnection(TranscriptConnection):
    """One accepted socket."""

    context_type = _FluxTurns
    _session_ms = 0.0  # audio of the session
    _min_offset_ms = 0.0  # where the last interruption was
    _characters = 0

    async def on_open(self) -> None:
        self._turns: deque[FluxTurn] = deque(maxlen=_MAX_TURNS_KEPT)  # spoken ones, the last may be under way
        request_id = self.request_id
        voice = self.options.voice or ""
        await self._send(
            FluxConnectedMessage(request_id=request_id, model_name=voice, model_uuids=[request_id])
        )

    async def receive(self, data: str | bytes) -> None:
        match parse_deepgram_message(FLUX_CLIENT_MESSAGE, data):
            case FluxSpeakMessage(text=text):
                await self._speak_text(text)
            case FluxFlushMessage():
                await self._flush()
            case FluxInterruptMessage(playback_offset=offset):
                await self._interrupt(None if offset is None else offset.value)
            case FluxConfigureMessage(speed=speed):
                await self._configure(speed)
            case FluxCloseMessage():
                self.end_input()

    async def send_chunk(
        self, context: SpokenTexts, transcript: Transcript[SynthesisOptions], chunk: EncodedChunk, text: str
    ) -> None:
        assert isinstance(transcript, FluxTurn)
        if not self._turns or self._turns[-1] is not transcript:
            transcript.start_ms = self._session_ms
            self._turns.append(transcript)
        transcript.words += chunk.words
        chunk_ms = 1_000 * (chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE
        transcript.duration_ms += chunk_ms
        self._session_ms += chunk_ms
        await super().send_chunk(context, transcript, chunk, text)

    async def on_spoken(self, context: SpokenTexts, transcript: Transcript[SynthesisOptions]) -> None:
        assert isinstance(transcript, FluxTurn)
        if not transcript.words:
            await self._warn("NO_SYNTHESIZABLE_TEXT", f"turn {transcript.speech_id} has no words")
        await self._send(FluxSpeechMetadataMessage(**transcript.metadata().model_dump()))

    async def on_ended(self, context: SpokenTexts) -> None:
        totals = FluxSessionMetadataMessage(
            total_audio_duration_ms=round(self._session_ms),
            total_input_character_count=self._characters,
            total_billable_character_count=self._characters,
        )
        await self._send(totals)
        await super().on_ended(context)

    async def report(self, error: Exception, context_id: str | None) -> None:
        described = DEEPGRAM_ERRORS.describe(error)
        self.queue.drop()
        await self._send(FluxErrorMessage(code=described.flux_code, description=described.message))
        await self.close(_CLOSE_POLICY)

    async def _speak_text(self, text: str) -> None:
        begins = self.queue.open_transcript is None
        self.push(text)
        self._characters += len(text)
        turn = self.queue.open_transcript
        if begins and isinstance(turn, FluxTurn):
            await self._send(FluxSpeechStartedMessage(speech_id=turn.speech_id))

    async def _flush(self) -> None:
        turn = self.queue.open_transcript
        if not isinstance(turn, FluxTurn):
            await self._warn("NO_ACTIVE_SPEECH", "there is no turn to flush")
            return
        await self._send(FluxFlushedMessage(speech_id=turn.speech_id))
        self.complete()

    async def _configure(self, speed: float | None) -> None:
        if speed is not None:
            code = _speed_fault(speed)
            if code is not None:
                minimum, maximum = _SPEED_RANGE
                description = f"speed {speed}: allowed is {minimum} to {maximum} in steps of {_SPEED_STEP}"
                await self._send(FluxConfigureFailureMessage(code=code, value=speed, description=description))
                return
            self.options = self.queue.options = replace(self.options, speed=speed)
        applied = FluxAppliedConfiguration(speed=self.options.speed)
        await self._send(FluxConfigureSuccessMessage(applied=applied))

    # Interruption

    async def _interrupt(self, offset_ms: int | None) -> None:
        if not self._session_ms:
            await self._warn("NO_AUDIO_GENERATED", "there is no audio to interrupt")
            return
        if offset_ms is not None and offset_ms <= self._min_offset_ms:
            minimum = round(self._min_offset_ms)
            await self._warn(
                "INVALID_INTERRUPT_OFFSET", f"got {offset_ms} ms; the position is beyond {minimum} ms"
            )
            return
        active = next(iter(self.queue.transcripts), None)
        if active is None and (not self._turns or offset_ms is None or offset_ms >= self._session_ms):
            await self._warn("NO_ACTIVE_SPEECH", "there is no turn to interrupt")
            return
        position_ms = min(self._session_ms, math.inf if offset_ms is None else offset_ms)
        turn = self._turn_at(position_ms)
        text = turn.text
        self.discard()
        split = None if offset_ms is None else turn.heard_text_stop(position_ms)
        self._session_ms = self._min_offset_ms = position_ms
        self._turns.clear()
        await self._send(
            FluxSpeechInterruptedMessage(
                audio_played_ms=round(position_ms),
                text_spoken=None if split is None else text[:split],
                text_remaining=None if split is None else text[split:],
                metadata=turn.metadata(),
            )
        )

    def _turn_at(self, position_ms: float) -> FluxTurn:
        """Return the turn that is heard at a position, the one that waits for its audio if there is none."""
        begun = [turn for turn in self._turns if turn.start_ms <= position_ms]
        turn = begun[-1] if begun else next(iter((*self._turns, *self.queue.transcripts)))
        assert isinstance(turn, FluxTurn)
        return turn

    async def _warn(self, code: str, description: str) -> None:
        await self._send(FluxWarningMessage(code=code, description=description))

    async def _send(self, message: DeepgramAnswer) -> None:
        await self.send_text(message.encode())


def _speed_fault(speed: float) -> str | None:
    minimum, maximum = _SPEED_RANGE
    if not minimum <= speed <= maximum:
        return "SPEED_OUT_OF_RANGE"
    steps = speed / _SPEED_STEP
    return None if math.isclose(steps, round(steps), abs_tol=1e-6) else "SPEED_INCREMENT_INVALID"
