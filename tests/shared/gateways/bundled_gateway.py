"""A gateway with three tiny bundles: an English and a German Piper voice, and Kokoro."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from shared.voices.tiny_kokoro import write_tiny_kokoro
from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.gateway.engine_settings import FurtherBundleTable
from vivavoce.gateway.serve import Gateway

from .made_settings import make_settings


def settings_with(folder: Path, **changed: Any) -> Settings:
    german = write_tiny_piper(
        folder / "de", name="de_DE-otto-low", speakers=2, config={"language": {"code": "de_DE"}}
    )
    bundles = {
        "german": FurtherBundleTable(folder=str(german.parent), voice="de_DE-otto-low/s1"),
        "kokoro": FurtherBundleTable(folder=str(write_tiny_kokoro(folder / "kokoro"))),
    }
    english = write_tiny_piper(folder / "en", name="en_US-anna-low").parent
    defaults = {
        "bundle_folder": str(english),
        "http_port": 0,
        "audiosocket_port": 0,
        "agents_default": "none",
    }
    return make_settings(**{**defaults, "bundles": bundles, **changed})


@asynccontextmanager
async def client_of(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with aclosing(await Gateway.open(settings)) as gateway:
        host, port = gateway.addresses.http
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            yield client
