"""A network of SIP endpoints in virtual time: messages arrive 10 ms later, or are lost as a test says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from vivavoce.adapters.sip.dialog import new_tag
from vivavoce.adapters.sip.digest import Credentials, DigestChallenger
from vivavoce.adapters.sip.endpoint import RequestVerdict, SipEndpoint
from vivavoce.adapters.sip.headers import NameAddress, SipUri
from vivavoce.adapters.sip.incoming import IncomingSession
from vivavoce.adapters.sip.message import SipMessage, SipProtocolError, SipRequest, parse_message
from vivavoce.adapters.sip.outgoing import OutgoingInvite, OutgoingSession
from vivavoce.adapters.sip.session import SipRejected, SipSession
from vivavoce.adapters.sip.timers import TimerQueue
from vivavoce.adapters.sip.transactions import ServerTransaction, SipFlow

DELAY_S = 0.01
OFFER = b"v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=-\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n"
ANSWER = OFFER.replace(b"10.0.0.1", b"10.0.0.2")


@dataclass
class Sent:
    """A message on the network."""

    at: float
    source: str
    message: SipMessage | None  # None: an answer to a request that is wrong, which it repeats
    data: bytes

    @property
    def name(self) -> str:
        """Method or status."""
        first, second = self.data.split(b" ", 2)[:2]
        return (second if first == b"SIP/2.0" else first).decode("utf-8", "replace")


class SipNetwork:
    """The endpoints of a test, the clock of all, and what was sent."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers = TimerQueue(lambda: self.now)
        self.sent: list[Sent] = []
        self.loses: Callable[[Sent], bool] = lambda sent: False
        self._peers: dict[str, SipPeer] = {}

    def add(self, peer: "SipPeer") -> None:
        self._peers[peer.host] = peer

    def send(self, data: bytes, flow: SipFlow, source: str) -> None:
        try:
            message = parse_message(data)
        except SipProtocolError:
            message = None
        sent = Sent(self.now, source, message, data)
        self.sent.append(sent)
        if not self.loses(sent) and flow.host in self._peers:
            receiver = self._peers[flow.host]
            came_by = SipFlow(flow.transport, (source, 5060))
            self.timers.set(DELAY_S, partial(receiver.take, data, came_by))

    def run(self, seconds: float = 1.0) -> None:
        """Let so much time pass, one event after another."""
        until = self.now + seconds
        while (at := self.timers.next_at) is not None and at <= until:
            self.now = max(self.now, at)
            self.timers.advance()
        self.now = until

    def names(self, source: str = "") -> list[str]:
        """Methods and statuses that were sent, by one peer or by all."""
        return [sent.name for sent in self.sent if source in ("", sent.source)]


@dataclass
class RecordingListener:
    """Answers every offer, and notes what happens."""

    answer: bytes = ANSWER
    refuses: int = 0  # offers, with this status
    takes_refer: int = 202
    events: list[tuple[str, object]] = field(default_factory=list)

    def on_progress(self, status: int, description: bytes) -> None:
        self.events.append(("progress", status))

    def on_answered(self, description: bytes) -> None:
        self.events.append(("answered", description))

    def on_confirmed(self, description: bytes) -> None:
        self.events.append(("confirmed", description))

    def on_offer(self, offer: bytes) -> bytes:
        self.events.append(("offer", offer))
        if self.refuses:
            raise SipRejected(self.refuses, "not now")
        return self.answer

    def on_key(self, digit: str) -> None:
        self.events.append(("key", digit))

    def on_refer(self, target: NameAddress) -> int:
        self.events.append(("refer", target.uri))
        return self.takes_refer

    def on_transfer(self, status: int, reason: str) -> None:
        self.events.append(("transfer", status))

    def on_ended(self, status: int, reason: str) -> None:
        self.events.append(("ended", status))

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def last(self, name: str) -> object:
        return next(value for each, value in reversed(self.events) if each == name)


class SipPeer:
    """An endpoint of the network, which admits all, or those with a password."""

    def __init__(self, network: SipNetwork, host: str, *, passwords: dict[str, str] | None = None) -> None:
        self.host = host
        self.network = network
        self.calls: list[IncomingSession] = []
        self.registers: list[ServerTransaction] = []
        self.answers_calls = True
        self.make_listener: Callable[[], RecordingListener] = RecordingListener
        self.admission = RequestVerdict.ADMITTED
        self.is_proxy = False  # challenges with 407
        self._challenger = DigestChallenger("test", (passwords or {}).get)
        self._passwords = passwords
        self.endpoint = SipEndpoint(self, self._send, lambda flow: (host, 5060), network.timers)
        network.add(self)

    def _send(self, data: bytes, flow: SipFlow) -> None:
        if self.is_proxy:
            data = data.replace(b"SIP/2.0 401 Unauthorized", b"SIP/2.0 407 Proxy Authentication Required")
            data = data.replace(b"WWW-Authenticate", b"Proxy-Authenticate")
        self.network.send(data, flow, self.host)

    def receive(self, data: bytes, flow: SipFlow) -> str:
        if self.is_proxy:
            data = data.replace(b"\r\nAuthorization", b"\r\nX-Authorization")
            data = data.replace(b"\r\nProxy-Authorization", b"\r\nAuthorization")
        return self.endpoint.receive(data, flow)

    def take(self, data: bytes, flow: SipFlow) -> None:
        self.receive(data, flow)

    def flow_to(self, other: "SipPeer", transport: str = "udp") -> SipFlow:
        return SipFlow(transport, (other.host, 5060))

    def admit(self, request: SipRequest, flow: SipFlow) -> RequestVerdict:
        if self._passwords is None:
            return self.admission
        user = self._challenger.verify(request, self.network.now)
        return RequestVerdict.ADMITTED if user else RequestVerdict.CHALLENGE

    def challenges(self, request: SipRequest) -> list[str]:
        return self._challenger.challenges(request, self.network.now)

    def on_call(self, session: IncomingSession) -> None:
        self.calls.append(session)
        session.listener = self.make_listener()
        if self.answers_calls:
            session.answer(ANSWER if session.request.body else OFFER)

    def on_register(self, transaction: ServerTransaction) -> None:
        self.registers.append(transaction)
        transaction.respond(transaction.request.response(200, to_tag=new_tag()))

    def call(
        self,
        other: "SipPeer",
        *,
        credentials: Credentials | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        description: bytes = OFFER,
        user: str = "bob",
        interval_s: int = 1800,
        transport: str = "udp",
        max_ring_s: float = 10.0**9,
    ) -> OutgoingSession:
        """Call another peer; the listener is a RecordingListener."""
        target = SipUri(other.host, user)
        flow = self.flow_to(other, transport)

        def make(contact: SipUri, call_id: str, tag: str) -> OutgoingInvite:
            return OutgoingInvite(
                target=target,
                caller=NameAddress(f"sip:alice@{self.host}"),
                contact=contact,
                flow=flow,
                description=description,
                headers=headers,
                call_id=call_id,
                tag=tag,
                interval_s=interval_s,
            )

        session = self.endpoint.call(make, flow, credentials, "alice")
        session.listener = RecordingListener()
        session.start(max_ring_s=max_ring_s)
        return session


def two_peers() -> tuple[SipNetwork, SipPeer, SipPeer]:
    """A network, and two peers on it."""
    network = SipNetwork()
    return network, SipPeer(network, "10.0.0.1"), SipPeer(network, "10.0.0.2")


def listener_of(session: SipSession) -> RecordingListener:
    """The listener of a session of a peer."""
    assert isinstance(session.listener, RecordingListener)
    return session.listener
