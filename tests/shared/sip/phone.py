"""A SIP phone on loopback for tests: signalling over UDP, TCP or TLS, and RTP beside it."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from shared.calls.rtp_phone import RtpTestPhone
from shared.sip.network import RecordingListener
from vivavoce.adapters.sip.dialog import new_tag
from vivavoce.adapters.sip.digest import Credentials
from vivavoce.adapters.sip.endpoint import RequestVerdict, SipEndpoint
from vivavoce.adapters.sip.headers import NameAddress, SipUri
from vivavoce.adapters.sip.incoming import IncomingSession
from vivavoce.adapters.sip.message import SipHeaders, SipRequest, SipResponse
from vivavoce.adapters.sip.outgoing import OutgoingInvite, OutgoingSession
from vivavoce.adapters.sip.requests import ChallengedRequest
from vivavoce.adapters.sip.timers import TimerQueue
from vivavoce.adapters.sip.transactions import ServerTransaction, SipFlow, new_branch
from vivavoce.gateway.calls.ways_in.sip.sockets import SipSockets


class SipTestPhone:
    """One phone. ``takes`` says what becomes of calls that come in."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.rtp = RtpTestPhone()
        self.calls: list[IncomingSession] = []
        self.takes: Callable[[IncomingSession], None] = self.answer
        self.sockets = SipSockets(self._receive, self._lose, lambda: tls or ssl.create_default_context(), {})
        self.timers = TimerQueue(time.monotonic)
        self.endpoint = SipEndpoint(self, self.sockets.send, self._local, self.timers)
        self.registered: list[SipRequest] = []
        self._ticking = asyncio.create_task(self._tick())

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.sockets.port

    def describe(self, *lines: str, codecs: str = "0 101") -> bytes:
        """A description of the phone's audio."""
        host, port = self.rtp.address
        head = ["v=0", f"o=- 1 1 IN IP4 {host}", "s=-", f"c=IN IP4 {host}", "t=0 0"]
        head.append(f"m=audio {port} RTP/AVP {codecs}")
        return "\r\n".join([*head, "a=rtpmap:101 telephone-event/8000", *lines, ""]).encode()

    def answer(self, session: IncomingSession) -> None:
        session.answer(self.describe())

    def call(
        self,
        port: int,
        *,
        user: str = "100",
        description: bytes | None = None,
        credentials: Credentials | None = None,
        transport: str = "udp",
        caller: str = "sip:anna@127.0.0.1",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> OutgoingSession:
        flow = SipFlow(transport, ("127.0.0.1", port))

        def make(contact: SipUri, call_id: str, tag: str) -> OutgoingInvite:
            return OutgoingInvite(
                target=SipUri("127.0.0.1", user, port),
                caller=NameAddress(caller, "Anna Example"),
                contact=contact,
                flow=flow,
                description=self.describe() if description is None else description,
                headers=headers,
                call_id=call_id,
                tag=tag,
            )

        session = self.endpoint.call(make, flow, credentials, "anna")
        session.listener = RecordingListener(self.describe())
        session.start()
        return session

    async def register(self, port: int, user: str = "anna", password: str = "secret") -> None:
        """Register for ten minutes."""
        contact = (
            "contact",
            f"<{self.endpoint.contact(SipFlow('udp', ('127.0.0.1', port)), user)}>;expires=600",
        )
        response = await self.request("REGISTER", port, contact, user=user, password=password)
        assert response.status == 200, response

    async def request(
        self, method: str, port: int, *headers: tuple[str, str], user: str = "", password: str = ""
    ) -> SipResponse:
        """Send a request outside of calls; raises TimeoutError if it is not answered."""
        flow = SipFlow("udp", ("127.0.0.1", port))
        answered: asyncio.Future[SipResponse] = asyncio.get_running_loop().create_future()
        call_id, numbers = new_tag(), iter(range(1, 9))

        def make(more: tuple[tuple[str, str], ...]) -> SipRequest:
            pairs = (
                ("via", f"SIP/2.0/UDP {self.endpoint.sent_by(flow)};rport;branch={new_branch()}"),
                ("from", f"<sip:{user or 'anna'}@127.0.0.1>;tag=1"),
                ("to", f"<sip:{user or 'anna'}@127.0.0.1>"),
                ("call-id", call_id),
                ("cseq", f"{next(numbers)} {method}"),
                *(headers or [("contact", f"<{self.endpoint.contact(flow, user)}>")]),
                *more,
            )
            return SipRequest(method, f"sip:127.0.0.1:{port}", SipHeaders(pairs))

        def take(request: SipRequest, response: SipResponse) -> None:
            if response.status >= 200 and not answered.done():
                answered.set_result(response)

        credentials = Credentials(user, password) if password else None
        ChallengedRequest(self.endpoint, make, flow, credentials, take, lambda reason: None)
        async with asyncio.timeout(15):
            return await answered

    async def _tick(self) -> None:
        while True:
            self.timers.advance()
            await asyncio.sleep(0.01)

    def _receive(self, message: bytes, flow: SipFlow) -> None:
        self.endpoint.receive(message, flow)

    def _lose(self, flow: SipFlow) -> None:
        self.endpoint.lose(flow)

    def _local(self, flow: SipFlow) -> tuple[str, int]:
        return self.address

    def admit(self, request: SipRequest, flow: SipFlow) -> RequestVerdict:
        return RequestVerdict.ADMITTED

    def challenges(self, request: SipRequest) -> list[str]:
        return []

    def on_call(self, session: IncomingSession) -> None:
        self.calls.append(session)
        session.listener = RecordingListener(self.describe())
        self.takes(session)

    def on_register(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        self.registered.append(request)
        contact = request.headers.get("contact")
        transaction.respond(request.response(200, ("contact", contact), to_tag=new_tag()))


@asynccontextmanager
async def sip_phone(
    tls: ssl.SSLContext | None = None, *, server_tls: ssl.SSLContext | None = None
) -> AsyncIterator[SipTestPhone]:
    """A phone that is on. tls: of connections from it; server_tls: of those to it."""
    phone = SipTestPhone(tls)
    await phone.sockets.open("127.0.0.1", 0, None if server_tls is None else (0, server_tls))
    try:
        yield phone
    finally:
        phone._ticking.cancel()
        await phone.sockets.aclose()
        await asyncio.to_thread(phone.rtp.close)


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
