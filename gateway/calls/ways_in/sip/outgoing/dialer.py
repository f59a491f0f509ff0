"""Calls that the gateway makes over SIP: through a trunk, to a registered phone, or to an address."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ......adapters.sip.endpoint import SipEndpoint
from ......adapters.sip.headers import NameAddress, SipSyntaxError, SipUri
from ......adapters.sip.outgoing import OutgoingInvite, OutgoingSession
from ......adapters.sip.transactions import SipFlow
from ......tts_engine.errors import BadRequest, VivavoceError
from .....access.access_control import Grant
from ....agents.agent import Agent
from ....call_options import Caller, CallOwner
from ....kits.rtp_calls import RtpCallServer
from ....transfers import CallTransfers
from ..media import MediaNegotiation, MediaPolicy
from ..registrar import SipRegistrar
from ..resolver import SipResolver
from ..sip_call import SipCall, SipCallHost
from ..trunks import OutgoingRoute, SipTrunk
from .cost_guard import CostGuard
from .forks import ring_all
from .redirects import SipRedirects


class NoWayOut(BadRequest):
    """There is no trunk and no phone for a target."""


class TargetUnreachable(VivavoceError):
    """The servers of a target are not known, or not found."""


@dataclass(slots=True)
class SipDialer:
    """Makes calls.

    Args:
        media_host: returns the address for media that the peer of a flow sees.
        on_call: takes each call that is placed.
    """

    endpoint: SipEndpoint
    rtp: RtpCallServer
    trunks: Mapping[str, SipTrunk]
    policies: Mapping[str, MediaPolicy]
    guard: CostGuard
    registrar: SipRegistrar
    resolver: SipResolver
    media_host: Callable[[SipFlow], str]
    on_call: Callable[[SipCall], None]
    redirects: SipRedirects = field(init=False)

    def __post_init__(self) -> None:
        self.redirects = SipRedirects(self.endpoint, self.guard, self.media_host, self.route)

    async def route(self, target: str, trunk_name: str = "") -> OutgoingRoute:
        """Return how a number or address is reached.

        Raises NoWayOut, TargetUnreachable, and DestinationNotAllowed.
        """
        phones = self.registrar.phones(target) if not trunk_name else []
        if phones:
            first, *others = (
                OutgoingRoute(SipUri.parse(phone.contact), phone.flow, None, costs=False) for phone in phones
            )
            return replace(first, others=tuple(others))
        self.guard.require_allowed(target)
        trunk = self._find_trunk(target, trunk_name)
        if not target.startswith(("sip:", "sips:")):
            if trunk is None:
                raise NoWayOut(f"got {target!r}; a number needs a trunk, or a phone that is registered")
            return self._through(trunk, trunk.address_of(target))
        try:
            uri = SipUri.parse(target)
        except SipSyntaxError as error:
            raise NoWayOut(str(error)) from None
        if trunk is not None:
            return self._through(trunk, uri)
        servers = await self.resolver.find(uri.host.strip("[]"), uri.port, uri.transport)
        if not servers:
            raise TargetUnreachable(f"the servers of {uri.host} are not found")
        return OutgoingRoute(uri, servers[0], None, costs=True)

    def _find_trunk(self, target: str, name: str) -> SipTrunk | None:
        if name:
            if name not in self.trunks:
                known = ", ".join(self.trunks) or "none"
                raise NoWayOut(f"trunk: got {name!r}; there are: {known}")
            return self.trunks[name]
        if target.startswith(("sip:", "sips:")):
            host = target.partition("@")[2].partition(";")[0].partition(":")[0].lower()
            return next((each for each in self.trunks.values() if each.table.host.lower() == host), None)
        return next(iter(self.trunks.values()), None)

    def _through(self, trunk: SipTrunk, uri: SipUri) -> OutgoingRoute:
        if trunk.server is None:
            raise TargetUnreachable(f"trunk {trunk.name}: its servers are not found")
        return OutgoingRoute(uri, trunk.server, trunk, costs=True)

    def place(
        self,
        host: SipCallHost,
        route: OutgoingRoute,
        call_id: str,
        *,
        shown: Caller,
        transfers: CallTransfers,
        ring_s: float,
        agent: Agent | None = None,
        owner: CallOwner,
        grant: Grant | None = None,
    ) -> SipCall:
        """Call; the result is open once it is answered. Raises Overloaded, RateLimited and OSError."""
        if route.costs:
            self.guard.begin(call_id)
        try:
            reservation = self.rtp.reserve(
                f"{route.flow.host}:{route.flow.address[1]}",
                caller=shown,
                transfers=transfers,
                owner=owner,
                grant=grant,
            )
        except VivavoceError:
            self.guard.end(call_id, was_answered=False)
            raise
        name = "" if route.trunk is None else route.trunk.name
        address = (self.media_host(route.flow), reservation.address[1])
        media = MediaNegotiation(self.policies[name], address, route.flow.host)
        session, *others = (self._session(each, media, shown) for each in (route, *route.others))
        call = SipCall(host, session, self.rtp, reservation, media, agent=agent, call_id=call_id)
        session.listener = call
        if others:
            ring_all(call, [session, *others], self.media_host)
        else:
            self.redirects.watch(call, session, route, grant)
        if route.trunk is not None:
            session.on_unreachable = partial(self._try_next_server, route.trunk, call, session, set())
        self.on_call(call)
        for each in (session, *others):
            each.start(max_ring_s=ring_s)
        return call

    def _session(self, route: OutgoingRoute, media: MediaNegotiation, shown: Caller) -> OutgoingSession:
        media.move((self.media_host(route.flow), media.port), route.flow.host)
        description = media.offer(is_secure=route.flow.transport == "tls")

        def make(contact: SipUri, sip_call_id: str, tag: str) -> OutgoingInvite:
            return OutgoingInvite(
                target=route.uri,
                caller=NameAddress(str(_caller_uri(route, contact, shown)), shown.name),
                contact=contact,
                flow=route.flow,
                description=description,
                call_id=sip_call_id,
                tag=tag,
            )

        user = "vivavoce" if route.trunk is None else route.trunk.token
        return self.endpoint.call(make, route.flow, route.credentials, user)

    def _try_next_server(
        self, trunk: SipTrunk, call: SipCall, session: OutgoingSession, tried: set[SipFlow]
    ) -> bool:
        """Go on at the trunk's next server; return whether there is one that was not tried."""
        tried.add(session.invite.flow)
        trunk.avoid(session.invite.flow)
        server = trunk.server
        if server is None or server in tried:
            return False
        call.media.move((self.media_host(server), call.media.port), server.host)
        session.follow(replace(session.invite, flow=server), trunk.credentials)
        return True


def _caller_uri(route: OutgoingRoute, contact: SipUri, shown: Caller) -> SipUri:
    if route.trunk is not None:
        return route.trunk.address_of(shown.number or route.number)
    return SipUri(contact.host, shown.number or route.number, contact.port)
