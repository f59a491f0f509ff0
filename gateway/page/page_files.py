"""Static files of pages, with the headers that keep a page to its own server."""

from pathlib import Path
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from starlette.staticfiles import StaticFiles

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
