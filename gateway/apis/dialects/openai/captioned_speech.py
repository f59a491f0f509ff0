"""Kokoro-FastAPI's ``POST /dev/captioned_speech``: speech with the time of each word.

    {"audio": BASE64, "audio_format": "audio/mpeg", "timestamps": [{"word", "start_time", "end_time"}, ...]}

One such line of JSON for each piece of audio, or a single one with ``"stream": false``. Times count from the
beginning of the speech. Two extensions: with ``"subtitles_format": "srt"``, "vtt" or "json" the last line has
``subtitles`` of all of it; with ``"return_phonemes": true`` each line has ``phonemes`` with their visemes.
Everything else is as in ``speech_api``, errors included.

Source: Kokoro-FastAPI at 0fac1bf5 (api/src/routers/development.py, api/src/structures/schemas.py).
"""

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from .....adapters.subtitles import FORMATS, cues_of_written
from .....tts_engine.chunk import Word
from ....access.access_control import Grant
from ....web.openapi.operations import JSON, json_body, operation
from ...kits.http_api import Endpoint
from ...kits.operations import BODY_TOO_LONG, SPEECH_ERRORS
from ...kits.visemes import MouthMovement, MouthTimeline
from ...shell.speech import EncodedChunk
from ...shell.speech_job import SpeechJob, check_file_length
from .extension_models import CaptionedSpeech, CaptionedSpeechRequest, PhonemeTimestamp, WordTimestamp
from .http_api import REQUEST_ID_HEADER, openai_errors
from .request_reading import read_captioned_speech_request
from .speech_api import OpenAISpeechApi, OpenAISpeechResponse

_SPEAK_WITH_CAPTIONS: Final = operation(
    "speakWithCaptions",
    "Speak a text, with the time of each word.",
    {
        200: {
            "description": "Lines of JSON, each with 'audio' in base64, 'audio_format' and 'timestamps', a "
            "list of 'word', 'start_time' and 'end_time' in seconds; one line with 'stream': false.",
            "headers": REQUEST_ID_HEADER,
            "content": {JSON: {}},
        }
    },
    openai_errors(
        {400: "A field is invalid; 'param' names it."},
        {404: "The model does not exist."},
        BODY_TOO_LONG,
        SPEECH_ERRORS,
    ),
    body=json_body(CaptionedSpeechRequest),
)


class OpenAICompatibleApi(OpenAISpeechApi):
    """OpenAI's speech and models, and captions; belongs to the event loop of its server."""

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield from super().endpoints()
        yield "POST /dev/captioned_speech", self.speaking(_CaptionedSpeechResponse), _SPEAK_WITH_CAPTIONS


class _CaptionedSpeechResponse(OpenAISpeechResponse):
    speech: CaptionedSpeechRequest

    async def read_request(self) -> CaptionedSpeechRequest:
        return await read_captioned_speech_request(self.request, self.server.policy.max_text_characters)

    async def read_job(self, grant: Grant) -> SpeechJob:
        return replace(await super().read_job(grant), content_type=JSON, is_whole=False)

    def begin(self, job: SpeechJob) -> None:
        super().begin(job)
        self._audio_format = job.options.audio.content_type
        self._audio, self._words = bytearray(), list[Word]()  # not sent
        self._all_words: list[Word] = []
        self._mouth = MouthTimeline() if self.speech.return_phonemes else None
        self._movements: list[MouthMovement] = []  # not sent

    async def write(self, chunk: EncodedChunk) -> None:
        self._audio += chunk.audio
        if not self.speech.stream:
            check_file_length(chunk.samples[1])
        self._words += chunk.written_words if self.speech.return_timestamps else ()
        if self.speech.subtitles_format is not None:
            self._all_words += chunk.written_words
        if self._mouth is not None:
            self._movements += self._mouth.push(chunk.words)
            self._movements += self._mouth.finish() if chunk.final else ()
        is_due = self.speech.stream and self._audio  # an encoder may withhold audio, but no words get lost
        subtitles = self._subtitles() if chunk.final else None
        if is_due or (chunk.final and (self._audio or self._words or self._movements or subtitles)):
            await self.body_stream.write(self._encode_line(subtitles))
            self._audio, self._words, self._movements = bytearray(), [], []

    def _encode_line(self, subtitles: str | None) -> bytes:
        timestamps = [
            WordTimestamp(word=word.text, start_time=word.start_s, end_time=word.stop_s)
            for word in self._words
        ]
        line = CaptionedSpeech(
            audio=b64encode(self._audio).decode("ascii"),
            audio_format=self._audio_format,
            timestamps=timestamps,
            phonemes=None if self._mouth is None else list(map(_phoneme_timestamp, self._movements)),
            subtitles=subtitles,
        )
        return line.model_dump_json(exclude_none=True).encode() + b"\n"

    def _subtitles(self) -> str | None:
        if (wanted := self.speech.subtitles_format) is None:
            return None
        return FORMATS[wanted](cues_of_written(self._all_words))


def _phoneme_timestamp(movement: MouthMovement) -> PhonemeTimestamp:
    return PhonemeTimestamp(
        phoneme=movement.phoneme,
        viseme=movement.viseme,
        start_time=movement.start_s,
        end_time=movement.stop_s,
    )
