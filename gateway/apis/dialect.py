"""The record of a client dialect: the routes that it adds to a server, and what ends them.

``speech_apis.DIALECTS`` lists the dialects; a package adds one with an entry point of ``vivavoce.dialects``.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fastapi import APIRouter

from ..web.app import Mount
from ..web.openapi.operations import WebSocketOperation
from ..web.unmatched import ErrorFormat
from .shell.speech_server import SpeechServer


class DrainableApi(Protocol):
    """An API that can be ended."""

    async def finish(self, within_s: float) -> None:
        """Refuse new work and wait at most within_s for the work under way."""


class RoutedApi(DrainableApi, Protocol):
    """An API with routes, which check keys themselves."""

    error_formats: ClassVar[tuple[ErrorFormat, ...]]  # of paths near its routes that are no routes

    def routes(self) -> APIRouter:
        """Return the routes."""


@dataclass(frozen=True, slots=True)
class OpenDialect:
    """A dialect of a running server."""

    mounts: tuple[Mount, ...]  # their routes check keys themselves
    apis: tuple[DrainableApi, ...]  # ended with the server
    close: Callable[[], None] = lambda: None  # frees what is left after that

    @classmethod
    def of(cls, *apis: RoutedApi, close: Callable[[], None] = lambda: None) -> "OpenDialect":
        """Mount the APIs in that order, and end them all."""
        return cls(tuple(Mount(api.routes(), None, api.error_formats) for api in apis), apis, close)


@dataclass(frozen=True, slots=True)
class DialectPort:
    """A port of a dialect's own, which ``apis.ports`` of the settings opens by its name.

    listen: listens at (host, port); returns what ends it, and its port. Raises MissingExtra,
    AddressUnavailable.
    """

    name: str
    listen: Callable[[SpeechServer, tuple[str, int]], Awaitable[tuple[DrainableApi, int]]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A client dialect."""

    name: str
    open: Callable[[SpeechServer], OpenDialect]
    sockets: tuple[WebSocketOperation, ...] = ()  # in the OpenAPI document
    title: str = ""  # in the OpenAPI document; else its name
    ports: tuple[DialectPort, ...] = ()  # that it serves besides that of HTTP
