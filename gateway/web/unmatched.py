"""Requests that match no route as they are: HEAD, superfluous slashes in the path, unknown paths.

HEAD                the answer to GET without its body, where a path has GET and no HEAD of its own
PATH/, //PATH       the answer to PATH, not a redirect: clients lose a POST's body, or its key, on the way
http://HOST/PATH    the same, as clients write it that take the server for a proxy
anything else       404, also for a WebSocket, in the error format of the API that the path belongs to

Source: RFC 9112 section 3.2.2 (the absolute form).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST: Final = re.compile(r"^https?://[^/]*", re.IGNORECASE)
_SLASHES: Final = re.compile("//+")


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """The body of errors that no route answers, such as 404 and 405, for all paths below one."""

    prefix: str  # of paths, without a slash at the end
    make_body: Callable[[int, str], BaseModel]  # from the status and a message

    def covers(self, path: str) -> bool:
        """Whether the path is the prefix or below it."""
        return path == self.prefix or path.startswith(self.prefix + "/")


class HeadMiddleware:
    """ASGI middleware that answers HEAD where a path has only GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_refused = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal is_refused
            is_refused = is_refused or message.get("status") == 405
            if not is_refused:
                await send(message)

        await self._app(scope, receive, send_unless_refused)
        if is_refused:
            await self._app({**scope, "method": "GET"}, receive, _without_body(send))


def _without_body(send: Send) -> Send:
    async def send_without_body(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_without_body


class UnmatchedPaths:
    """ASGI app for paths that no route of ``router`` matches."""

    def __init__(self, router: ASGIApp) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Try the plain path; raise HTTPException with status 404 if it is that already."""
        path = plain_path(scope["path"])
        if path == scope["path"]:
            raise HTTPException(404)
        raw_path = plain_path(scope.get("raw_path", b"").decode("latin-1")).encode("latin-1")
        await self._router({**scope, "path": path, "raw_path": raw_path}, receive, send)


def plain_path(path: str) -> str:
    """Return a path without a host before it, double slashes, and a slash at its end."""
    return "/" + _SLASHES.sub("/", _HOST.sub("/", path)).strip("/")
