"""Lines of the packaged voice as ``SpeechFiles`` writes and reads them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...models.hibari import voice as hibari_voice
from ...models.rendering_identity import rendering_identity
from ...models.signal.room_tone import RoomTone
from ..voice_kit.speech_files import Arrays, LineFormat
from . import lines
from .lines import NO_FRAMES, LinePiece


def line_format(room_tone: RoomTone) -> LineFormat[LinePiece]:
    """The format of lines that sound as this process renders them. room_tone: of the loaded voice.

    The digest of the weights is in the code, which the identity covers.
    """
    identity = rendering_identity(room_tone.period, [Path(__file__), Path(lines.__file__)])
    return LineFormat(identity, _encode, _decode)


def _encode(pieces: Sequence[LinePiece]) -> tuple[object, Arrays]:
    line = pieces[0].line
    about = [
        (line.words, line.onset, line.frames, line.phonemes),
        [
            (piece.mel_frames, piece.word_times, piece.rendered_s, piece.lead_s, piece.last)
            for piece in pieces
        ],
    ]
    return about, [line.f0, *(piece.samples for piece in pieces)]


def _decode(about: Any, arrays: Arrays) -> list[LinePiece]:
    (words, onset, frames, phonemes), pieces = about
    f0, *samples = arrays
    timed = tuple(tuple((ipa, first, stop) for ipa, first, stop in word) for word in phonemes)
    line = hibari_voice.EncodedLine(NO_FRAMES, f0, _pairs(words), onset, frames, timed)
    return [
        LinePiece(rendered, (first, stop), line, _pairs(times), rendered_s, lead_s, last)
        for rendered, ((first, stop), times, rendered_s, lead_s, last) in zip(samples, pieces, strict=True)
    ]


def _pairs(found: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, stop) for first, stop in found)
