"""TODO."""

from collections.abc import Generator, Sequence

from ...models.cosyvoice.lm.generation import Generation, SamplingRequest, SpecialIds
from ..segmenter import BoundaryKind, Segment, Segmenter


class VoiceConversionSegmenter(Segmenter):
    """For what is said again: one segment of no words, once the stream's input has ended."""

    def flush(self) -> list[Segment]:
        """The segment that begins it."""
        return [Segment((), 0, 0, BoundaryKind.SENTENCE)]


class SourceSpeechGeneration(Generation):
    """Speech that was heard, to be said in another voice: nothing is asked, all is known."""

    def __init__(self, ids: SpecialIds, source_speech_ids: Sequence[int]) -> None:
        super().__init__(ids)
        self.speech_ids = list(source_speech_ids)

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        yield from ()
