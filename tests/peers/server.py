"""A gateway with API keys and stored voices over the stand-in backend, for client programs.

``python server.py FOLDER`` prints one line of JSON, {"url", "key", "poor_key", "admin_key"}, and serves
until its standard input ends. ``poor_key`` allows one request a minute.
"""

import asyncio
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike

from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.serve import Gateway
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.recording import check_recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.voices.store import VoiceStore


class Encoder:
    """Encodes only the length of a recording."""

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        ids = np.full(25, len(check_recording(samples, sample_rate)) % 6561, np.int32)
        mel, embedding = np.zeros((80, 50), np.float32), np.ones(192, np.float32)
        return VoicePrompt(CosyVoiceVersion.V2, transcript, ids, mel, embedding)


class CloningBackend(StandInBackend):
    """Has two tones as voices; every enrolled voice speaks at 220 Hz."""

    def __init__(self, store: VoiceStore) -> None:
        super().__init__((440, 330))
        speakers = {voice.id: np.zeros(192, np.float32) for voice in self.voices}
        self.voices = BundleVoices(speakers, Encoder, ("en",), store)  # type: ignore[arg-type]

    def open_slot(self, request: SlotRequest) -> int:
        is_bundled = request.voice.startswith("tone-")
        return super().open_slot(request if is_bundled else replace(request, voice="tone-220"))


async def keep_caller_task(host: str, port: int) -> None:
    """Call over AudioSocket, and call again when the server hangs up."""
    while True:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"\x01\x00\x10" + uuid4().bytes)
        while await reader.read(65_536):
            pass
        writer.close()


async def serve(folder: Path) -> None:
    """Serve until standard input ends."""
    keys = KeysFile(folder / "keys.json")
    key = keys.add("client", (Scope.SPEAK, Scope.ENROLL), KeyLimits())
    poor_key = keys.add("poor", (Scope.SPEAK,), KeyLimits(requests_per_minute=1))
    admin_key = keys.add("admin", (Scope.ADMIN,), KeyLimits())
    settings: dict[str, Any] = {
        "http_port": 0,
        "audiosocket_port": 0,
        "agents_default": "none",
        "access_keys_file": folder / "keys.json",
    }
    aliases = {"ash": "tone-330"}
    with VoiceStore(folder / "voices", 2, read_prompt=VoicePrompt.load) as store:
        async with Engine(CloningBackend(store), EngineConfig(), Metrics()) as engine:
            gateway = await Gateway.open(make_settings(**settings, voices_aliases=aliases), engine=engine)
            host, port = gateway.addresses.http
            addresses = {"url": f"http://{host}:{port}", "key": key, "poor_key": poor_key}
            print(json.dumps({**addresses, "admin_key": admin_key}), flush=True)
            caller_task = asyncio.create_task(keep_caller_task(*gateway.addresses.ways_in["audiosocket"]))
            await asyncio.to_thread(sys.stdin.read)
            caller_task.cancel()
            await asyncio.wait({caller_task})
            await gateway.aclose()


if __name__ == "__main__":
    # Shown with a test that fails; at DEBUG also why an answer broke off.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("vivavoce.gateway.apis").setLevel(logging.DEBUG)
    asyncio.run(serve(Path(sys.argv[1])))
