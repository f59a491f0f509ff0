"""Pipecat text-to-speech service with an engine in the same process: ``VivavoceTTSService``.

``base_tts_service`` connects speech and pipeline; this module opens streams of the engine at the pipeline's
sample rate. It opens no socket.

Source: pipecat-ai 1.14.0, services/tts_service.py, read and measured.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

from typing import Any

from loguru import logger
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.utils.types import is_given

from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.engine import Engine
from ...tts_engine.errors import SynthesisFailed, UnknownVoice, VivavoceError
from ...tts_engine.reading.languages.registry import is_supported_language
from ...tts_engine.speech_engine import SpeechEngine, SpeechStream
from ...tts_engine.stream_request import Delivery
from ...tts_engine.voices.voices import MULTIPLE_LANGUAGES
from ..audio.resample import BUILT_IN_RATES, Resampler, resampler_to, soxr_resampler
from ..client import SpeechPiece
from ..ssml.document import SsmlDocument
from ..ssml.input import SsmlInput, push_document
from .audio_context import SpeechSource
from .base_tts_service import LEAD_S, BaseVivavoceTTSService
from .tts_settings import VivavoceTTSSettings


class _EngineSpeech:
    # A stream of the engine at the pipeline's rate, whose text may be SSML, as a server's. The resampler is
    # not shared: it withholds samples.

    def __init__(self, stream: SpeechStream, sample_rate: int) -> None:
        self._stream = stream
        self._ssml_input = SsmlInput()
        self._fault: VivavoceError | None = None  # of a document that the end of the text cuts off
        self._resampler = _resampler(sample_rate)
        self._ended = False

    @property
    def text(self) -> str:
        return self._stream.text

    def push_text(self, text: str) -> None:
        self._push(self._ssml_input.push(text))

    def flush(self) -> None:
        self._push(self._ssml_input.flush())
        self._stream.flush()

    def end_input(self) -> None:
        try:
            self._push(self._ssml_input.flush())
        except VivavoceError as error:
            self._fault = error
            self._stream.cancel()
        self._stream.end_input()

    def cancel(self) -> None:
        self._stream.cancel()

    def set_deadline(self, runs_dry_at: float) -> None:
        self._stream.set_deadline(runs_dry_at)

    def _push(self, documents: list[SsmlDocument]) -> None:
        for document in documents:
            push_document(self._stream, document, whole=document.prosody)

    async def next_piece(self) -> SpeechPiece | None:
        if self._ended:
            return None
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            raise self._fault or SynthesisFailed("the engine was closed while it spoke") from None
        pcm = self._resampler.push(chunk.pcm)
        if chunk.final:
            self._ended = True
            pcm += self._resampler.drain()
        return SpeechPiece(pcm, chunk.words)


class VivavoceTTSService(BaseVivavoceTTSService):
    """Speaks an LLM's tokens as they are written, with an engine in this process.

    Words enter the LLM's context when they are heard. An interruption ends the engine's work within one step,
    and no audio frame follows the ``InterruptionFrame``. Text without any word becomes 20 ms of silence; text
    of which the voice can read no word is an error frame. For telephones set
    ``PipelineParams(audio_out_sample_rate=8000)``: the engine's own filter to 8 kHz delays by 2 ms.

    Audio is handed on at the pace at which it is heard, at most ``lead_s`` ahead, even if the transport's
    queues would take more. An interruption therefore wastes little rendering, and the engine knows which of
    its listeners needs audio first.

    A change of voice or speed takes effect with the next utterance.

    Example::

        engine = await Engine.open()          # once in a process
        tts = VivavoceTTSService(engine=engine, settings=VivavoceTTSService.Settings(voice="heart"))
        pipeline = Pipeline([transport.input(), stt, user, llm, tts, transport.output(), assistant])
    """

    def __init__(
        self,
        *,
        engine: SpeechEngine | None = None,
        lead_s: float = LEAD_S,
        settings: VivavoceTTSSettings | None = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the service.

        Args:
            engine: The engine, shared by all calls of a process. Without one, the service opens its own
                when the pipeline is set up, which takes seconds and memory for each call, and closes it at
                the end.
            lead_s: Seconds of audio handed to the pipeline ahead of the listener before the next chunk, of
                at most 0.8 s, is taken from the engine; ``math.inf`` to hand on audio as soon as it is
                rendered, for transports that take it faster than real time.
            settings: Model, voice, language and speed.
            **kwargs: Arguments of ``BaseVivavoceTTSService`` and ``TTSService``.
        """
        super().__init__(lead_s=lead_s, settings=settings, **kwargs)
        self._vivavoce_engine = engine
        self._vivavoce_own_engine: SpeechEngine | None = None
        if engine is not None:
            self._vivavoce_set_default_voice(engine)

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]
        """Set up the service; opens an engine if none was given.

        Args:
            setup: Configuration of the pipeline.

        Raises:
            BundleError: The model cannot be loaded; Pipecat reports the service as unusable.
        """
        await super().setup(setup)
        if self._vivavoce_engine is None:
            self._vivavoce_engine = self._vivavoce_own_engine = await Engine.open(str(self._settings.model))
            self._vivavoce_set_default_voice(self._vivavoce_engine)

    def _vivavoce_open_source(self) -> SpeechSource:
        if self._vivavoce_engine is None:
            raise SynthesisFailed("the service has no engine: it was not set up")
        voice, speed, language = self._settings.voice, self._settings.speed, self._settings.language
        stream = self._vivavoce_engine.stream(
            voice=voice if isinstance(voice, str) else None,
            speed=float(speed) if isinstance(speed, int | float) else 1.0,
            delivery=Delivery(
                language=language if isinstance(language, str) and is_supported_language(language) else None
            ),
        )
        speech = _EngineSpeech(stream, self.sample_rate)
        return SpeechSource(speech, speech.next_piece)

    async def _update_settings(self, delta: TTSSettings) -> dict[str, Any]:  # type: ignore[override]
        changed = await super()._update_settings(delta)
        if changed:
            self._vivavoce_warn_about_language()
        return changed

    def _vivavoce_settings_error(self) -> str | None:
        voice, engine = self._settings.voice, self._vivavoce_engine
        try:
            if engine is not None:
                engine.voices.get(voice if isinstance(voice, str) else None)
        except UnknownVoice as error:
            return str(error)
        return super()._vivavoce_settings_error()

    def _vivavoce_set_default_voice(self, engine: SpeechEngine) -> None:
        settings = self._settings
        if settings.voice is None:
            settings.voice = engine.voices.default.id
        if settings.language is None and settings.voice in engine.voices:
            settings.language = engine.voices.get(str(settings.voice)).language
        self._vivavoce_warn_about_language()

    def _vivavoce_warn_about_language(self) -> None:
        voice, language = self._settings.voice, self._settings.language
        engine = self._vivavoce_engine
        if engine is None or voice not in engine.voices or not is_given(language) or language is None:
            return
        voice_language = engine.voices.get(str(voice)).language
        if voice_language == MULTIPLE_LANGUAGES:
            if not is_supported_language(str(language)):
                logger.warning(f"{self}: numbers in {language} will be read as in English")
        elif _primary_subtag(voice_language) != _primary_subtag(str(language)):
            logger.warning(
                f"{self}: voice {voice!r} speaks {voice_language}, not {language}; text in that language "
                f"will be read as if it were {voice_language}"
            )

    async def _vivavoce_teardown(self) -> None:
        await super()._vivavoce_teardown()
        engine, self._vivavoce_own_engine = self._vivavoce_own_engine, None
        if engine is not None:
            self._vivavoce_engine = None
            await engine.aclose()


def _resampler(sample_rate: int) -> Resampler:
    if sample_rate in BUILT_IN_RATES:
        return resampler_to(sample_rate)
    return soxr_resampler(SAMPLE_RATE, sample_rate)


def _primary_subtag(language: str) -> str:
    return language.replace("_", "-").partition("-")[0].lower()
