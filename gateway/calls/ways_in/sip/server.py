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

from .....adapters.sip.endpoint import RequestVerdict, SipEndpoint
from .....adapters.sip.headers import NameAddress, SipSyntaxError
from .....adapters.sip.incoming import IncomingSession
from .....adapters.sip.message import SipRequest
from .....adapters.sip.session import SipRejected
from .....adapters.sip.timers import TimerQueue
from .....adapters.sip.transactions import ServerTransaction, SipFlow
from .....tts_engine.errors import Overloaded
from ...agents import Agent
from ...caller import Caller
from ...kits.rtp_calls import RtpCallServer
from .admission import SipAdmission, SipOrigin
from .media import MediaNegotiation, MediaPolicy
from .sip_call import SipCall
from .sockets import SipSockets

logger = logging.getLogger(__name__)

_END_TIMEOUT_S: Final = 2.0  # for BYE to be answered


class SipCallServer:
    """Answers and makes calls over SIP.

    Args:
        public_host: address that peers are told; "": that of the socket which they reach.
        policies: of media, by the name of the trunk; "" for all others.
        agents: by the name of the trunk.
    """

    def __init__(
        self,
        rtp: RtpCallServer,
        admission: SipAdmission,
        policies: Mapping[str, MediaPolicy],
        agents: Mapping[str, Agent],
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
        self._host = ""
        self._origin = SipOrigin()  # of the request that was admitted last
        self._calls: dict[str, SipCall] = {}
        self._waking: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int, tls: "tuple[int, ssl.SSLContext] | None") -> None:
        """Listen; raises AddressUnavailable."""
        self._host = host
        await self.sockets.open(host, port, tls)
        logger.info(
            "SIP on %s:%d%s", host, self.sockets.port, f", TLS on {self.sockets.tls_port}" if tls else ""
        )

    async def aclose(self) -> None:
        """End every call, and close the sockets."""
        await self._rtp.aclose()
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

    def challenges(self) -> list[str]:
        """Return the values of WWW-Authenticate."""
        return self._admission.challenges()

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
            self._calls[call.call_id] = call

    def on_register(self, transaction: ServerTransaction) -> None:
        """Refuse a registration: there is no registrar."""
        transaction.respond(transaction.request.response(405))

    # SipCallHost

    def on_over(self, call: SipCall) -> None:
        """Forget a call."""
        self._calls.pop(call.call_id, None)

    def on_refer(self, call: SipCall, target: NameAddress) -> int:
        """Refuse a peer that wants its call transferred: calls are made by programs only."""
        return 603

    # Calls

    def _open(self, session: IncomingSession, origin: SipOrigin) -> SipCall:
        """Return a call whose INVITE is answered; raises SipRejected, Overloaded and OSError."""
        request, flow = session.request, session.dialog.flow
        reservation = self._rtp.reserve(f"{flow.host}:{flow.address[1]}", caller=caller_of(request, origin))
        try:
            address = (self._media_host(flow), reservation.address[1])
            media = MediaNegotiation(self._policies[origin.trunk], address, flow.host)
            agent = self._agents.get(origin.trunk)
            call = SipCall(self, session, self._rtp, reservation, media, agent=agent)
            session.listener = call
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
        port = self.sockets.tls_port if flow.transport == "tls" else self.sockets.port
        return self._public_host or local_host(self._host, flow.host), port

    def _wake(self, at: float) -> None:
        if self._waking is not None:
            self._waking.cancel()
        self._waking = asyncio.get_running_loop().call_later(max(0.0, at - time.monotonic()), self._advance)

    def _advance(self) -> None:
        self._waking = None
        try:
            self.timers.advance()
        except Exception:  # boundary
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
