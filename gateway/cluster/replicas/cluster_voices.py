"""The voices of a cluster as a gateway lists them: those of the replicas' bundle, and enrolled ones.

    recording -> a replica encodes it -> prompt -> the gateway's voice store
    stream    -> the prompt, to a replica that was not sent it before; its id to any other

A gateway has neither the networks nor their libraries, so it keeps prompts as they come (``PackedPrompt``).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol

from ....tts_engine.errors import BadRequest, Overloaded, SynthesisFailed
from ....tts_engine.voices.enrollable import EnrollableVoices
from ....tts_engine.voices.packed_prompt import PackedPrompt, StorablePrompt
from ....tts_engine.voices.recording import Recording
from ....tts_engine.voices.store import VoiceStore
from ....tts_engine.voices.voices import Voice, Voices
from .messages import CloningOffer, ReplicaDescription, ReplicaLost
from .replica_link import ReplicaLink

_ENCODE_WITHIN_S = 60.0  # the first recording of a replica loads the encoder
_MAX_ENCODERS = 3  # replicas that are asked: a recording that ends one must not end all of them
_RETRY_AFTER_S = 2.0

Links = Callable[[], Collection[ReplicaLink]]


class ReplicatedVoices(Protocol):
    """Voices that follow those of the replicas."""

    def become(self, voices: Iterable[Voice], cloning: CloningOffer | None) -> None:
        """Have these voices of the bundle from now on."""


class ClusterVoices(Voices):
    """The voices of replicas that clone none."""

    def become(self, voices: Iterable[Voice], cloning: CloningOffer | None) -> None:
        """As ``ReplicatedVoices.become``."""
        self._voices = {voice.id: voice for voice in voices}


class EnrollableClusterVoices(EnrollableVoices):
    """The voices of replicas that clone. Made on the event loop of the links.

    links: the replicas that may be asked now. folder: of the gateway's ``VoiceStore``; None keeps enrolled
    voices in memory.
    """

    def __init__(self, cloning: CloningOffer, links: Links, folder: Path | None) -> None:
        version = cloning.model_version
        store = None if folder is None else VoiceStore(folder, version)
        super().__init__({}, (), version, store)
        self._cloning: CloningOffer | None = cloning
        self._links = links
        self._loop = asyncio.get_running_loop()

    def become(self, voices: Iterable[Voice], cloning: CloningOffer | None) -> None:
        """As ``ReplicatedVoices.become``; voices enrolled in memory stay."""
        bundled = {voice.id: voice for voice in voices}
        with self._change_lock:
            enrolled = {id: voice for id, voice in self._voices.items() if id in self._enrolled}
            self._voices = bundled | enrolled
            self._profiles = dict.fromkeys(bundled) | {id: self._profiles[id] for id in enrolled}
        self._cloning = cloning
        if cloning is not None:
            self.model_version = cloning.model_version
            if self.store is not None:
                self.store.version = cloning.model_version

    @property
    def encoder_digest(self) -> str:
        """As the replicas reported it. Raises BadRequest if they clone no voices."""
        if self._cloning is None:
            raise BadRequest("the replicas clone no voices; CosyVoice 2 or 3 and XTTS can")
        return self._cloning.encoder_digest

    def encode_recordings(self, recordings: Sequence[Recording], transcript: str = "") -> PackedPrompt:
        """As ``encode``, from another thread than that of the event loop."""
        encoding = self._encode(recordings, transcript)
        return asyncio.run_coroutine_threadsafe(encoding, self._loop).result()

    async def encode_on(
        self, thread: Executor, recordings: Sequence[Recording], transcript: str
    ) -> StorablePrompt:
        """As ``EnrollableVoices.encode_on``; a replica encodes, so the thread has nothing to do."""
        return await self._encode(recordings, transcript)

    def read_prompt(self, content: bytes) -> PackedPrompt:
        """Read the content of a saved prompt. Raises VoicePromptError."""
        return PackedPrompt.from_bytes(content)

    def profile_of(self, prompt: StorablePrompt) -> StorablePrompt:
        """The prompt itself, which replicas are sent."""
        return prompt

    def reads_language(self, language: str) -> bool:
        """True: the replica leaves out the language of a voice that it cannot read."""
        return True

    async def _encode(self, recordings: Sequence[Recording], transcript: str) -> PackedPrompt:
        """Have the replica with the fewest streams encode; another one if that is lost.

        Raises BadRequest, Overloaded without a replica, and SynthesisFailed.
        """
        asked: set[str] = set()
        while len(asked) < _MAX_ENCODERS:
            links = [link for link in self._links() if link.replica not in asked]
            if not links:
                break
            link = min(links, key=lambda each: each.load.open_streams)
            asked.add(link.replica)
            try:
                content = await link.encode(recordings, transcript, _ENCODE_WITHIN_S)
            except ReplicaLost:
                continue
            try:
                return self.read_prompt(content)
            except ValueError as fault:
                raise SynthesisFailed(f"replica {link.replica} sent no prompt: {fault}") from fault
        message = f"no replica encoded the recording; {len(asked)} were asked"
        raise Overloaded(message, reason="replicas", retry_after_s=_RETRY_AFTER_S)


def voices_of(
    description: ReplicaDescription, links: Links, folder: Path | None
) -> ClusterVoices | EnrollableClusterVoices:
    """The voices of a cluster whose first replica is described. Raises BundleError for the folder."""
    cloning = description.cloning
    voices = ClusterVoices(()) if cloning is None else EnrollableClusterVoices(cloning, links, folder)
    voices.become(description.voices, cloning)
    return voices
