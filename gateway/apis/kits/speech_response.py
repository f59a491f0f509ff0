"""HTTP responses that speak: one class for every dialect, from the request's body to the last byte.

respond()  ->  body.write(...) ...  body.end()  ->  None           streamed: headers go with the first audio
           ->  a Response                                           sent as it is
an error   ->  error_response(error)      before the first byte: an answer of its own
           ->  end_with_error(error)      after it: the stream's last event, if the format has events
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Final
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ....tts_engine.errors import VivavoceError
from ...access.grant_ends import ending_with_grants
from ...web.openapi.operations import Responses, Schema
from ..shell.unspoken_languages import UnspokenLanguage
from .operations import BINARY_CONTENT
from .streamed_body import StreamedBody

logger = logging.getLogger(__name__)

UNREAD_HEADER: Final = "x-unread-characters"
UNREAD_HEADER_SCHEMA: Final[Mapping[str, Schema]] = {
    UNREAD_HEADER: {
        "description": "Letters of the text that the voice cannot read; absent if it read all.",
        "schema": {"type": "integer"},
    },
    "x-text-language": {
        "description": "Language of the text that the voice does not speak, a guess, ISO 639-1; absent if "
        "there is none.",
        "schema": {"type": "string"},
    },
    "x-text-language-voice": {
        "description": "Id of a voice that speaks that language; absent if there is none.",
        "schema": {"type": "string"},
    },
}


def audio_response(description: str, *content_types: str) -> Responses:
    """Describe a response of audio."""
    content = dict.fromkeys(content_types, BINARY_CONTENT)
    return {200: {"description": description, "headers": UNREAD_HEADER_SCHEMA, "content": content}}


class SpeechResponse(Response, ABC):
    """The response to one request for speech.

    A derived class implements ``respond`` and ``error_response``, and ``end_with_error`` where the format can
    tell an error. ``headers`` of a streamed answer may be changed until the first byte is written.
    """

    def __init__(
        self,
        active: "ActiveResponses",
        request: Request,
        request_id: str,
        stream_headers: MutableMapping[str, str],
    ) -> None:
        super().__init__()
        # Done when the last byte is sent; a shutdown waits for it.
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.request = request
        self.request_id = request_id
        self.stream_headers = stream_headers
        self.body_stream: StreamedBody  # set when the response is called
        self._active = active

    def report_unread(self, characters: int) -> None:
        """Add a header of letters that the voice cannot read, if there are any; before the first byte."""
        if characters:
            self.stream_headers[UNREAD_HEADER] = str(characters)

    def report_language(self, found: UnspokenLanguage | None) -> None:
        """Add headers of a language that the voice does not speak; before the first byte."""
        if found is None:
            return
        self.stream_headers["x-text-language"] = found.language
        if found.voice is not None:
            self.stream_headers["x-text-language-voice"] = quote(found.voice, safe="/:@+")

    @abstractmethod
    async def respond(self) -> Response | None:
        """Authorize, read and speak; return the response to send, None if the audio has been streamed."""

    @abstractmethod
    def error_response(self, error: Exception) -> Response:
        """The dialect's answer to an error before the first byte."""

    async def end_with_error(self, error: Exception) -> None:
        """Report an error in a stream that has begun.

        Without an override the body stays incomplete: the server drops the connection, so the client knows.
        """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        self.body_stream = StreamedBody(scope, send, self.stream_headers)
        self._active.add(self)
        try:
            response = await self._respond_or_report()
            if response is not None:
                await response(scope, receive, send)
        except (ClientDisconnect, TimeoutError):
            logger.debug("request %s: the client left or reads nothing", self.request_id)
        finally:
            await self.body_stream.aclose()
            self._active.discard(self)
            self.finished.set_result(None)

    async def _respond_or_report(self) -> Response | None:
        """Boundary: any error ends this response and no more."""
        try:
            with ending_with_grants():
                return await self.respond()
        except (ClientDisconnect, TimeoutError):
            raise  # there is no client to report to
        except VivavoceError as error:
            return await self._report(error)
        except Exception as error:
            logger.exception("request %s failed", self.request_id)
            return await self._report(error)

    async def _report(self, error: Exception) -> Response | None:
        if not self.body_stream.started:
            return self.error_response(error)
        await self.end_with_error(error)
        return None


class ActiveResponses:
    """The responses of one API that are under way; belongs to an event loop."""

    def __init__(self) -> None:
        self._responses: set[SpeechResponse] = set()

    def __len__(self) -> int:
        return len(self._responses)

    def add(self, response: SpeechResponse) -> None:
        """Count a response until it is discarded."""
        self._responses.add(response)

    def discard(self, response: SpeechResponse) -> None:
        """Stop counting a response."""
        self._responses.discard(response)

    async def wait_finished(self, within_s: float) -> None:
        """Wait at most within_s for the responses under way to end."""
        if self._responses:
            await asyncio.wait({response.finished for response in self._responses}, timeout=within_s)
