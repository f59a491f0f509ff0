"""Voices as the numbers that clients of XTTS's servers carry about.

A client gets ``speaker_embedding`` and ``gpt_cond_latent`` of a recording and sends both with every request;
to it, they are opaque. Here the embedding holds the id of a voice:

    speaker_embedding   [mark, mark, length, byte, byte, ..., 0, 0]     512 numbers
    gpt_cond_latent     [[0, ... 0]]                                    1 x 1024 numbers

Each number is a byte divided by 256, which float16, float32 and JSON keep exactly.
"""

from collections.abc import Sequence
from typing import Final

from .....tts_engine.errors import BadRequest

EMBEDDING_SIZE: Final = 512
LATENT_SIZE: Final = 1_024
_MARK: Final = b"vivavoce"


def encode_voice(voice_id: str) -> tuple[list[list[float]], list[float]]:
    """Return the latent, (1, 1024), and the embedding, (512,), of a voice."""
    name = voice_id.encode()
    data = (_MARK + bytes([len(name)]) + name).ljust(EMBEDDING_SIZE, b"\0")
    return [[0.0] * LATENT_SIZE], [byte / 256 for byte in data]


def decode_voice(speaker_embedding: Sequence[float]) -> str:
    """Return the id of the voice; raises BadRequest for numbers of another server."""
    try:
        data = bytes(round(256 * number) for number in speaker_embedding[:EMBEDDING_SIZE])
        marked, size = data.startswith(_MARK), data[len(_MARK)]
        name = data[len(_MARK) + 1 :][:size].decode()
    except (ValueError, OverflowError, IndexError):  # a number that is no byte, or not finite
        marked, name = False, ""
    if not marked:
        raise BadRequest(
            "speaker_embedding is not of this server; clone the speaker here (/clone_speaker), "
            "or take one of /studio_speakers"
        )
    return name
