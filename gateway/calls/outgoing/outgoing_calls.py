"""The calls that the gateway makes, from their placing until a while after their end.

A way in adds each call that it places, and reports its states. Programs may wait for the answer, and look up
how a call ended. Once it is answered, the call itself is in the registry, under the same id.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ....adapters.answerer import Answerer
from ..call_end import RecentlyEnded
from ..call_options import NO_OWNER, Caller, CallOwner
from .states import OutgoingState, may_follow

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
