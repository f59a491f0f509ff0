"""Answers to a browser that asks whether a page of another origin may use the server.

    page  --OPTIONS, before a request with a key or JSON-->  200 if its origin is allowed, else 403

It also asks before a page on the internet may reach a server in a private network.

Source: Fetch standard, section "CORS protocol"; W3C Private Network Access.
"""

from typing import Final

from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from .origins import Origins

_EXPOSED_HEADERS: Final = ("x-request-id", "retry-after")


class CrossOriginMiddleware(CORSMiddleware):
    """ASGI middleware for pages of the allowed origins; others are told which setting lists them."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        super().__init__(
            app,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=_EXPOSED_HEADERS,
        )
        self._origins = origins

    def is_allowed_origin(self, origin: str) -> bool:
        """Whether pages of an origin may use the server."""
        return self._origins.allows(origin)

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a browser's question before a request."""
        origin = request_headers["origin"]
        if self.is_allowed_origin(origin):
            return super().preflight_response(request_headers)
        vary = {"vary": self.preflight_headers["Vary"]}
        return PlainTextResponse(self._origins.refusal(origin), 403, vary)
