"""Speech jobs: what a dialect makes of a request that is spoken as a whole.

A recording in a job becomes a voice for as long as the job lasts.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ....adapters.ssml.document import SsmlDocument
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest
from ...voice_registry import NewVoice
from .speech import SynthesisOptions

MAX_FILE_S: Final = 1_200  # of one complete file, held in memory: 58 MB at 24 kHz


@dataclass(frozen=True, slots=True)
class ReferenceRecording:
    """A recording that a request brings or names."""

    read: Callable[[], Awaitable[bytes]]  # returns a sound file; raises VivavoceError
    voice: NewVoice

    @classmethod
    def uploaded(cls, data: bytes, voice: NewVoice) -> "ReferenceRecording":
        """Return the recording of a file that came with the request."""

        async def read() -> bytes:
            return data

        return cls(read, voice)


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A request for speech in terms of the engine."""

    text: str
    options: SynthesisOptions
    recording: ReferenceRecording | None = None  # speaks instead of the options' voice
    content_type: str | None = None  # None: the one of the encoding
    is_whole: bool = False  # whether the answer is one complete file
    document: SsmlDocument | None = None  # of the text, if the request says that it is SSML
    header: bytes = b""  # of a stream, before the first audio


def check_file_length(samples: int) -> None:
    """Raise BadRequest if so many samples of speech are too long to be held in memory."""
    if samples > MAX_FILE_S * SAMPLE_RATE:
        raise BadRequest(f"the speech is longer than {MAX_FILE_S} s, the most in one file; stream it instead")
