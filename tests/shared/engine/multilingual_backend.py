"""A stand-in voice that speaks English, German and French, each by its rules, and keeps what it read."""

from collections.abc import Sequence

from shared.engine.standin_backend import StandInBackend
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult
from vivavoce.tts_engine.segmenter import Segment, Segmenter
from vivavoce.tts_engine.voice_kit.voice_reader import VoiceReader
from vivavoce.tts_engine.voices.voices import Voice, Voices


class MultilingualStandIn(StandInBackend):
    """As its base class, with one voice; ``segments`` are those rendered."""

    def __init__(self) -> None:
        super().__init__()
        self.voices = Voices((Voice("tone-440", "en-US", "", ("de", "fr")),))
        self.segments: list[Segment] = []

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """That of the request's language."""
        return VoiceReader(request.delivery.language or "en-US").segmenter(request)

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """As in the base class."""
        self.segments += [turn.segment for turn in turns if turn.segment is not None]
        return super().step(worker, turns)

    def read(self) -> list[tuple[str | None, str]]:
        """The language and the words of each segment."""
        return [(segment.language, segment.spoken) for segment in self.segments]
