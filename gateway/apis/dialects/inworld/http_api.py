"""Inworld's HTTP endpoints.

POST /tts/v1/voice            one JSON object: all audio in base64, and the times of its words
POST /tts/v1/voice:stream     a JSON object a line, each with a piece of audio and its words
GET  /tts/v1/voices           the voices
"""

import asyncio
import math
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from .....adapters.audio.encoders import AudioFormat
from ....access.access_control import Grant
from ....web.openapi.operations import (
    ACCESS_ERRORS,
    JSON,
    content_response,
    error_responses,
    json_body,
    json_response,
    operation,
)
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import query, speech_errors
from ...kits.request_fields import read_object, validated
from ...kits.speech_response import UNREAD_HEADER_SCHEMA
from ...shell.speech import EncodedChunk
from ...shell.speech_job import SpeechJob, check_file_length
from .alignment import EntryAligner, TextEntry
from .audio_config import file_format, streamed_encoding
from .errors import INWORLD_ERRORS
from .models import (
    INWORLD_NAMES,
    MESSAGE,
    InworldAudioConfig,
    InworldErrorBody,
    InworldListedVoice,
    InworldSpeech,
    InworldSpeechLine,
    InworldSpeechRequest,
    InworldStatus,
    InworldTimestampInfo,
    InworldUsage,
    InworldVoiceList,
    InworldWordAlignment,
    make_inworld_options,
)

_JSON_LINES: Final = "application/x-ndjson"
_ENCODED_BYTES: Final = 3 * 2**16  # of audio, encoded at once; 3 bytes become 4 characters
_LANGUAGE_FILTER: Final = "language="
_ERRORS: Final = speech_errors(InworldErrorBody, {400: "A field is invalid.", 404: "No such voice."})
_BODY: Final = json_body(InworldSpeechRequest)
_WHOLE: Final = operation(
    "inworldSpeech",
    "Speak a text: Inworld's request.",
    json_response(InworldSpeech, headers=UNREAD_HEADER_SCHEMA),
    _ERRORS,
    body=_BODY,
)
_STREAM: Final = operation(
    "inworldSpeechStream",
    "Speak a text, in JSON lines.",
    content_response("An object a line: 'result', or 'error' of speech that failed.", _JSON_LINES),
    _ERRORS,
    body=_BODY,
)
_VOICES: Final = operation(
    "inworldVoices",
    "List the voices, as Inworld does.",
    json_response(InworldVoiceList),
    error_responses(InworldErrorBody, ACCESS_ERRORS),
    other_parameters=[query("filter", "Only voices of a language: 'language=en'.")],
)


class InworldHttpApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "inworld"
    errors = INWORLD_ERRORS
    error_formats = INWORLD_ERRORS.formats("/tts/v1")

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield "POST /tts/v1/voice", self.speaking(_WholeSpeech), _WHOLE
        yield "POST /tts/v1/voice:stream", self.speaking(_SpeechLines), _STREAM
        yield "GET /tts/v1/voices", self.listing(self._list_voices), _VOICES

    def _list_voices(self, request: Request, grant: Grant | None) -> InworldVoiceList:
        asked = request.query_params.get("filter", "")
        language = asked.removeprefix(_LANGUAGE_FILTER) if asked.startswith(_LANGUAGE_FILTER) else ""
        listed = [
            InworldListedVoice(
                voiceId=voice.id,
                displayName=voice.name,
                description=voice.description,
                languages=[voice.language],
                isCustom=voice.stored is not None,
            )
            for voice in self.usable_voices(grant)
            if voice.language.casefold().startswith(language.casefold())
        ]
        return InworldVoiceList(voices=listed)


class _InworldSpeechResponse(SpeechJobResponse):
    async def read_job(self, grant: Grant) -> SpeechJob:
        fields = await read_object(self.request)
        self._speech = speech = validated(InworldSpeechRequest.model_validate, fields, MESSAGE)
        voice = self.resolve(INWORLD_NAMES, speech.voice_id, speech.model_id, grant)
        options = make_inworld_options(speech, voice, self.format_of(speech.audio_config))
        return SpeechJob(speech.text, options)

    @abstractmethod
    def format_of(self, config: InworldAudioConfig) -> AudioFormat:
        """Return the format of the encoder; raises BadRequest."""

    def begin(self, job: SpeechJob) -> None:
        self._aligner = EntryAligner()

    def entries_of(self, chunk: EncodedChunk) -> list[TextEntry]:
        """Return the entries of the words that begin in a piece."""
        return self._aligner.align(chunk.written_words, self.utterance.text, is_last=chunk.final)

    def times_of(self, entries: Sequence[TextEntry]) -> InworldTimestampInfo | None:
        """Return the times of entries, None if there are none or they are not asked for."""
        if not (entries and self._speech.has_word_times):
            return None
        return InworldTimestampInfo(wordAlignment=InworldWordAlignment.of(entries))

    @property
    def usage(self) -> InworldUsage:
        """What the request is charged for."""
        return InworldUsage(processedCharactersCount=len(self._speech.text), modelId=self._speech.model_id)


class _WholeSpeech(_InworldSpeechResponse):
    """All audio, then the times of all words, in one object."""

    def format_of(self, config: InworldAudioConfig) -> AudioFormat:
        return file_format(config)

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self._audio = bytearray()
        self._entries: list[TextEntry] = []

    async def write(self, chunk: EncodedChunk) -> None:
        check_file_length(chunk.samples[1])
        self._audio += chunk.audio
        self._entries += self.entries_of(chunk)

    async def end(self) -> Response:
        # 100 MB of audio would hold up the event loop for long.
        body = await asyncio.to_thread(self._encode)
        return Response(body, headers=self.stream_headers, media_type=JSON)

    def _encode(self) -> bytes:
        answer = InworldSpeech(audioContent="", timestampInfo=self.times_of(self._entries), usage=self.usage)
        before, after = answer.encode().encode().split(b'""', 1)  # audioContent is the first field
        # In pieces, between which other threads run.
        starts = range(0, len(self._audio), _ENCODED_BYTES)
        pieces = (b64encode(self._audio[start : start + _ENCODED_BYTES]) for start in starts)
        return b"".join((before, b'"', *pieces, b'"', after))


class _SpeechLines(_InworldSpeechResponse):
    """Audio with the words that begin in it, an object a line."""

    def format_of(self, config: InworldAudioConfig) -> AudioFormat:
        self._encoding = streamed_encoding(config)
        return self._encoding.audio

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self.stream_headers["content-type"] = _JSON_LINES
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * job.options.audio.bytes_per_second)  # in base64

    async def write(self, chunk: EncodedChunk) -> None:
        times = self.times_of(self.entries_of(chunk))
        if chunk.audio or times is not None or chunk.final:
            audio = b64encode(self._encoding.wrap(chunk.audio)).decode("ascii")
            usage = self.usage if chunk.final else None
            piece = InworldSpeech(audioContent=audio, timestampInfo=times, usage=usage)
            await self._write_line(InworldSpeechLine(result=piece))

    async def end_with_error(self, error: Exception) -> None:
        await self._write_line(InworldSpeechLine(error=inworld_status(error)))
        await self.body_stream.end()

    async def _write_line(self, line: InworldSpeechLine) -> None:
        await self.body_stream.write(line.encode().encode() + b"\n")


def inworld_status(error: Exception) -> InworldStatus:
    """Return the status of an error in a stream."""
    return InworldStatus(**INWORLD_ERRORS.body(error).model_dump())
