"""Routes of the page, which works over HTTP alone, and of what a server tells it.

    GET /              the tab Speak; a key that may call and not speak is sent to the tab Call
    GET /page/{name}   a file of the page
    GET /v1/server     what the server does for the key

The page is a client of the speech APIs. Its tab Call is the page of the browser calls, a way into a call.
"""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from starlette.staticfiles import StaticFiles

from ... import __version__
from ...tts_engine.errors import UnknownVoice
from ..access.access_control import PAGE_COOKIE_NAME, PAGE_TICKET_LIFETIME_S, AccessControl, Grant
from ..access.errors import ScopeMissing
from ..access.keys import Scope
from ..transcription import can_transcribe
from ..voice_registry import VoiceRegistry
from ..web.errors import native_errors
from ..web.openapi.operations import Responses, content_response, json_response, operation

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "microphone=(self), camera=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class PageFiles:
    """The files of one folder, without those of folders in it."""

    def __init__(self, directory: Path) -> None:
        self._files = StaticFiles(directory=directory)

    async def response(self, name: str, request: Request) -> Response:
        """The answer to a request for a file; raises HTTPException 404 if there is none."""
        response = await self._files.get_response(name, request.scope)
        response.headers.update(_HEADERS)
        return response

    async def page(self, name: str, request: Request, access: AccessControl) -> Response:
        """The answer to a request for a tab, with a cookie that stands for the key in the request's headers.

        The page's scripts then authenticate by the cookie; they never see the key.
        """
        response = await self.response(name, request)
        if response.status_code == 200 and (ticket := access.issue_page_ticket(request.headers)) is not None:
            secure = "; Secure" if request.scope["scheme"] == "https" else ""
            lifetime = f"Max-Age={PAGE_TICKET_LIFETIME_S}"
            cookie = f"{PAGE_COOKIE_NAME}={ticket}; {lifetime}; Path=/; HttpOnly; SameSite=Strict{secure}"
            response.headers.append("set-cookie", cookie)
        return response


FILES: Final = Path(__file__).parent / "files"
CALL_PATH: Final = "/call"
_PAGE_SCOPES: Final = (Scope.SPEAK, Scope.PAGE)


OTHER_TAB: Final[Responses] = {307: {"description": "The key has the scope of the other tab."}}


class ServerDescription(BaseModel):
    """What a server does for a key."""

    version: str
    needs_key: bool = Field(description="Whether requests without a key are refused.")
    scopes: list[str] = Field(description="Of the key; all, on a server without keys.")
    max_input_characters: int = Field(description="Of the text of one request for speech.")
    default_voice: str | None = Field(description="Id of the voice of requests that name none.")
    clones_voices: bool = Field(description="Whether POST /v1/audio/voices makes a voice.")
    transcribes: bool = Field(description="Whether POST /v1/audio/transcriptions writes down a recording.")


_PAGE: Final = operation(
    "page",
    "The page.",
    content_response("HTML", "text/html"),
    OTHER_TAB,
    native_errors(),
)
_PAGE_FILE: Final = operation(
    "pageFile",
    "A file of the page.",
    content_response("The file.", "text/javascript", "text/css", "text/html"),
    native_errors({404: "No such file."}),
)
_SERVER: Final = operation(
    "describeServer", "What the server does for the key.", json_response(ServerDescription), native_errors()
)


def routes(access: AccessControl, voices: VoiceRegistry, max_input_characters: int) -> APIRouter:
    """Return the routes, which check keys themselves."""
    router = APIRouter()
    files = PageFiles(FILES)

    @router.get("/", **_PAGE)
    async def page(request: Request) -> Response:
        if not _grant(access, request).allows(Scope.SPEAK):
            return RedirectResponse(CALL_PATH)
        return await files.page("index.html", request, access)

    @router.get("/page/{name}", **_PAGE_FILE)
    async def page_file(name: str, request: Request) -> Response:
        _grant(access, request)
        return await files.response(name, request)

    @router.get("/v1/server", **_SERVER)
    async def describe_server(request: Request) -> JSONResponse:
        grant = access.grant(request.headers)
        grant.require(Scope.SPEAK)
        clones_voices = grant.allows(Scope.ENROLL) and voices.keeps_clones
        description = ServerDescription(
            version=__version__,
            needs_key=grant.record is not None,
            scopes=sorted(grant.scopes),
            max_input_characters=max_input_characters,
            default_voice=_default_voice(voices, grant),
            clones_voices=clones_voices,
            transcribes=clones_voices and can_transcribe(),
        )
        return JSONResponse(description.model_dump())

    return router


def _grant(access: AccessControl, request: Request) -> Grant:
    """The grant of a key that may use a tab of the page; raises ScopeMissing for another."""
    grant = access.grant(request.headers)
    if not any(map(grant.allows, _PAGE_SCOPES)):
        raise ScopeMissing(f"the page needs a key with the scope {' or '.join(_PAGE_SCOPES)}")
    return grant


def _default_voice(voices: VoiceRegistry, grant: Grant) -> str | None:
    try:
        return voices.resolve(None, grant)
    except UnknownVoice:  # a bundle that has none before the first one is cloned
        return None
