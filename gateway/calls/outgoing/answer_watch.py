"""Detection of what answered an outgoing call, from its answer until it is known."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....adapters.answer_detector import AnswerDetector, Answerer
from ..events import CallerAudio, CallEvent

if TYPE_CHECKING:
    from ..call import Call


class AnswerWatch:
    """Listens to one call, and emits an ``AnswerDetected`` for each result.

    Nothing is known of a call that sends no audio at all. on_detected: called with each result before it is
    emitted.
    """

    def __init__(self, call: "Call", on_detected: Callable[[Answerer], None]) -> None:
        self._call = call
        self._on_detected = on_detected
        self._detector = AnswerDetector()
        call.events.add_listener(self._take, wants_audio=True)

    def _take(self, event: CallEvent) -> None:
        if not isinstance(event, CallerAudio) or self._detector.is_over:
            return
        for result in self._detector.push(event.pcm, event.sample_rate):
            self._call.answered_by = result.answerer
            self._on_detected(result.answerer)
            self._call.events.emit(result)
        if self._detector.is_over:
            self._call.events.remove_listener(self._take)
