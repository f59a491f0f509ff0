"""What every text-to-speech service of ours is to a Pipecat pipeline, whoever renders the speech.

    LLMTextFrame -> run_tts -> Speech.stream.push_text               returns at once, token by token
    TTSAudioRawFrame, word times <- Utterance.speak <- Speech        one task a context, paced

Pipecat plays audio contexts one after the other and so do we: an utterance gives out nothing before its
context is the one that is played, so that word times count from what the listener really hears, gaps
included. What was not heard does not enter the conversation: not after an interruption, not after a failure;
``pipecat_words`` sees to that.

Not here: how one utterance is handed on (``pipecat_utterance``), and who speaks: ``pipecat_tts`` has an
engine in this process, ``pipecat_remote_tts`` a server.

Source: pipecat-ai 1.14.0, services/tts_service.py, read and measured.
"""

# Pipecat is typed, but for what its functions return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Final

from ...tts_engine.chunk import Word
from ...tts_engine.errors import BadRequest, BadText, MissingExtra, Overloaded, VivavoceError
from .audio_context import AudioContextPlayback, SpeechSource
from .word_timing import NANOSECONDS_PER_S, ClauseSequencer, Playhead

try:
    from loguru import logger
    from pipecat.frames.frames import (
        CancelFrame,
        EndFrame,
        ErrorFrame,
        Frame,
        InterruptionFrame,
        LLMFullResponseStartFrame,
        LLMTextFrame,
        TTSAudioRawFrame,
        TTSStoppedFrame,
    )
    from pipecat.processors.frame_processor import FrameDirection
    from pipecat.services.settings import TTSSettings
    from pipecat.services.tts_service import TextAggregationMode, TTSService
    from pipecat.transcriptions.language import Language
    from pipecat.utils.errors import ErrorCategory
    from pipecat.utils.tracing.service_decorators import traced_tts
    from pipecat.utils.types import NOT_GIVEN, NotGiven
except ModuleNotFoundError as error:
    raise MissingExtra("the Pipecat service", "pipecat") from error

__all__ = ["BaseVivavoceTTSService", "VivavoceTTSSettings"]

LEAD_S: Final = 1.0  # enough for a stalled event loop, little to render for nothing at a barge-in
STOP_FRAME_TIMEOUT_S: Final = 15.0  # Pipecat's 3 s drop the rest of a turn behind one slow answer
ERROR_SILENCE_S: Final = 0.02  # three contexts without any audio, and Pipecat writes a service off
TRANSIENT_ERRORS: Final = (ErrorCategory.RATE_LIMIT, ErrorCategory.CONNECTIVITY)  # no reason to write it off


@dataclass
class VivavoceTTSSettings(TTSSettings):
    """What may change while a pipeline runs; each takes effect with the next utterance.

    Parameters:
        speed: Speed factor, 0.5 to 2.0; 1.0 is as the voice speaks.
    """

    speed: float | NotGiven = field(default_factory=lambda: NOT_GIVEN)


class BaseVivavoceTTSService(TTSService):
    """Speaks an LLM's tokens as they are written; an heir says who speaks them, by ``_vivavoce_open_speech``.

    Words enter the LLM's context when they are heard. An interruption cancels what is being said and lets no
    audio frame follow the ``InterruptionFrame``. Audio is handed on at the pace at which it is heard, at most
    ``lead_s`` ahead, whatever the transport's own queues would take. Voice and speed are of an utterance: a
    change counts from the next one on.
    """

    Settings = VivavoceTTSSettings
    _settings: VivavoceTTSSettings

    def __init__(
        self,
        *,
        lead_s: float = LEAD_S,
        settings: VivavoceTTSSettings | None = None,
        text_aggregation_mode: TextAggregationMode = TextAggregationMode.TOKEN,
        stop_frame_timeout_s: float = STOP_FRAME_TIMEOUT_S,
        **kwargs: Any,
    ) -> None:
        """Initialize the service.

        Args:
            lead_s: Seconds of audio handed to the pipeline ahead of the listener before the next piece is
                taken; ``math.inf`` to hand on all that is there, for transports that want it faster than
                real time.
            settings: Model, voice, language and speed.
            text_aggregation_mode: ``TOKEN`` speaks from the first clause on; ``SENTENCE`` waits for its end.
            stop_frame_timeout_s: Seconds without audio after which Pipecat closes a context.
            **kwargs: Arguments of ``TTSService``.
        """
        own_settings = VivavoceTTSSettings(model="default", voice=None, language=None, speed=1.0)
        if settings is not None:
            own_settings.apply_update(settings)
        super().__init__(
            settings=own_settings,
            text_aggregation_mode=text_aggregation_mode,
            push_start_frame=True,
            push_stop_frames=False,
            push_text_frames=False,
            append_trailing_space=True,
            stop_frame_timeout_s=stop_frame_timeout_s,
            **kwargs,
        )
        self.vivavoce_max_lead_s = lead_s
        self._vivavoce_flush_each_text = text_aggregation_mode is not TextAggregationMode.TOKEN
        self._vivavoce_utterances: dict[str, AudioContextPlayback] = {}
        self._vivavoce_failed: set[str] = set()  # contexts of which nothing more is said
        self._vivavoce_sequencer = ClauseSequencer(
            str(self), self._vivavoce_failed, streaming=not self._vivavoce_flush_each_text
        )
        self._aggregated_frame_sequencer = self._vivavoce_sequencer
        self._vivavoce_context_queue: list[str] = []  # contexts in the order in which Pipecat plays them
        self._vivavoce_playing: str | None = None
        self._vivavoce_playhead = Playhead()
        self._vivavoce_reply_interrupted = False  # since an interruption no reply has begun

    def _vivavoce_open_source(self) -> SpeechSource:
        # Begin an utterance as the settings are; raises VivavoceError.
        raise NotImplementedError

    def _vivavoce_settings_error(self) -> str | None:
        # What is wrong with the settings, if anything is.
        speed = self._settings.speed
        if not isinstance(speed, int | float) or not 0.5 <= speed <= 2.0:
            return f"got speed {speed!r}; it must be 0.5 to 2.0"
        return None

    def can_generate_metrics(self) -> bool:
        """Check if this service can generate metrics.

        Returns:
            True: time to first byte and to first audio, and characters.
        """
        return True

    @property
    def supports_processing_metrics(self) -> bool:
        """Whether the time spent in ``run_tts`` means something: no, it only hands text over."""
        return False

    def language_to_service_language(self, language: Language) -> str:
        """Convert a language to ours.

        Args:
            language: The language to convert.

        Returns:
            Its BCP 47 tag; voices carry theirs.
        """
        return str(language.value)

    # Life

    async def stop(self, frame: EndFrame) -> None:
        """Stop after what is being said has been said.

        Args:
            frame: The end frame.
        """
        for utterance in self._vivavoce_utterances.values():
            utterance.end_text()  # the writer will not come back to end it
        await super().stop(frame)
        await self._vivavoce_teardown()

    async def cancel(self, frame: CancelFrame) -> None:
        """Stop at once.

        Args:
            frame: The cancel frame.
        """
        await self._vivavoce_teardown()
        await super().cancel(frame)

    async def cleanup(self) -> None:
        """Release everything; the one call that always comes."""
        await self._vivavoce_teardown()
        await super().cleanup()

    # Text in

    async def on_turn_context_created(self, context_id: str) -> None:
        """Open the turn's stream while the LLM still thinks.

        Args:
            context_id: The turn's context.
        """
        try:
            self._vivavoce_open(context_id)
        except VivavoceError as error:
            logger.debug(f"{self}: tried again with the first text: {error}")

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Hand text to who speaks; the audio comes from a task of its own.

        Args:
            text: A token, or a sentence in ``SENTENCE`` mode.
            context_id: The context that it is part of.

        Yields:
            None, or an ``ErrorFrame`` if the text is not taken.
        """
        await self.start_tts_usage_metrics(text)
        try:
            await self._vivavoce_push(text, context_id)
        except VivavoceError as error:
            await self.vivavoce_fail(context_id, error)
            yield ErrorFrame(error=str(error), exception=error)
        else:
            yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """End a context's text; what of it is not yet spoken will be.

        Args:
            context_id: The context; by default the one that is played.
        """
        context_id = context_id or self.get_active_audio_context_id()
        utterance = self._vivavoce_utterances.get(context_id or "")
        if utterance is not None:
            utterance.end_text()
            await utterance.publish_words()
        elif context_id in self._vivavoce_failed:
            await self.vivavoce_finish(context_id)

    async def on_turn_context_completed(self) -> None:
        """End the turn's text, or the stream that was opened for a turn without any."""
        context_id = self._turn_context_id or ""
        utterance = self._vivavoce_utterances.get(context_id)
        if utterance is not None and not self.audio_context_available(context_id):
            if utterance.has_text:  # Pipecat gave up waiting for the writer, who has finished after all
                await self.create_audio_context(context_id)
            else:
                await self._vivavoce_close(context_id)
        await super().on_turn_context_completed()

    # The order of contexts

    async def create_audio_context(self, context_id: str) -> None:
        """Create an audio context, to be played after those that are there.

        Args:
            context_id: The context.
        """
        await super().create_audio_context(context_id)
        self._vivavoce_dequeue(context_id)
        self._vivavoce_context_queue.append(context_id)
        self._vivavoce_advance()

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Let the next context speak.

        Args:
            context_id: The context that has been played, or that Pipecat has given up waiting for.
        """
        utterance = self._vivavoce_utterances.get(context_id)
        if utterance is not None:
            utterance.playback_allowed.clear()
            if utterance.text_ended:
                await self._vivavoce_close(context_id)
        self._vivavoce_failed.discard(context_id)
        self._vivavoce_dequeue(context_id)
        self._vivavoce_advance()

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Cancel a context's stream: nothing of it is heard or rendered any more.

        Args:
            context_id: The context that was interrupted.
        """
        await self._vivavoce_close(context_id)
        await self.stop_all_metrics()
        if context_id == self._vivavoce_playing:
            self._vivavoce_playhead.discard()
        self._vivavoce_failed.discard(context_id)
        self._vivavoce_dequeue(context_id)
        self._vivavoce_advance()

    # Frames

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame.

        An interruption also ends streams that were opened and had no text yet, and what the LLM still sends
        of the reply that was cut off is not spoken.

        Args:
            frame: The frame.
            direction: Where it is going.
        """
        if isinstance(frame, LLMFullResponseStartFrame):
            self._vivavoce_reply_interrupted = False
        elif isinstance(frame, LLMTextFrame) and self._vivavoce_reply_interrupted and not frame.skip_tts:
            return
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            self._vivavoce_reply_interrupted = True
            for context_id in tuple(self._vivavoce_utterances):
                if not self.audio_context_available(context_id):
                    await self._vivavoce_close(context_id)

    # Settings

    async def _update_settings(self, delta: TTSSettings) -> dict[str, Any]:  # type: ignore[override]
        before = self._settings.copy()
        changed = await super()._update_settings(delta)
        unsupported_names = changed.keys() - {"voice", "language", "speed"}
        for name in unsupported_names & {"model"}:
            setattr(self._settings, name, changed[name])
        self._warn_unhandled_updated_settings(unsupported_names)
        error_text = self._vivavoce_settings_error()
        if error_text is not None:
            self._settings = before
            await self.push_error(f"settings not changed: {error_text}", category=ErrorCategory.APPLICATION)
            return {}
        for utterance in tuple(self._vivavoce_utterances.values()):
            if not utterance.has_text:  # opened for a turn to come: it shall have the new voice
                await self._vivavoce_close(utterance.context_id)
        return changed

    def _classify_error(self, exception: Exception) -> ErrorCategory | None:
        match exception:
            case Overloaded():
                return ErrorCategory.RATE_LIMIT
            case BadText():
                return ErrorCategory.APPLICATION
            case BadRequest():
                return ErrorCategory.INVALID_REQUEST
            case VivavoceError():
                return ErrorCategory.SERVER
            case _:
                return super()._classify_error(exception)

    # What utterances call

    def vivavoce_lead_s(self) -> float:
        """Seconds of audio that are with the pipeline and not yet heard."""
        return self._vivavoce_playhead.lead_s(self.get_clock().get_time())

    def vivavoce_schedule_audio(
        self, duration_s: float, begin_s: float, words: list[Word]
    ) -> list[tuple[Word, float]]:
        """Account for audio about to be handed on.

        Args:
            duration_s: Its length.
            begin_s: Where in its stream it begins.
            words: Those that begin in it.

        Returns:
            The words with their times, as ``add_word_timestamps`` takes them.
        """
        playhead = self._vivavoce_playhead
        starts_ns = playhead.play(self.get_clock().get_time(), duration_s)
        return [
            (word, playhead.word_time_s(starts_ns + round((word.start_s - begin_s) * NANOSECONDS_PER_S)))
            for word in words
        ]

    def vivavoce_accepted_characters(self, context_id: str) -> float:
        """Characters of a context's text whose words Pipecat takes.

        Args:
            context_id: The context.

        Returns:
            How many; ``math.inf`` for all.
        """
        return self._vivavoce_sequencer.accepted_characters(context_id)

    async def vivavoce_close_clause(self, context_id: str) -> None:
        """Let Pipecat take the words of all text that a context has so far.

        Args:
            context_id: The context.
        """
        for frame in await self._vivavoce_sequencer.close_clause(context_id):
            await self.append_to_audio_context(context_id, frame)

    async def vivavoce_finish(self, context_id: str | None) -> None:
        """End a context behind its last audio.

        Args:
            context_id: The context.
        """
        if context_id is None or not self.audio_context_available(context_id):
            return
        await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
        await self.remove_audio_context(context_id)

    async def vivavoce_fail(self, context_id: str, error: VivavoceError) -> None:
        """Say nothing more of a context; what was said remains, the rest does not count as said.

        Args:
            context_id: The context.
            error: Why.
        """
        self._vivavoce_failed.add(context_id)
        if self._classify_error(error) in TRANSIENT_ERRORS:
            silence = bytes(2 * round(ERROR_SILENCE_S * self.sample_rate))
            frame = TTSAudioRawFrame(silence, self.sample_rate, 1, context_id=context_id)
            await self.append_to_audio_context(context_id, frame)
        utterance = self._vivavoce_utterances.pop(context_id, None)
        if utterance is None:
            return
        utterance.stream.cancel()
        if utterance.task is not None and utterance.task is not asyncio.current_task():
            await self.cancel_task(utterance.task)
        if utterance.text_ended:
            await self.vivavoce_finish(context_id)

    # Streams

    async def _vivavoce_push(self, text: str, context_id: str) -> None:
        if context_id in self._vivavoce_failed:
            return
        utterance = self._vivavoce_open(context_id)
        utterance.push_text(text)
        if self._vivavoce_flush_each_text:
            utterance.stream.flush()
        if context_id != self._turn_context_id:
            utterance.end_text()  # of no turn, so that nobody will tell its end
            await self.vivavoce_close_clause(context_id)
        await utterance.publish_words()

    def _vivavoce_open(self, context_id: str) -> AudioContextPlayback:
        if context_id in self._vivavoce_utterances:
            return self._vivavoce_utterances[context_id]
        utterance = AudioContextPlayback(self, context_id, self._vivavoce_open_source())
        utterance.task = self.create_task(utterance.speak(), name="speak")
        self._vivavoce_utterances[context_id] = utterance
        if self._vivavoce_playing == context_id:
            utterance.playback_allowed.set()
        return utterance

    async def _vivavoce_close(self, context_id: str) -> None:
        utterance = self._vivavoce_utterances.pop(context_id, None)
        if utterance is None:
            return
        utterance.stream.cancel()
        if utterance.task is not None:
            await self.cancel_task(utterance.task)

    def _vivavoce_dequeue(self, context_id: str) -> None:
        if context_id in self._vivavoce_context_queue:
            self._vivavoce_context_queue.remove(context_id)

    def _vivavoce_advance(self) -> None:
        head = self._vivavoce_context_queue[0] if self._vivavoce_context_queue else None
        if head == self._vivavoce_playing:
            return
        self._vivavoce_playing = head
        self._vivavoce_playhead.begin_context()
        utterance = self._vivavoce_utterances.get(head or "")
        if utterance is not None:
            utterance.playback_allowed.set()

    async def _vivavoce_teardown(self) -> None:
        for context_id in tuple(self._vivavoce_utterances):
            await self._vivavoce_close(context_id)
