"""Voices that can be cloned from recordings and kept on file, for backends that clone voices."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from .store import VoicePrompt, VoiceStore
from .voices import Voice, Voices


class EnrollableVoices(Voices, ABC):
    """Voices to which recordings can be added. Methods may be called from any thread.

    Attributes:
        store: the voices on file, which are found by ``get`` and may be changed there; None without a folder.
    """

    store: VoiceStore | None

    @abstractmethod
    def encode_prompt(
        self, samples: NDArray[np.float32], sample_rate: int, transcript: str = ""
    ) -> VoicePrompt:
        """Encode a recording, to be registered here or added to a store; limits and errors as ``enroll``."""

    @property
    @abstractmethod
    def encoder_digest(self) -> str:
        """Differs between bundles that encode a recording differently. May read files for a second."""

    @abstractmethod
    def register_prompt(self, prompt: VoicePrompt) -> Voice:
        """Add a voice, kept in memory until it is removed. Registering a prompt is idempotent.

        Raises BadRequest if too many voices are in memory.
        """

    def enroll(self, samples: NDArray[np.float32], sample_rate: int, transcript: str = "") -> Voice:
        """Encode a recording and register its prompt."""
        return self.register_prompt(self.encode_prompt(samples, sample_rate, transcript))
