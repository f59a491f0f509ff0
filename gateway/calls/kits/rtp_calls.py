"""RTP calls of the gateway: a UDP port for each, with an agent that speaks there.

Nobody dials an RTP port: a program or a telephone system asks for one first, over the calls API or by the ARI
controller (``ari``). A media server takes the socket, and the call is a ``Call`` in the registry.

    reserve --> the peer is told the port --> open --> call
        '-> cancel
"""

import errno
import logging
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from ....adapters.media.phone_media import PhoneCallOptions, PhoneMedia
from ....adapters.rtp.connection import RtpOptions
from ....adapters.rtp.source_lock import Address
from ....adapters.rtp.wire import RtpOpening
from ....adapters.udp_ports import MAX_PORT, MediaPorts
from ....tts_engine.errors import Overloaded
from ...access.access_control import Grant
from ..agents.agent import Agent
from ..call import Call
from ..call_options import NO_OWNER, UNKNOWN_CALLER, Caller, CallOwner, CallSettings
from ..transfers import CallTransfers
from ..ways_in.way_in import CallServices
from .leg_call import LegGroup
from .phone_leg import PhoneLeg, end_phone_legs

logger = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 5.0
_MAX_ATTEMPTS: Final = 100  # to get an even port from the system; each second one is


class RtpPortsExhausted(Overloaded):
    """Every port of the range is in use."""


@dataclass(frozen=True, slots=True)
class RtpCallSettings:
    """Settings of the gateway's RTP calls."""

    kind: str  # of the calls, as ``ActiveCall.kind``
    host: str  # address of the ports
    ports: MediaPorts | None  # None: any that the system chooses
    first_packet_s: float  # until the first packet of a peer that nobody named
    # Without any packet of the caller, if no other sign tells that the peer is gone; None: one does.
    silent_s: float | None
    call: CallSettings
    stalled_s: float = 10.0  # a conversation does not survive a longer interruption of the network


@dataclass(frozen=True, slots=True, eq=False)
class RtpReservation:
    """A port for a call that is admitted and not open yet."""

    leg: PhoneLeg
    sock: socket.socket

    @property
    def address(self) -> Address:
        """The port for packets; reports go to the next one."""
        host, port, *_ = self.sock.getsockname()
        return host, port


class RtpCallServer:
    """Opens RTP calls."""

    def __init__(
        self, *, media: PhoneMedia, services: CallServices, agent: Agent, policy: RtpCallSettings
    ) -> None:
        self._media = media
        self._services = services
        self._agent = agent
        self._policy = policy
        self._legs: LegGroup[PhoneLeg] = LegGroup()
        self._reservations: set[RtpReservation] = set()

    async def aclose(self) -> None:
        """End every call, and wait until its tasks have ended."""
        self._services.registry.refuse_calls()
        for reservation in tuple(self._reservations):
            self.cancel(reservation, "shutting down")
        await end_phone_legs(self._legs)

    def reserve(
        self,
        peer: str,
        *,
        caller: Caller = UNKNOWN_CALLER,
        transfers: CallTransfers | None = None,
        owner: CallOwner = NO_OWNER,
        grant: Grant | None = None,
    ) -> RtpReservation:
        """Admit a call and bind its port; ``open`` or ``cancel`` follows. Raises Overloaded.

        peer: for the log and the list of calls. transfers, owner: as those of ``PhoneLeg``. grant: as that of
        ``CallRegistry.admit``, and raises RateLimited as there.
        """
        registry, call = self._services.registry, self._policy.call
        leg = PhoneLeg(
            self._policy.kind,
            peer,
            caller,
            self._legs,
            self._services,
            call,
            transfers=transfers,
            owner=owner,
        )
        with ExitStack() as undo:
            registry.admit(leg, peer=peer, grant=grant)
            undo.callback(registry.remove, leg, "no port")
            reservation = RtpReservation(leg, bind_rtp_socket(self._policy.host, self._policy.ports))
            undo.pop_all()
        self._reservations.add(reservation)
        return reservation

    def cancel(self, reservation: RtpReservation, reason: str) -> None:
        """Give a port back; does nothing once its call is open."""
        if reservation not in self._reservations:
            return
        self._reservations.remove(reservation)
        self._services.registry.remove(reservation.leg, reason)
        reservation.sock.close()

    def open(
        self,
        reservation: RtpReservation,
        options: RtpOptions,
        *,
        call_id: str = "",
        agent: Agent | None = None,
        may_be_silent: bool = False,
    ) -> Call:
        """Open the call on a reserved port; raises OSError, after which the port is given back.

        call_id: a new one if it is "". agent: instead of that of all calls. may_be_silent: another sign
        tells the end of the call, so that a peer that sends nothing is not taken for gone.
        """
        policy, leg = self._policy, reservation.leg
        silent_s = None if may_be_silent else policy.silent_s
        phone = PhoneCallOptions(options.codec.sample_rate, policy.stalled_s, silent_s=silent_s)
        first_packet_s = policy.first_packet_s if options.peer is None else silent_s
        try:
            media = self._media.open_phone_call(
                RtpOpening(options, first_packet_s), reservation.sock, leg, phone
            )
        except OSError:
            self.cancel(reservation, "it could not be opened")
            raise
        self._reservations.discard(reservation)
        self._legs.add(leg)
        call = leg.open(call_id or str(uuid4()), media, agent or self._agent)
        if options.key_type is not None:
            call.key_sender = leg.send_keys
        return call

    def change(self, reservation: RtpReservation, options: RtpOptions) -> None:
        """Go on with other options: the peer moved, or changed its encoding; its rate stays."""
        reservation.leg.change_wire(RtpOpening(options, self._policy.silent_s))


def bind_rtp_socket(host: str, ports: MediaPorts | None) -> socket.socket:
    """Return a UDP socket on an even port, as RFC 3550, 11 asks for; raises RtpPortsExhausted, OSError."""
    candidates = [0] * _MAX_ATTEMPTS if ports is None else [port for port in ports.in_turn() if port % 2 == 0]
    found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    family, *_, (address, *_) = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    for port in candidates:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.bind((address, port))
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        if sock.getsockname()[1] % 2 == 0 and sock.getsockname()[1] < MAX_PORT:
            return sock
        sock.close()
    raise RtpPortsExhausted(
        f"all even UDP ports for RTP, {ports or 'of the system'}, are in use",
        reason="rtp_ports",
        retry_after_s=_RETRY_AFTER_S,
    )
