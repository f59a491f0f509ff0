"""The front end, in the parent process, of a backend whose voices never change."""

from ..segmenter import Segmenter
from ..voices.voices import Voices
from .base import SlotRequest


class StaticFrontEnd:
    """The front end of a backend whose voices never change; it passes requests on."""

    def __init__(self, voices: Voices, warm_up_text: str, *, varies_pauses: bool = False) -> None:
        self.voices, self.warm_up_text = voices, warm_up_text
        self._varies_pauses = varies_pauses

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        pause_seed = request.seed if self._varies_pauses else None
        return Segmenter(style=request.reading, pause_seed=pause_seed)

    def prepare_request(self, request: SlotRequest) -> SlotRequest:
        """The request itself."""
        return request

    def close(self) -> None:
        """Do nothing."""
