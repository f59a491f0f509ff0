"""SIP of the gateway: its endpoint, its sockets and its calls.

datagram --> admission --> endpoint --> INVITE --> media agreed, port bound --> call open --> 200
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final

from .....adapters.media.clock import Clock
from .....adapters.sip.dialog import new_tag
from .....adapters.sip.endpoint import RequestVerdict, SipEndpoint
from .....adapters.sip.headers import NameAddress, SipSyntaxError
from .....adapters.sip.incoming import IncomingSession
from .....adapters.sip.message import SipRequest
from .....adapters.sip.session import SipRejected
from .....adapters.sip.timers import TimerQueue
from .....adapters.sip.transactions import ServerTransaction, SipFlow
from .....tts_engine.errors import Overloaded
from ...agents.agent import Agent
from ...call import Call
from ...call_options import Caller
from ...kits.rtp_calls import RtpCallServer
from ...registry import CallRegistry
from .admission import SipAdmission, SipOrigin
from .joined_calls import open_joined
from .media import MediaNegotiation, MediaPolicy
from .outgoing.cost_guard import CostGuard
from .outgoing.dialer import SipDialer
from .registrar import SipRegistrar
from .resolver import SipResolver
from .settings import SipTrunkTable
from .sip_call import SipCall
from .sockets import SipSockets
from .transfers import SipTransfers
from .trunks import SipTrunk

logger = logging.getLogger(__name__)

_END_TIMEOUT_S: Final = 2.0  # for BYE to be answered


class SipCallServer:
    """Answers and makes calls over SIP.

    Args:
        public_host: address that peers are told; "": that of the socket which they reach.
        policies: of media, by the name of the trunk; "" for all others.
        agents: by the name of the trunk.
        guard: of outgoing calls.
        clock: of calls that are joined.
        client_tls: makes what connections from here are encrypted with.
    """

    def __init__(
        self,
        rtp: RtpCallServer,
        admission: SipAdmission,
        policies: Mapping[str, MediaPolicy],
        agents: Mapping[str, Agent],
        guard: CostGuard,
        registry: CallRegistry,
        clock: Clock,
        *,
        public_host: str = "",
        client_tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self.server_names: dict[str, str] = {}  # by IP address, for TLS
        self.sockets = SipSockets(self._receive, self._lose, client_tls, self.server_names)
        self.timers = TimerQueue(time.monotonic, self._wake)
        self.endpoint = SipEndpoint(self, self.sockets.send, self._local, self.timers)
        self._rtp = rtp
        self._admission = admission
        self._policies = policies
        self._agents = agents
        self._public_host = public_host
        self.registry = registry
        self._clock = clock
        self.trunks: dict[str, SipTrunk] = {}
        self._resolver = SipResolver()
        self.registrar = SipRegistrar()
        self.dialer = SipDialer(
            self.endpoint,
            rtp,
            self.trunks,
            policies,
            guard,
            self.registrar,
            self._resolver,
            self._media_host,
            self._note,
        )
        self._host = ""
        self._origin = SipOrigin()  # of the request that was admitted last
        self._calls: dict[str, SipCall] = {}
        self._waking: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int, tls: "tuple[int, ssl.SSLContext] | None") -> None:
        """Listen; raises AddressUnavailable."""
        self._host = host
        await self.sockets.open(host, port, tls)
        for trunk in self.trunks.values():
            trunk.start()
        logger.info(
            "SIP on %s:%d%s", host, self.sockets.port, f", TLS on {self.sockets.tls_port}" if tls else ""
        )

    def add_trunk(self, name: str, table: SipTrunkTable) -> None:
        """Add a trunk, before ``open``."""
        note = self.server_names.__setitem__
        self.trunks[name] = SipTrunk(
            name, table, self.endpoint, self._resolver, self.sockets.keep_alive, note
        )

    def find_trunk(self, request: SipRequest, flow: SipFlow) -> str:
        """Return the name of the trunk that a request comes from; "": of none."""
        return next((trunk.name for trunk in self.trunks.values() if trunk.owns(request, flow)), "")

    async def aclose(self) -> None:
        """End every call and every registration, and close the sockets."""
        for call in tuple(self._calls.values()):
            if call.call is None or call.joined is not None:
                call.hang_up("shutting down")
        await self.dialer.redirects.aclose()
        await self._rtp.aclose()
        for trunk in self.trunks.values():
            await trunk.aclose()
        calls = tuple(self._calls.values())
        if calls:
            await asyncio.wait(
                [asyncio.create_task(call.wait_over()) for call in calls], timeout=_END_TIMEOUT_S
            )
        if self._waking is not None:
            self._waking.cancel()
        await self.sockets.aclose()

    # SipEndpointUser

    def admit(self, request: SipRequest, flow: SipFlow) -> RequestVerdict:
        """Say what becomes of a request that begins something."""
        admission, self._origin = self._admission.admit(request, flow)
        if admission is RequestVerdict.ADMITTED:
            self.sockets.identify(flow)
        return admission

    def challenges(self, request: SipRequest) -> list[str]:
        """Return the values of WWW-Authenticate for a request."""
        return self._admission.challenges(request)

    def on_call(self, session: IncomingSession) -> None:
        """Answer a call."""
        origin = self._origin
        try:
            call = self._open(session, origin)
        except SipRejected as error:
            warning = ("warning", f'399 vivavoce "{error.reason}"')
            session.reject(error.status, warning, reason=error.reason)
            logger.warning("Call from %s over SIP refused: %s", session.dialog.flow.host, error.reason)
        except Overloaded as error:  # logged by the registry
            session.reject(503, ("retry-after", str(round(error.retry_after_s))))
        except OSError as error:
            session.reject(500)
            logger.error("Call from %s over SIP failed: %s", session.dialog.flow.host, error)
        else:
            self._note(call)

    def on_register(self, transaction: ServerTransaction) -> None:
        """Register a phone that has a password."""
        if self._origin.user:
            self.registrar.register(transaction, self._origin.user)
        else:
            transaction.respond(transaction.request.response(403, to_tag=new_tag()))

    # SipCallHost

    def on_answered(self, call: SipCall) -> None:
        """Note that an outgoing call is answered, and costs from now on."""
        self.dialer.guard.answer(call.call_id)

    def on_over(self, call: SipCall) -> None:
        """Forget a call, and end the one that it was joined with."""
        self._calls.pop(call.call_id, None)
        self.dialer.guard.end(call.call_id, was_answered=call.was_answered)
        if call.joined is not None:
            joined, _ = call.joined
            joined.close()
            for other in tuple(self._calls.values()):
                if other.joined is not None and other.joined[0] is joined:
                    other.session.hang_up("the other caller hung up")

    def find(self, call_id: str) -> SipCall | None:
        """Return a call that is up."""
        return self._calls.get(call_id)

    def join(self, first: SipCall, second: SipCall) -> None:
        """Let two callers hear each other, and end the second call; the first one's end follows."""
        assert first.call is not None and second.call is not None
        both = (first, second)

        def end() -> None:
            for call in both:
                call.session.hang_up("internal error")

        joined = open_joined(first.take_media(), second.take_media(), self._clock, end)
        for number, call in enumerate(both):
            call.joined = (joined, number)
        second.call.end.hang_up(f"joined with {first.call_id}")

    def hide(self, call: Call) -> None:
        """Keep programs that wait for the next call from one that is for an announcement."""
        self.registry.get(call.call_id).attached = True

    def _note(self, call: SipCall) -> None:
        self._calls[call.call_id] = call

    def on_refer(self, call: SipCall, target: NameAddress) -> int:
        """Refuse a peer that wants the agent to go on with another one: a call keeps its peer."""
        return 603

    # Calls

    def _open(self, session: IncomingSession, origin: SipOrigin) -> SipCall:
        """Return a call whose INVITE is answered; raises SipRejected, Overloaded and OSError."""
        request, flow = session.request, session.dialog.flow
        transfers = SipTransfers(self)
        caller = caller_of(request, origin)
        reservation = self._rtp.reserve(f"{flow.host}:{flow.address[1]}", caller=caller, transfers=transfers)
        try:
            address = (self._media_host(flow), reservation.address[1])
            media = MediaNegotiation(self._policies[origin.trunk], address, flow.host)
            agent = self._agents.get(origin.trunk)
            call = SipCall(self, session, self._rtp, reservation, media, agent=agent)
            session.listener = transfers.sip_call = call
            if request.body:
                answer = media.answer(request.body)
                call.open_media()
            else:
                answer = media.offer(is_secure=flow.transport == "tls")
        except (SipRejected, OSError) as error:
            self._rtp.cancel(reservation, str(error))
            raise
        session.answer(answer)
        return call

    def _media_host(self, flow: SipFlow) -> str:
        return self._local(flow)[0]

    # Sockets and timers

    def _receive(self, message: bytes, flow: SipFlow) -> None:
        try:
            problem = self.endpoint.receive(message, flow)
        except Exception:  # boundary: a fault in one message must not end the others
            logger.exception("A message of SIP from %s failed", flow.host)
            return
        if problem:
            logger.debug("SIP: a message from %s is ignored: %s", flow.host, problem)

    def _lose(self, flow: SipFlow) -> None:
        self.endpoint.lose(flow)

    def _local(self, flow: SipFlow) -> tuple[str, int]:
        # Without a port of ours for TLS, a trunk reaches us by the connection that we made.
        port = self.sockets.port
        if flow.transport == "tls" and self.sockets.tls_port:
            port = self.sockets.tls_port
        return self._public_host or local_host(self._host, flow.host), port

    def _wake(self, at: float) -> None:
        if self._waking is not None:
            self._waking.cancel()
        self._waking = asyncio.get_running_loop().call_later(max(0.0, at - time.monotonic()), self._advance)

    def _advance(self) -> None:
        self._waking = None
        try:
            self.timers.advance()
        except Exception:  # boundary: a fault of one call must not end the timers of the others
            logger.exception("A timer of SIP failed")
        if (at := self.timers.next_at) is not None:
            self._wake(at)


def caller_of(request: SipRequest, origin: SipOrigin) -> Caller:
    """Return the caller as a request names it; P-Asserted-Identity counts if a trunk says it."""
    value = request.headers.get("from")
    if origin.trunk and (asserted := request.headers.values("p-asserted-identity")):
        value = asserted[0]
    variables = {"trunk": origin.trunk} if origin.trunk else {}
    if origin.user:
        variables["user"] = origin.user
    try:
        caller = NameAddress.parse(value)
        number = caller.sip_uri.number
    except SipSyntaxError:
        caller, number = request.from_, ""
    try:
        called = request.to.sip_uri.number
    except SipSyntaxError:
        called = ""
    return Caller(number, caller.display_name, called, variables)


def local_host(bound: str, peer: str) -> str:
    """Return the address of this machine that a peer sees."""
    try:
        if not ipaddress.ip_address(bound).is_unspecified:
            return bound
    except ValueError:
        pass
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))  # sends nothing
        return str(probe.getsockname()[0])
