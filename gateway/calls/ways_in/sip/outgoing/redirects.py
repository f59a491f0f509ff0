"""Redirects of calls that the gateway makes (3xx): each is looked up, and followed where calls may go.

A redirect costs what a call costs, so the destinations of the settings and of the key apply to it as if it
had been asked for, and so does the guard of the costs. The next server gets no credentials but those of its
trunk.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from ......adapters.sip.endpoint import SipEndpoint
from ......adapters.sip.headers import SipUri
from ......adapters.sip.outgoing import OutgoingSession
from ......adapters.sip.transactions import SipFlow
from ......tts_engine.errors import VivavoceError
from .....access.access_control import Grant
from .....background_tasks import cancel_and_wait
from ..sip_call import SipCall
from ..trunks import OutgoingRoute
from .cost_guard import CostGuard

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SipRedirects:
    """Follows the redirects of all calls of a dialer, whose fields and method these are."""

    endpoint: SipEndpoint
    guard: CostGuard
    media_host: Callable[[SipFlow], str]
    route: Callable[[str], Awaitable[OutgoingRoute]]
    _following: set[asyncio.Task[None]] = field(default_factory=set)

    def watch(
        self, call: SipCall, session: OutgoingSession, route: OutgoingRoute, grant: Grant | None
    ) -> None:
        """Follow the redirects of a call, which was placed on a route."""

        def decide(addresses: list[SipUri]) -> bool:
            task = asyncio.create_task(self._follow(call, session, route, grant, addresses))
            self._following.add(task)
            task.add_done_callback(self._following.discard)
            return True

        session.on_redirect = decide

    async def aclose(self) -> None:
        """Follow nothing any more."""
        await cancel_and_wait(*self._following)

    async def _follow(
        self,
        call: SipCall,
        session: OutgoingSession,
        route: OutgoingRoute,
        grant: Grant | None,
        addresses: list[SipUri],
    ) -> None:
        for address in addresses:
            try:
                target = self._target_of(address, route)
                if grant is not None:
                    grant.require_destination(target)
                following = await self.route(target)
                if following.costs and not route.costs:
                    self.guard.begin(call.call_id)
            except VivavoceError as error:
                logger.info("Call %s is redirected in vain: %s", call.call_id, error)
                continue
            logger.info("Call %s is redirected", call.call_id)
            self.watch(call, session, following, grant)
            flow = following.flow
            call.media.move((self.media_host(flow), call.media.port), flow.host)
            description = call.media.offer(is_secure=flow.transport == "tls")
            user = session.invite.contact.user
            invite = replace(
                session.invite,
                target=following.uri,
                flow=flow,
                contact=self.endpoint.contact(flow, user),
                description=description,
            )
            session.follow(invite, following.credentials)
            return
        session.end(302, "redirected where it may not go")

    def _target_of(self, address: SipUri, route: OutgoingRoute) -> str:
        """Return what a program would call to reach an address: at our servers and the trunk's, a number."""
        host = address.host.lower()
        own = self.endpoint.contact(route.flow).host.lower()
        trunk = "" if route.trunk is None else route.trunk.table.host.lower()
        if address.user and host in {own, trunk, route.flow.host}:
            return address.user
        return str(address)
