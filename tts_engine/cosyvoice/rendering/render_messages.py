"""Messages between a decode replica and a render replica. A transport carries them; both sides are Python.

    decode -> render    ChunkRequest: new speech ids of a sentence, the chunk to render, how soon it is needed
    render -> decode    RenderedChunk, or what is missing, or an error

A voice is named by its key. A render replica that does not have it says so, and is sent it once. Times are
durations, so that the clocks of the machines may differ.
"""

from dataclasses import dataclass

import numpy as np

from ....models.cosyvoice.flow.hop_schedule import SpeechIdChunk
from ...errors import VivavoceError
from .render_stage import Samples


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """The next chunk of a sentence; with ``noise``, the sentence from its beginning."""

    decoder: str  # id of the decode replica
    sentence: int  # the decode replica's number of it
    voice: str  # ``FlowPrompt.key``
    speed: float  # 0.5 to 2.0
    first_id: int  # place of ``ids`` in the sentence
    ids: tuple[int, ...]  # speech ids that the render replica does not have yet
    chunks: tuple[SpeechIdChunk, ...]  # to render in order; the samples of the last one are the answer
    lead_s: float | None  # until the listener has nothing left to hear; None: there was no audio yet
    noise: np.random.Generator | None  # as it was at the sentence's beginning; None continues the sentence
    trace_id: str = "-"  # of the stream, for logs

    @property
    def place(self) -> tuple[str, int, int]:
        """Decode replica, sentence, and the end of the chunk that is wanted."""
        return self.decoder, self.sentence, self.chunks[-1].stop


@dataclass(frozen=True, slots=True)
class RenderedChunk:
    """The answer. samples: (N,) float32 at 24 kHz. noise: after a final chunk, for the next sentence.

    place: of what it answers, as ``ChunkRequest.place``.
    """

    samples: Samples
    noise: np.random.Generator | None
    place: tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class VoiceMissing:
    """The render replica needs the voice first."""


@dataclass(frozen=True, slots=True)
class SentenceMissing:
    """The render replica needs the sentence from its beginning."""


@dataclass(frozen=True, slots=True)
class RenderingFailed:
    """The sentence cannot be rendered."""

    error: VivavoceError


RenderReply = RenderedChunk | VoiceMissing | SentenceMissing | RenderingFailed
