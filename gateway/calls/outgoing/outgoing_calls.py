"""The calls that the gateway makes, from their placing until a while after their end.

A way in adds each call that it places, and reports its states. Programs may wait for the answer, and look up
how a call ended. Once it is answered, the call itself is in the registry, under the same id.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....adapters.answer_detector import AnswerDetector, Answerer
from ..call_options import NO_OWNER, Caller, CallOwner
from ..events import CallerAudio, CallEvent
from ..recently_ended import RecentlyEnded
from .states import OutgoingState, failed_state, may_follow

if TYPE_CHECKING:
    from ..call import Call

StateListener = Callable[["OutgoingCall"], None]


@dataclass(slots=True, eq=False)
class OutgoingCall:
    """A call that the gateway makes."""

    call_id: str
    kind: str  # as that of ``ActiveCall``
    caller: Caller  # the number that is shown, and the one that is called
    cancel: Callable[[], None]  # ends the ringing; must not block
    owner: CallOwner = NO_OWNER
    state: OutgoingState = OutgoingState.PLACED
    sip: int | None = None  # SIP status of the last state, if one is known
    placed_at: float = field(default_factory=time.time)  # Unix s
    detects_answer: bool = False
    answered_by: Answerer | None = None  # None: not known
    listeners: set[StateListener] = field(default_factory=set)

    @property
    def is_answered(self) -> bool:
        """Whether the call itself is in the registry, or was."""
        return self.state in (OutgoingState.ANSWERED, OutgoingState.ENDED)

    def report(self, state: OutgoingState, sip: int | None = None) -> None:
        """Take a state; one that is no news is ignored. Report an answer once the call is in the registry."""
        if not may_follow(self.state, state):
            return
        self.state, self.sip = state, sip
        for listener in tuple(self.listeners):
            listener(self)

    def take_answer(self, call: "Call") -> None:
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
            self.report(failed_state(sip), sip)


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


class OutgoingCalls:
    """The outgoing calls of a server: those that are not over, and those that ended lately."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._placed: dict[str, OutgoingCall] = {}
        self._ended: RecentlyEnded[OutgoingCall] = RecentlyEnded(now)

    def add(self, call: OutgoingCall) -> None:
        """Add a call that is being placed."""
        self._placed[call.call_id] = call
        call.listeners.add(self._on_state)

    def get(self, call_id: str) -> OutgoingCall | None:
        """Return a call; None if none of that id was placed lately."""
        return self._placed.get(call_id) or self._ended.get(call_id)

    def _on_state(self, call: OutgoingCall) -> None:
        if call.state.is_over:
            call.cancel = lambda: None
            self._placed.pop(call.call_id, None)
            self._ended.add(call.call_id, call)
