"""The record of a client dialect: the routes that it adds to a server, and what ends them.

``speech_apis.DIALECTS`` lists the dialects; a package adds one with an entry point of ``vivavoce.dialects``.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from fastapi import APIRouter

from ..access.access_control import AccessControl
from ..access.url_guard import UrlGuard
from ..voice_registry import VoiceRegistry
from ..web.app import Mount
from ..web.openapi.operations import WebSocketOperation
from ..web.unmatched import ErrorFormat
from .shell.speech_job import JobServer
from .shell.speech_server import SpeechServer


@dataclass(frozen=True, slots=True)
class SpeechApiPolicy:
    """Settings of the speech APIs."""

    max_text_characters: int = 4_096  # of one request; OpenAI's own limit
    bundles: Mapping[str, str] = field(default_factory=dict)  # id of the default voice by bundle; may change
    refuses_guessed_languages: bool = False  # of texts that their voice does not speak
    exchange_folder: Path | None = None  # of files that clients name


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
class DialectHost:
    """What the dialects of a server share."""

    jobs: JobServer
    guard: UrlGuard  # fetches the recordings that clients name
    policy: SpeechApiPolicy

    @property
    def server(self) -> SpeechServer:
        """Opens streams of the engine."""
        return self.jobs.server

    @property
    def voices(self) -> VoiceRegistry:
        """The voices that keys may use."""
        return self.jobs.voices

    @property
    def access(self) -> AccessControl:
        """Checks keys."""
        return self.jobs.server.access


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
    listen: Callable[[JobServer, tuple[str, int]], Awaitable[tuple[DrainableApi, int]]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A client dialect."""

    name: str
    open: Callable[[DialectHost], OpenDialect]
    sockets: tuple[WebSocketOperation, ...] = ()  # in the OpenAPI document
    title: str = ""  # in the OpenAPI document; else its name
    ports: tuple[DialectPort, ...] = ()  # that it serves besides that of HTTP
