"""The server to which sessions are played: a whole gateway, whose voices are tones and clones of tones."""

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike

from shared.calls.call_server import call_server
from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway import call_servers
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.recording import check_recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.voices.store import VoiceStore

from .player import Player


class _LengthEncoder:
    """Encodes only the length of a recording."""

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        ids = np.full(25, len(check_recording(samples, sample_rate)) % 6561, np.int32)
        mel, embedding = np.zeros((80, 50), np.float32), np.ones(192, np.float32)
        return VoicePrompt(CosyVoiceVersion.V2, transcript, ids, mel, embedding)


class ClonedTones(StandInBackend):
    """The stand-in voice with two voices, and with clones, which speak at 220 Hz. step_s: of each step."""

    def __init__(self, store: VoiceStore, step_s: float = 0.0) -> None:
        super().__init__((440, 330))
        speakers = {voice.id: np.zeros(192, np.float32) for voice in self.voices}
        self.voices = BundleVoices(speakers, _LengthEncoder, ("en",), store)  # type: ignore[arg-type]
        self._step_s = step_s

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot."""
        is_bundled = request.voice.startswith("tone-")
        return super().open_slot(request if is_bundled else replace(request, voice="tone-220"))

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one word of each turn's slot."""
        time.sleep(self._step_s)
        return super().step(worker, turns)


@asynccontextmanager
async def served(*, with_keys: bool, step_s: float = 0.0, learns: bool = False) -> AsyncIterator[Player]:
    """A gateway of its own; yields a client of it."""
    with (
        patch.object(call_servers, "media_processes", lambda max_calls: 0),  # a thread starts at once
        tempfile.TemporaryDirectory() as name,
        VoiceStore(Path(name) / "voices", 2, read_prompt=VoicePrompt.load) as store,
    ):
        keys, key = Path(name) / "keys.json", ""
        if with_keys:
            key = KeysFile(keys).add("all", (Scope.ADMIN,), KeyLimits())
        backend, options = ClonedTones(store, step_s), {"agents_default": "none"}
        async with (
            call_server(keys if with_keys else None, key, backend=backend, **options) as server,
            Player(f"http://{server.base.partition('/')[0]}", server.dial, key, learns) as player,
        ):
            yield player
