"""The calls as one key may use them: those that belong to it, or all of them.

A call belongs to the key that placed it or whose page it is. A phone call that comes in belongs to the keys
that name the agent it was announced for. A call of another key is answered like one that is not up.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from fastapi.requests import HTTPConnection

from ...access.access_control import Grant
from ...access.dependencies import grant_of
from ...access.errors import ScopeMissing
from ...access.keys import Scope
from ..call import Call
from ..call_end import CallResult
from ..call_options import CallOwner
from ..outgoing.outgoing_calls import OutgoingCall
from ..registry import ActiveCall, CallRegistry, CallUnknown
from ..transfers import CALL_PREFIX, AttendedTransfer
from .messages import TransferOrder


class KeyCalls:
    """The calls of a server, as the key of a grant may use them."""

    def __init__(self, registry: CallRegistry, grant: Grant) -> None:
        self.grant = grant
        self._registry = registry

    @classmethod
    def of(cls, registry: CallRegistry, connection: HTTPConnection) -> Self:
        """Return the calls of the key of a request."""
        return cls(registry, grant_of(connection))

    def __iter__(self) -> Iterator[ActiveCall]:
        return filter(self._is_usable, self._registry)

    def get(self, call_id: str) -> ActiveCall:
        """Return the call of that id; raises CallUnknown."""
        active_call = self._registry.get(call_id)
        if not self._is_usable(active_call):
            raise CallUnknown(f"no call {call_id!r} is up")
        return active_call

    def outgoing(self, call_id: str) -> OutgoingCall | None:
        """Return a call that the server makes, or made lately; None if there is none of that id."""
        call = self._registry.outgoing.get(call_id)
        return call if call is not None and self._may_use(call.owner) else None

    def result(self, call_id: str) -> CallResult:
        """Return the result of a call, up or ended within the last minutes; raises CallUnknown."""
        ended = self._registry.ended(call_id)
        if ended is None or not self._may_use(ended.owner):
            return self.get(call_id).call.end.result
        return ended.result

    async def next_unattached(self) -> ActiveCall:
        """Return the oldest call without a program; wait until there is one."""
        return await self._registry.next_unattached(self._is_usable)

    @contextmanager
    def attach(self, active_call: ActiveCall) -> Iterator[None]:
        """Attach a program of the key; raises CallAlreadyAttached, and GrantEnded."""
        self.grant.require_current()
        with self._registry.attach(active_call):
            yield

    def record(self, active_call: ActiveCall) -> "asyncio.Future[str]":
        """Record a call, as ``CallRecording.begin``; what the key began ends with the grant."""
        call, is_begun_here = active_call.call, not active_call.call.recording.is_on
        opened = call.recording.begin()
        if is_begun_here:
            active_call.release_recording()
            active_call.release_recording = self.grant.on_end(partial(self.stop_recording, active_call))
        return opened

    def stop_recording(self, active_call: ActiveCall) -> "asyncio.Future[str]":
        """End the recording of a call, as ``CallRecording.end``."""
        active_call.release_recording()
        return active_call.call.recording.end()

    def transfer(self, call: Call, order: TransferOrder) -> Coroutine[Any, Any, None] | None:
        """Transfer a caller of the key; return what waits for the end of that, or None if it is done.

        Raises DestinationRefused or CallUnknown if the key may not transfer a caller there, and as
        ``CallEnd.transfer``. What waits raises as ``CallEnd.transfer`` and ``CallEnd.transfer_attended`` say.
        """
        self._require_target(order.to)
        call.end.set_result(order.result)
        if order.attended is None:
            return call.end.transfer(order.to, order.if_refused)
        attended = AttendedTransfer(order.to, order.attended.announcement, order.attended.ring_s)
        return call.end.transfer_attended(attended)

    def require_announcement(self, agent: str | None) -> None:
        """Raise ScopeMissing if the key may not announce a call for that agent."""
        if not (self.grant.allows(Scope.CALLS_ALL) or self.grant.answers_for(agent or "")):
            wanted = agent or "the agent of all calls"
            raise ScopeMissing(f"this key may announce calls for its agents only, not for {wanted}")

    def _require_target(self, target: str) -> None:
        if not target.startswith(CALL_PREFIX):
            self.grant.require_destination(target)
        elif not self.grant.allows(Scope.CALLS_ALL):
            self.get(target.removeprefix(CALL_PREFIX))

    def _is_usable(self, active_call: ActiveCall) -> bool:
        return self._may_use(active_call.owner)

    def _may_use(self, owner: CallOwner) -> bool:
        grant = self.grant
        return (
            grant.allows(Scope.CALLS_ALL)
            or owner.key_id == grant.key_id
            or (owner.agent != "" and grant.answers_for(owner.agent))
        )
