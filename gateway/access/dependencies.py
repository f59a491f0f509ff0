"""Access control in FastAPI: a dependency that requires a scope, and the middleware of the page's cookie."""

from collections.abc import Awaitable, Callable

from fastapi.requests import HTTPConnection
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access_control import PAGE_COOKIE_NAME, PAGE_TICKET_LIFETIME_S, AccessControl, Grant
from .errors import KeyRefused
from .keys import Scope as KeyScope

_PAGE_PATH = "/"


def require_scope(access: AccessControl, scope: KeyScope) -> Callable[[HTTPConnection], Awaitable[Grant]]:
    """Return a FastAPI dependency, for requests and WebSockets, that requires a scope.

    The dependency raises KeyRefused, ScopeMissing or OriginRefused, which ``web.app`` answers.
    """

    # A coroutine although it never waits: FastAPI runs other dependencies on threads, and ``access`` belongs
    # to the event loop.
    async def check_grant(connection: HTTPConnection) -> Grant:
        grant = access.grant(connection.headers)
        grant.require(scope)
        connection.state.grant = grant
        return grant

    return check_grant


def grant_of(connection: HTTPConnection) -> Grant:
    """Return the grant of a connection that passed ``require_scope``."""
    grant: Grant = connection.state.grant
    return grant


class PageCookieMiddleware:
    """ASGI middleware that sets the page's cookie if the request for the page has a valid key.

    The page's scripts then authenticate by the cookie; they never see the key.
    """

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"] != _PAGE_PATH:
            await self._app(scope, receive, send)
            return
        cookie = self._cookie(scope)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200 and cookie:
                MutableHeaders(scope=message).append("set-cookie", cookie)
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    def _cookie(self, scope: Scope) -> str | None:
        try:
            ticket = self._access.issue_page_ticket(Headers(scope=scope))
        except KeyRefused:
            return None
        if ticket is None:
            return None
        secure = "; Secure" if scope["scheme"] == "https" else ""
        lifetime = f"Max-Age={PAGE_TICKET_LIFETIME_S}"
        return f"{PAGE_COOKIE_NAME}={ticket}; {lifetime}; Path=/; HttpOnly; SameSite=Strict{secure}"
