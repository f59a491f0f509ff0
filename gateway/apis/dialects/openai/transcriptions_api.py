"""OpenAI's ``POST /v1/audio/transcriptions``, for the transcript of a recording to be cloned.

Answers with the text alone, for recordings that a voice may be made of.

Source: openai-python 3.54 resources/audio/transcriptions.py.
"""

from collections.abc import Iterable
from typing import Any, Final

from fastapi import Request

from .....tts_engine.errors import BadRequest, MissingExtra
from ....access.access_control import Grant
from ....access.keys import Scope
from ....web.openapi.operations import json_response, operation
from ...kits.http_api import Endpoint
from ...kits.operations import BODY_TOO_LONG, RATE_LIMITED, form_body
from ...shell.speech_server import SpeechServer
from .http_api import OpenAIHttpApi, openai_errors
from .models import OpenAITranscription, TranscriptionForm
from .recording_transcriber import RecordingTranscriber
from .request_reading import read_transcription_form

_TRANSCRIBE: Final = operation(
    "transcribe",
    "Write down a recording of at most 30 s, or the part of a longer one that is cloned, in English.",
    json_response(OpenAITranscription),
    openai_errors(
        {400: "The form or the recording is unusable, or the extra 'stt' is not installed."},
        BODY_TOO_LONG,
        RATE_LIMITED,
        {503: "Too many recordings are waiting."},
    ),
    description="Needs the scope 'enrol': the text is the transcript of a recording to be cloned.",
    body=form_body(TranscriptionForm),
)


class OpenAITranscriptionsApi(OpenAIHttpApi):
    """Writes down recordings for keys that may clone voices."""

    def __init__(self, server: SpeechServer) -> None:
        super().__init__(server)
        self._transcriber = RecordingTranscriber()

    def endpoints(self) -> Iterable[tuple[str, Endpoint, dict[str, Any]]]:
        yield "POST /v1/audio/transcriptions", self.answering(Scope.ENROLL, self._transcribe), _TRANSCRIBE

    async def _transcribe(self, request: Request, grant: Grant) -> OpenAITranscription:
        grant.charge_request()
        try:
            text = await self._transcriber.transcribe(await read_transcription_form(request))
        except MissingExtra as error:
            raise BadRequest(str(error)) from None
        return OpenAITranscription(text=text)
