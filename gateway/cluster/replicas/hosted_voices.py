"""Enrolled voices at a replica: it encodes recordings for gateways, and speaks with the prompts they send.

Recordings are encoded here, or by other processes if there are some for it.

A prompt is sent once and then named by its content, until the least recently used make room for others. The
voice exists in the engine only while a stream is opened with it, so gateways share no names here.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ....tts_engine.errors import BadRequest
from ....tts_engine.voices.enrollable import EnrollableVoices
from ....tts_engine.voices.packed_prompt import StorablePrompt
from ....tts_engine.voices.prompt_cache import PromptCache
from ....tts_engine.voices.recording import Recording
from ....tts_engine.voices.voices import Voices
from .messages import CloningOffer, PromptForgotten, SentPrompt

_MAX_PROMPT_BYTES = 256 * 2**20  # in memory; a prompt has 490 kB at most


class RecordingEncoders(Protocol):
    """Other processes that encode recordings."""

    async def encode(self, encoder_digest: str, recordings: Sequence[Recording], transcript: str) -> bytes:
        """As ``HostedVoices.encode``, by encoders with that digest."""


class HostedVoices:
    """The voices of a replica's engine, and the prompts that gateways sent. Belongs to one event loop.

    encoders: encode recordings in the place of this process; None encodes here.

    Attributes:
        warm: ids of the prompts in memory; another object after each change.
    """

    def __init__(
        self,
        voices: Voices,
        encoders: RecordingEncoders | None = None,
    ) -> None:
        self._voices = voices
        self._encoders = encoders
        self._prompts = PromptCache(_MAX_PROMPT_BYTES)
        self.warm: frozenset[str] = frozenset()

    async def offer(self) -> CloningOffer | None:
        """What becomes of recordings here; None without cloning. May read files for a second."""
        voices = self._voices
        if not isinstance(voices, EnrollableVoices):
            return None
        return CloningOffer(voices.model_version, await asyncio.to_thread(lambda: voices.encoder_digest))

    async def encode(self, recordings: Sequence[Recording], transcript: str) -> bytes:
        """The file of the prompt of a voice's recordings. Raises BadRequest, and what the encoders raise."""
        voices = self._cloning()
        if self._encoders is not None:
            return await self._encoders.encode(voices.encoder_digest, recordings, transcript)
        prompt = await asyncio.to_thread(voices.encode_recordings, recordings, transcript)
        return prompt.to_bytes()

    @contextmanager
    def registered(self, sent: SentPrompt) -> Iterator[str]:
        """The id of a voice that exists inside the block; streams that are opened there keep it.

        Raises PromptForgotten, and BadRequest for what is no prompt of the bundle's model.
        """
        voices = self._cloning()
        voice_id = voices.register_prompt(self._prompts.get(sent.id, lambda: _read(sent, voices))).id
        if sent.id not in self.warm:
            self.warm = self._prompts.keys
        try:
            yield voice_id
        finally:
            voices.remove(voice_id)

    def readable(self, language: str | None) -> str | None:
        """The language of an enrolled voice, or None for one that the bundle does not read."""
        return language if language and self._cloning().reads_language(language) else None

    def _cloning(self) -> EnrollableVoices:
        if not isinstance(self._voices, EnrollableVoices):
            raise BadRequest("the replicas clone no voices; CosyVoice 2 or 3 and XTTS can")
        return self._voices


def _read(sent: SentPrompt, voices: EnrollableVoices) -> StorablePrompt:
    if sent.content is None:
        raise PromptForgotten(f"the prompt {sent.id[:32]} is not here")
    try:
        prompt = voices.read_prompt(sent.content)
    except ValueError as fault:
        raise BadRequest(str(fault)) from fault
    if (prompt.id, prompt.model_version) != (sent.id, voices.model_version):
        raise BadRequest("the prompt of the voice belongs to another model; enrol its recording again")
    return prompt
