"""The servers of upstream CosyVoice: its HTTP API, and its gRPC service on a port of its own."""

from typing import Final

from .....tts_engine.errors import MissingExtra
from ...dialect import Dialect, DialectHost, DialectPort, DrainableApi, OpenDialect
from ...shell.speech_job import JobServer
from .http_api import CosyVoiceHttpApi


async def _listen_grpc(jobs: JobServer, address: tuple[str, int]) -> tuple[DrainableApi, int]:
    try:
        from .grpc_server import CosyVoiceGrpcServer
    except ImportError:
        raise MissingExtra("apis.ports.grpc", "grpc") from None
    server = CosyVoiceGrpcServer(jobs)
    return server, await server.start(address)


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(CosyVoiceHttpApi(host.jobs))


COSYVOICE_SERVER: Final = Dialect(
    "cosyvoice_server", _open, ports=(DialectPort("grpc", _listen_grpc),), title="CosyVoice"
)
