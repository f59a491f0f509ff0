"""A voice registry with a fake encoder for tests."""

import asyncio
import threading
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from shared.audio.recordings import recording
from vivavoce.gateway.access.access_control import ANONYMOUS_KEY_ID, Grant
from vivavoce.gateway.access.keys import Scope, included_scopes
from vivavoce.gateway.voice_registry import NewVoice, VoicePolicy, VoiceRegistry
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.recording import check_recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.voices.store import VoiceStore

ANNA = Grant("anna-key", frozenset({Scope.SPEAK, Scope.ENROLL}))
BO = Grant("bo-key", frozenset({Scope.SPEAK, Scope.ENROLL}))
SPEAKER = Grant("anna-key", frozenset({Scope.SPEAK}))
ADMIN = Grant("admin-key", included_scopes([Scope.ADMIN]))
OPERATOR = Grant(ANONYMOUS_KEY_ID, frozenset(Scope))


class Encoder:
    """A fake encoder; its prompts contain the length and the loudness of a recording."""

    def __init__(self, version: CosyVoiceVersion) -> None:
        self.version = version
        self.encoded_s: list[float] = []
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.is_encoding = threading.Event()

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        speech = check_recording(samples, sample_rate)
        self.is_encoding.set()
        assert self.may_continue.wait(30)
        self.encoded_s.append(len(speech) / sample_rate)
        loudness = np.full(192, np.abs(speech).max(), np.float32)
        ids = np.full(25, len(speech) % 6561, np.int32)
        return VoicePrompt(self.version, transcript, ids, np.zeros((80, 50), np.float32), loudness)


class RegistrySetup:
    """A registry with its store and its encoder."""

    def __init__(
        self, folder: Path, version: CosyVoiceVersion = CosyVoiceVersion.V2, policy: VoicePolicy | None = None
    ) -> None:
        self.encoder = Encoder(version)
        self.store = VoiceStore(folder, version.value, read_prompt=VoicePrompt.load)
        speakers = {name: np.zeros(192, np.float32) for name in ("first", "second")}
        self.voices = BundleVoices(speakers, lambda: self.encoder, ("en",), self.store)  # type: ignore[arg-type,return-value]
        self.registry = VoiceRegistry(self.voices, policy)

    def close(self) -> None:
        self.registry.close()
        self.store.close()


def created(setup: RegistrySetup, grant: Grant, name: str = "Anna", **about: str) -> str:
    return asyncio.run(setup.registry.create(recording(), NewVoice(name, **about), grant)).id  # type: ignore[arg-type]


def usable_ids(setup: RegistrySetup, grant: Grant) -> list[str]:
    return [voice.id for voice in setup.registry.usable_voices(grant)]
