"""Detection of what answered an outgoing call, from its answer until it is known."""

from typing import TYPE_CHECKING

from ....adapters.answer_detector import AnswerDetector
from ..events import CallerAudio, CallEvent

if TYPE_CHECKING:
    from ..call import Call
    from .outgoing_calls import OutgoingCall


class AnswerWatch:
    """Listens to one call, and emits an ``AnswerDetected`` for each result.

    Nothing is known of a call that sends no audio at all.
    """

    def __init__(self, call: "Call", record: "OutgoingCall") -> None:
        self._call = call
        self._record = record
        self._detector = AnswerDetector()
        call.events.add_listener(self._take, wants_audio=True)

    def _take(self, event: CallEvent) -> None:
        if not isinstance(event, CallerAudio) or self._detector.is_over:
            return
        for result in self._detector.push(event.pcm, event.sample_rate):
            self._call.answered_by = self._record.answered_by = result.answerer
            self._call.events.emit(result)
        if self._detector.is_over:
            self._call.events.remove_listener(self._take)
