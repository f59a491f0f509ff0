"""The calls that a way in makes: their states by SIP, and what answered them.

A way in reports what it learns as a SIP status, or as the one that says the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ....adapters.answer_detector import AnswerDetector
from ....adapters.answerer import Answerer
from ..call import Call
from ..events import CallerAudio, CallEvent
from ..outgoing.outgoing_calls import OutgoingCall
from ..outgoing.states import OutgoingState

_STATES_OF_SIP: Final[Mapping[int, OutgoingState]] = MappingProxyType(
    {
        408: OutgoingState.NO_ANSWER,
        480: OutgoingState.NO_ANSWER,
        486: OutgoingState.BUSY,
        487: OutgoingState.CANCELLED,
        600: OutgoingState.BUSY,
        603: OutgoingState.DECLINED,
        607: OutgoingState.DECLINED,
        608: OutgoingState.DECLINED,
    }
)


@dataclass(slots=True, eq=False)
class PlacedCall(OutgoingCall):
    """An outgoing call, as its way in reports it."""

    detects_answer: bool = False

    def take_answer(self, call: Call) -> None:
        """Take the call, which is up, and detect what answered if that is wanted."""
        self.report(OutgoingState.ANSWERED, 200)
        if self.detects_answer:
            AnswerWatch(call, self._note_answerer)

    def _note_answerer(self, answerer: Answerer) -> None:
        self.answered_by = answerer

    def report_gone(self, sip: int | None = None) -> None:
        """Take the end of the call: after an answer, or with a SIP status that says why there was none."""
        if self.state is OutgoingState.ANSWERED:
            self.report(OutgoingState.ENDED)
        else:
            self.report(_failed_state(sip), sip)


def _failed_state(sip: int | None) -> OutgoingState:
    if sip is None:
        return OutgoingState.NO_ANSWER
    return _STATES_OF_SIP.get(sip, OutgoingState.UNREACHABLE)


class AnswerWatch:
    """Listens to one call, and emits an ``AnswerDetected`` for each result.

    Nothing is known of a call that sends no audio at all. on_detected: called with each result before it is
    emitted.
    """

    def __init__(self, call: Call, on_detected: Callable[[Answerer], None]) -> None:
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
