"""All client dialects of one server, over one engine, access control, voice registry and request log.

A new dialect is a folder in ``dialects/`` with a record in ``dialect.py``, and its name in ``DIALECTS``;
``dialects/README.md`` has the steps.
"""

import asyncio
from dataclasses import replace
from operator import attrgetter
from typing import Final

from ...tts_engine.errors import BadRequest
from ...tts_engine.packaging.plug_ins import with_plug_ins
from ..calls.api.operations import CALL_SOCKET
from ..web.app import CALLS_TAG, Mount
from ..web.openapi.document import OpenApiRoutes
from ..web.openapi.operations import WebSocketOperation
from .dialect import Dialect, DrainableApi
from .dialects.cartesia.dialect import CARTESIA
from .dialects.coqui.dialect import COQUI
from .dialects.cosyvoice_server.dialect import COSYVOICE_SERVER
from .dialects.dashscope.dialect import DASHSCOPE
from .dialects.deepgram.dialect import DEEPGRAM
from .dialects.elevenlabs.dialect import ELEVENLABS
from .dialects.inworld.dialect import INWORLD
from .dialects.jambonz.dialect import JAMBONZ
from .dialects.localai.dialect import LOCALAI
from .dialects.native_stream.dialect import NATIVE_STREAM
from .dialects.openai.dialect import OPENAI
from .dialects.pai.dialect import PAI
from .dialects.piper_server.dialect import PIPER_SERVER
from .dialects.ray_serve.dialect import RAY_SERVE
from .dialects.realtime.dialect import REALTIME
from .dialects.vapi.dialect import VAPI
from .dialects.wyoming.dialect import WYOMING
from .dialects.xtts.dialect import XTTS
from .shell.speech_server import SpeechServer

# The first one whose route fits answers a request: /v1/models of ElevenLabs asks OpenAI's clients on, and
# Inworld's paths are longer than Cartesia's /tts.
DIALECTS: Final = (
    ELEVENLABS,
    OPENAI,
    DASHSCOPE,
    INWORLD,
    CARTESIA,
    XTTS,
    RAY_SERVE,
    DEEPGRAM,
    JAMBONZ,
    NATIVE_STREAM,
    COSYVOICE_SERVER,
    PAI,
    WYOMING,
    COQUI,
    PIPER_SERVER,
    VAPI,
    LOCALAI,
    REALTIME,
)
_ENTRY_POINTS: Final = "vivavoce.dialects"


def all_dialects() -> tuple[Dialect, ...]:
    """The dialects of this package, then those of others."""
    return with_plug_ins(_ENTRY_POINTS, DIALECTS, attrgetter("name"))


def socket_operations() -> tuple[WebSocketOperation, ...]:
    """The WebSockets in the OpenAPI document, which is of the whole server; the calls API mounts its own."""
    sockets = (
        replace(operation, tag=_tag_of(dialect))
        for dialect in all_dialects()
        for operation in dialect.sockets
    )
    return (*sockets, replace(CALL_SOCKET, tag=CALLS_TAG))


def _tag_of(dialect: Dialect) -> str:
    return dialect.title or dialect.name


class SpeechApis:
    """The dialects, mounted together and ended together; belongs to an event loop.

    Attributes:
        opened: each dialect, by its name.
    """

    def __init__(self, server: SpeechServer) -> None:
        """Open the dialects."""
        self.server = server
        self.opened = {dialect.name: dialect.open(server) for dialect in all_dialects()}
        self._tags = {dialect.name: _tag_of(dialect) for dialect in all_dialects()}
        self._further: list[DrainableApi] = []  # with a port of their own

    async def listen(self, name: str, address: tuple[str, int]) -> int:
        """Serve a ``DialectPort`` until the APIs are closed; return its port.

        Raises MissingExtra, AddressUnavailable, and BadRequest for another name.
        """
        ports = {port.name: port.listen for dialect in all_dialects() for port in dialect.ports}
        if name not in ports:
            raise BadRequest(f"apis.ports: got {name!r}; allowed are {', '.join(sorted(ports))}")
        api, port = await ports[name](self.server, address)
        self._further.append(api)
        return port

    def mounts(self) -> list[Mount]:
        """Return the routes of each; they check keys themselves."""
        mounts = [
            replace(mount, tag=self._tags[name])
            for name, dialect in self.opened.items()
            for mount in dialect.mounts
        ]
        return [*mounts, Mount(OpenApiRoutes(socket_operations()).routes(), None)]

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for the speech under way."""
        apis = [api for dialect in self.opened.values() for api in dialect.apis]
        await asyncio.gather(*(api.finish(within_s) for api in (*apis, *self._further)))

    async def aclose(self) -> None:
        """End all speech, and free what the dialects hold."""
        await self.finish(0.0)
        for dialect in self.opened.values():
            dialect.close()
        self.server.encoding_threads.close()
