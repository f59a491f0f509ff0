"""Base class of the Pipecat text-to-speech services.

    LLMTextFrame -> run_tts -> SpeechSource.stream.push_text                     returns at once, each token
    TTSAudioRawFrame, word times <- AudioContextPlayback.speak <- SpeechSource   one task a context, paced

Pipecat plays one audio context after the other. A playback sends nothing before its context is the played
one, so that word times count from what the listener really hears, gaps included. Text that was not heard does
not enter the conversation, neither after an interruption nor after a failure; ``word_timing`` implements
this.

``engine_tts_service`` has an engine in this process, ``remote_tts_service`` uses a server.

Source: pipecat-ai 1.14.0, services/tts_service.py, read and measured.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

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
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.tracing.service_decorators import traced_tts

from ...tts_engine.errors import BadRequest, BadText, Overloaded, VivavoceError
from ...tts_engine.reading.pronunciation.lexicon import inline_pronunciation
from .audio_context import AudioContextPlayback, AudioContexts, SpeechSource
from .context_output import ContextOutput
from .tts_settings import VivavoceTTSSettings, complete_settings, speed_error
from .word_timing import ClauseSequencer

# Enough for a stalled event loop, and little to render in vain before a barge-in.
LEAD_S: Final = 1.0
# Pipecat's default of 3 s drops the rest of a turn after one slow answer.
STOP_FRAME_TIMEOUT_S: Final = 15.0
# Pipecat marks a service as unusable after three contexts without any audio.
ERROR_SILENCE_S: Final = 0.02
TRANSIENT_ERRORS: Final = (ErrorCategory.RATE_LIMIT, ErrorCategory.CONNECTIVITY)


class BaseVivavoceTTSService(TTSService):
    """Speaks an LLM's tokens as they are written. Subclasses implement ``_vivavoce_open_source``.

    Words enter the LLM's context when they are heard. An interruption cancels the current speech, and no
    audio frame follows the ``InterruptionFrame``. Audio is handed on at the pace at which it is heard, at
    most ``lead_s`` ahead, even if the transport's queues would take more. A change of voice or speed takes
    effect with the next utterance.
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
                taken; ``math.inf`` to hand on audio as soon as it is rendered, for transports that take it
                faster than real time.
            settings: Model, voice, language and speed.
            text_aggregation_mode: ``TOKEN`` starts with the first clause, ``SENTENCE`` with the first
                sentence.
            stop_frame_timeout_s: Seconds without audio after which Pipecat closes a context.
            **kwargs: Arguments of ``TTSService``.
        """
        super().__init__(
            settings=complete_settings(settings),
            text_aggregation_mode=text_aggregation_mode,
            push_start_frame=True,
            push_stop_frames=False,
            push_text_frames=False,
            append_trailing_space=True,
            stop_frame_timeout_s=stop_frame_timeout_s,
            **kwargs,
        )
        self._vivavoce_flush_each_text = text_aggregation_mode is not TextAggregationMode.TOKEN
        self._vivavoce_failed: set[str] = set()  # contexts whose remaining text is not spoken
        sequencer = ClauseSequencer(
            str(self), self._vivavoce_failed, streaming=not self._vivavoce_flush_each_text
        )
        self._aggregated_frame_sequencer = sequencer  # replaces Pipecat's own
        self._vivavoce_output = ContextOutput(self, sequencer, lead_s, self._vivavoce_report_failure)
        self._vivavoce_contexts = AudioContexts(self._vivavoce_output.playhead.begin_context)
        self._vivavoce_reply_interrupted = False  # no reply has begun since the last interruption

    def _vivavoce_open_source(self) -> SpeechSource:
        # Begins an utterance with the current settings; raises VivavoceError.
        raise NotImplementedError

    def _vivavoce_settings_error(self) -> str | None:
        # The error of the current settings, or None.
        return speed_error(self._settings)

    def can_generate_metrics(self) -> bool:
        """Check if this service can generate metrics.

        Returns:
            True: time to first byte and to first audio, and characters.
        """
        return True

    @property
    def supports_processing_metrics(self) -> bool:
        """False: ``run_tts`` only hands text over, so its duration is not the processing time."""
        return False

    @classmethod
    def format_pronunciation(cls, word: str, ipa: str) -> str | None:
        """Write a word with its pronunciation as the reader understands it: ``[word](/ipa/)``.

        Args:
            word: The word as it appears in the text.
            ipa: How to pronounce it, in IPA.

        Returns:
            The text to send; None if ``ipa`` is not IPA or the word has brackets.
        """
        return inline_pronunciation(word, ipa)

    def language_to_service_language(self, language: Language) -> str:
        """Convert a language to the tag that voices use.

        Args:
            language: The language to convert.

        Returns:
            Its BCP 47 tag.
        """
        return str(language.value)

    # Lifecycle

    async def stop(self, frame: EndFrame) -> None:
        """Stop after the current speech has been spoken.

        Args:
            frame: The end frame.
        """
        for playback in self._vivavoce_contexts.playbacks():
            playback.end_text()  # no frame will end it any more
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
        """Release everything; Pipecat calls this in every case."""
        await self._vivavoce_teardown()
        await super().cleanup()

    # Text in

    async def on_turn_context_created(self, context_id: str) -> None:
        """Open the turn's stream before the LLM's first token.

        Args:
            context_id: The turn's context.
        """
        try:
            self._vivavoce_open(context_id)
        except VivavoceError as error:
            logger.debug(f"{self}: not opened ahead, retried with the first text: {error}")

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Hand text to the voice; the playback's task sends the audio.

        Args:
            text: A token, or a sentence in ``SENTENCE`` mode.
            context_id: The context of the text.

        Yields:
            None, or an ``ErrorFrame`` if the text is refused.
        """
        await self.start_tts_usage_metrics(text)
        try:
            await self._vivavoce_push(text, context_id)
        except VivavoceError as error:
            await self._vivavoce_fail(context_id, error)
            yield ErrorFrame(error=str(error), exception=error)
        else:
            yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """End a context's text; the rest of it is spoken.

        Args:
            context_id: The context; by default the one that is played.
        """
        context_id = context_id or self.get_active_audio_context_id()
        playback = self._vivavoce_contexts.get(context_id)
        if playback is not None:
            playback.end_text()
            await playback.publish_words()
        elif context_id in self._vivavoce_failed:
            await self._vivavoce_output.finish(str(context_id))

    async def on_turn_context_completed(self) -> None:
        """End the turn's text, or close the stream of a turn without text."""
        context_id = self._turn_context_id or ""
        playback = self._vivavoce_contexts.get(context_id)
        if playback is not None and not self.audio_context_available(context_id):
            if playback.has_text:  # Pipecat closed the context in a pause of the LLM
                await self.create_audio_context(context_id)
            else:
                await self._vivavoce_close(context_id)
        await super().on_turn_context_completed()

    # Audio contexts

    async def create_audio_context(self, context_id: str) -> None:
        """Create an audio context, played after the existing ones.

        Args:
            context_id: The context.
        """
        await super().create_audio_context(context_id)
        self._vivavoce_contexts.enqueue(context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Let the next context speak.

        Args:
            context_id: The context that has been played, or that Pipecat has closed after a timeout.
        """
        playback = self._vivavoce_contexts.get(context_id)
        if playback is not None:
            playback.playback_allowed.clear()
            if playback.text_ended:
                await self._vivavoce_close(context_id)
        self._vivavoce_failed.discard(context_id)
        self._vivavoce_contexts.dequeue(context_id)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Cancel a context's stream; its speech is neither sent nor rendered any more.

        Args:
            context_id: The context that was interrupted.
        """
        await self._vivavoce_close(context_id)
        await self.stop_all_metrics()
        if context_id == self._vivavoce_contexts.playing:
            self._vivavoce_output.playhead.discard()
        self._vivavoce_failed.discard(context_id)
        self._vivavoce_contexts.dequeue(context_id)

    # Frames

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame.

        An interruption also closes streams without text. Tokens of the interrupted reply that arrive later
        are not spoken.

        Args:
            frame: The frame.
            direction: Its direction.
        """
        if isinstance(frame, LLMFullResponseStartFrame):
            self._vivavoce_reply_interrupted = False
        elif isinstance(frame, LLMTextFrame) and self._vivavoce_reply_interrupted and not frame.skip_tts:
            return
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            self._vivavoce_reply_interrupted = True
            for playback in self._vivavoce_contexts.playbacks():
                if not self.audio_context_available(playback.context_id):
                    await self._vivavoce_close(playback.context_id)

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        """Push a frame; audio gets the time at which it is heard.

        Args:
            frame: The frame.
            direction: Its direction.
        """
        if isinstance(frame, TTSAudioRawFrame):
            self._vivavoce_output.align(frame)
        await super().push_frame(frame, direction)

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
        for playback in self._vivavoce_contexts.playbacks():
            if not playback.has_text:  # opened ahead for a turn, which is to have the new settings
                await self._vivavoce_close(playback.context_id)
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

    # Streams

    async def _vivavoce_push(self, text: str, context_id: str) -> None:
        if context_id in self._vivavoce_failed:
            return
        playback = self._vivavoce_open(context_id)
        playback.push_text(text)
        if self._vivavoce_flush_each_text:
            playback.stream.flush()
        if context_id != self._turn_context_id:
            playback.end_text()  # outside a turn, where no frame ends the text
            await self._vivavoce_output.close_clause(context_id)
        await playback.publish_words()

    def _vivavoce_open(self, context_id: str) -> AudioContextPlayback:
        playback = self._vivavoce_contexts.get(context_id)
        if playback is None:
            playback = AudioContextPlayback(self._vivavoce_output, context_id, self._vivavoce_open_source())
            playback.task = self.create_task(playback.speak(), name="speak")
            self._vivavoce_contexts.add(playback)
        return playback

    async def _vivavoce_close(self, context_id: str) -> None:
        playback = self._vivavoce_contexts.pop(context_id)
        if playback is None:
            return
        playback.stream.cancel()
        if playback.task is not None:
            await self.cancel_task(playback.task)

    async def _vivavoce_report_failure(self, context_id: str, error: VivavoceError) -> None:
        await self.push_error(str(error), exception=error)
        await self._vivavoce_fail(context_id, error)

    async def _vivavoce_fail(self, context_id: str, error: VivavoceError) -> None:
        # Speech that was heard remains in the conversation; the rest of the text does not count as spoken.
        self._vivavoce_failed.add(context_id)
        if self._classify_error(error) in TRANSIENT_ERRORS or isinstance(error, BadText):
            silence = bytes(2 * round(ERROR_SILENCE_S * self.sample_rate))
            await self._vivavoce_output.add_audio(context_id, silence)
        playback = self._vivavoce_contexts.pop(context_id)
        if playback is None:
            return
        playback.stream.cancel()
        if playback.task is not None and playback.task is not asyncio.current_task():
            await self.cancel_task(playback.task)
        if playback.text_ended:
            await self._vivavoce_output.finish(context_id)

    async def _vivavoce_teardown(self) -> None:
        for playback in self._vivavoce_contexts.playbacks():
            await self._vivavoce_close(playback.context_id)
