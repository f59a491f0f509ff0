"""ElevenLabs' HTTP speech: ``POST /v1/text-to-speech/{voice_id}``, with and without times of characters.

PATH                            audio while it is made; so is PATH/stream
PATH/with-timestamps            one JSON object: all audio in base64, then the times
PATH/stream/with-timestamps     a JSON object a line, each with a piece of audio and its times
"""

import math
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from .....tts_engine.chunk import SAMPLE_RATE
from ....access.access_control import Grant
from ....web.openapi.operations import JSON, content_response, json_body, json_response, operation
from ...kits.http_api import Endpoint, SpeechHttpApi, SpeechJobResponse
from ...kits.operations import AUDIO_CONTENT_TYPES, query, speech_errors
from ...kits.request_fields import read_object, validated
from ...kits.speech_response import audio_response
from ...shell.speech import EncodedChunk
from ...shell.speech_job import SpeechJob
from .alignment import CharacterAligner, TimedCharacter
from .errors import ELEVENLABS_ERRORS
from .models import ElevenLabsErrorBody, ElevenLabsSpeechRequest, TimedCharacters, TimedSpeech
from .request_mapping import ELEVENLABS_NAMES, make_elevenlabs_options, parse_output_format

PATH: Final = "/v1/text-to-speech/{voice_id}"
_JSON_LINES: Final = "application/x-ndjson"
_TIMED: Final = "with the times of its characters"
_SAME: Final = "The same, an object a line"
_BASE64_BYTES: Final = 3  # that become 4 characters
_FORMAT_PARAMETER: Final = query(
    "output_format", "Codec, sample rate and kbit/s: 'mp3_44100_128' (default), 'pcm_24000', 'ulaw_8000'."
)
_ERRORS: Final = speech_errors(
    ElevenLabsErrorBody,
    {400: "The output format or the text is invalid.", 404: "No such voice.", 422: "A field is invalid."},
)
_AUDIO: Final = audio_response("Audio, while it is made.", *AUDIO_CONTENT_TYPES)


class ElevenLabsHttpApi(SpeechHttpApi):
    """The endpoints of one server; belongs to its event loop."""

    name = "elevenlabs"
    errors = ELEVENLABS_ERRORS
    error_formats = ELEVENLABS_ERRORS.formats("/v1/text-to-speech")
    id_header = "request-id"

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        body = json_body(ElevenLabsSpeechRequest)
        timed = json_response(TimedSpeech)
        lines = content_response("Objects as of with-timestamps, one a line.", _JSON_LINES)
        for path, name, summary, answer, response in (
            ("", "Speech", "Speak a text", _AUDIO, _SpokenText),
            ("/stream", "SpeechStream", "Speak a text", _AUDIO, _SpokenText),
            ("/with-timestamps", "TimedSpeech", f"Speak a text {_TIMED}", timed, _TimedText),
            ("/stream/with-timestamps", "TimedSpeechStream", _SAME, lines, _TimedLines),
        ):
            described = operation(
                f"elevenLabs{name}",
                f"{summary}: ElevenLabs' request.",
                answer,
                _ERRORS,
                other_parameters=[_FORMAT_PARAMETER],
                path_parameters=("voice_id",),
                body=body,
            )
            yield f"POST {PATH}{path}", self.speaking(response), described


class _SpokenText(SpeechJobResponse):
    """Audio as it is made."""

    async def read_job(self, grant: Grant) -> SpeechJob:
        speech = validated(ElevenLabsSpeechRequest.model_validate, await read_object(self.request))
        audio = parse_output_format(self.request.query_params.get("output_format"))
        voice_id = self.request.path_params["voice_id"]
        voice = self.resolve(ELEVENLABS_NAMES, voice_id, speech.model_id, grant)
        self.stream_headers["character-cost"] = str(len(speech.text))
        options = make_elevenlabs_options(voice, audio, speech, speech.language_code, speech.seed)
        return SpeechJob(speech.text, options)


class _TimedLines(_SpokenText):
    """Audio and the times of characters, a JSON object a line."""

    content_type = _JSON_LINES

    def begin(self, job: SpeechJob) -> None:
        """Set the headers."""
        self.stream_headers["content-type"] = self.content_type
        self.body_stream.bytes_per_s = math.ceil(4 / 3 * job.options.audio.bytes_per_second)
        self._aligner = CharacterAligner()

    async def write(self, chunk: EncodedChunk) -> None:
        """Send a piece of speech."""
        times = self._align(chunk)
        if times or chunk.audio:
            data = b64encode(chunk.audio).decode("ascii")
            aligned = TimedCharacters.of(times) if times else None
            line = TimedSpeech(audio_base64=data, alignment=aligned, normalized_alignment=aligned)
            await self.body_stream.write(line.encode().encode() + b"\n")

    def _align(self, chunk: EncodedChunk) -> list[TimedCharacter]:
        return align_chunk(self._aligner, chunk, self.utterance.text)


class _TimedText(_TimedLines):
    """All audio in base64, then the times of all characters: one JSON object, sent while it is made."""

    content_type = JSON

    def begin(self, job: SpeechJob) -> None:
        """Set the headers."""
        super().begin(job)
        self._times: list[TimedCharacter] = []
        self._rest = b""  # bytes that do not fill a group of base64 yet
        self._prefix = b'{"audio_base64":"'

    async def write(self, chunk: EncodedChunk) -> None:
        """Send a piece of the object."""
        self._times += self._align(chunk)
        audio = self._rest + chunk.audio
        whole = len(audio) if chunk.final else len(audio) - len(audio) % _BASE64_BYTES
        self._rest = audio[whole:]
        piece, self._prefix = self._prefix + b64encode(audio[:whole]), b""
        if chunk.final:
            times = TimedCharacters.of(self._times).model_dump_json().encode()
            piece += b'","alignment":' + times + b',"normalized_alignment":' + times + b"}"
        if piece:
            await self.body_stream.write(piece)


def align_chunk(aligner: CharacterAligner, chunk: EncodedChunk, text: str) -> list[TimedCharacter]:
    """Return the characters of a chunk's words, and of the last chunk those that remain.

    text: of the utterance, as far as it has come.
    """
    characters = aligner.align(chunk.words, text)
    return characters + aligner.finish(text, chunk.samples[1] / SAMPLE_RATE) if chunk.final else characters
