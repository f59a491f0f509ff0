"""State that the speech APIs of one server share: engine, access, request log, models, draining."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ....tts_engine.errors import Overloaded
from ....tts_engine.reading.pronunciation.lexicon_files import NamedLexicons
from ....tts_engine.speech_engine import SpeechEngine
from ...access.access_control import AccessControl, Grant
from ...access.keys import Scope
from ...web.request_log import RequestLog
from .encoding_threads import EncodingThreads
from .model_names import ModelNames, VoiceResolver
from .speech import EncodedStream, SynthesisOptions
from .unspoken_languages import LanguageCheck, UnspokenLanguages

_SHUTDOWN_RETRY_AFTER_S = 5.0  # the usual time of a restart


class SpeechServer:
    """The engine and the admission of every speech API; belongs to an event loop."""

    def __init__(
        self,
        engine: SpeechEngine,
        access: AccessControl,
        log: RequestLog,
        models: ModelNames | None = None,
        lexicons: NamedLexicons | None = None,
        *,
        voices: VoiceResolver | None = None,
        refuses_guessed_languages: bool = False,
    ) -> None:
        """Take what the APIs share.

        lexicons: None if requests that name one are spoken without it. voices: that a text may name; None for
        the ids of the engine's.
        """
        self.engine = engine
        self.access = access
        self.log = log
        self.models = models or ModelNames()
        self.encoding_threads = EncodingThreads()
        self.unspoken_languages = UnspokenLanguages()
        self._lexicons = lexicons
        self._voices = voices
        self._refuses_guessed_languages = refuses_guessed_languages
        self._draining = False

    def start_draining(self) -> None:
        """Refuse new work from now on; work under way goes on."""
        self._draining = True

    def open_stream(self, options: SynthesisOptions, grant: Grant) -> EncodedStream:
        """Return an utterance of a key, whose lexicon is ahead of the server's.

        Raises BadRequest for the name of a lexicon that is not in the settings, and UnknownVoice.
        """
        named = self._lexicons.current(options.lexicon_names) if self._lexicons else ()
        options = replace(options, keeps_speech=grant.keeps_speech)
        return EncodedStream(
            *(self.engine, options, self.encoding_threads, (*named, *grant.lexicons()), grant.trace_id),
            self._language_check(options),
            str if self._voices is None else partial(self._voices.resolve, grant=grant),
        )

    def _language_check(self, options: SynthesisOptions) -> Callable[[str], None] | None:
        if not self._refuses_guessed_languages or options.delivery.language:
            return None
        return LanguageCheck(self.engine.voices.get(options.voice)).push

    def authorize(self, headers: Mapping[str, str], scope: Scope = Scope.SPEAK) -> Grant:
        """Return the grant of a request's key.

        Raises KeyRefused, OriginRefused or ScopeMissing, and Overloaded while the server drains.
        """
        if self._draining:
            raise Overloaded(
                "the server is shutting down", reason="shutting_down", retry_after_s=_SHUTDOWN_RETRY_AFTER_S
            )
        grant = self.access.grant(headers)
        grant.require(scope)
        return grant

    def authorize_request(self, headers: Mapping[str, str]) -> Grant:
        """Return the grant and charge one request to its key; raises like ``authorize``, and RateLimited."""
        grant = self.authorize(headers)
        grant.charge_request()
        return grant
