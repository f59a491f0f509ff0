"""SIP as a way in: its server, by the server's settings."""

import ssl
from functools import partial
from typing import Final

from .....adapters.rtp.wire import RtpOpening
from .....adapters.sip.message import SipRequest
from .....adapters.sip.transactions import SipFlow
from .....tts_engine.errors import BadRequest
from ....access.networks import AddressSet
from ....web.openapi.operations import json_response
from ...agents.agent import Agent
from ...api.placed_calls import PlacedCalls
from ...call_options import SILENT_S
from ...kits.rtp_calls import RtpCallServer, RtpCallSettings
from ..way_in import CallHost, OpenWayIn, WayIn
from .admission import SipAdmission
from .media import MediaPolicy
from .outgoing.cost_guard import CostGuard
from .placed_calls import PlacedSipCall, SipCallRequest, place_call
from .server import SipCallServer
from .settings import SipMediaTable, SipOutgoingTable, SipTable, SipTlsTable

_PORT: Final = 5060  # of a trunk alone


async def _open(host: CallHost) -> OpenWayIn:
    sip = host.settings.sip
    if not sip.is_on:
        return OpenWayIn(place_call=partial(place_call, None))
    server = _make_server(host, sip)
    tls = None if sip.tls is None else (sip.tls.port, _server_tls(sip.tls))
    await server.open(sip.host, _PORT if sip.port is None else sip.port, tls)
    return OpenWayIn(server, place_call=partial(place_call, server))


def _make_server(host: CallHost, sip: SipTable) -> SipCallServer:
    policy = RtpCallSettings(
        kind="sip",
        host=sip.host,
        ports=host.settings.rtp.ports,
        first_packet_s=0.0,
        silent_s=SILENT_S,
        call=host.call_settings,
    )
    rtp = RtpCallServer(media=host.media, services=host.services, agent=host.agents.phone, policy=policy)
    outgoing = sip.outgoing or SipOutgoingTable()
    guard = CostGuard(outgoing.destinations, outgoing.max_calls, outgoing.minutes_per_day)

    def find_trunk(request: SipRequest, flow: SipFlow) -> str:
        return server.find_trunk(request, flow)

    passwords = {user: password.get_secret_value() for user, password in sip.users.items()}
    server = SipCallServer(
        rtp,
        SipAdmission(find_trunk, AddressSet.parse(sip.peers), passwords),
        _policies(sip),
        _agents(sip, host),
        guard,
        host.services.registry,
        host.clock,
        public_host=sip.public_host or "",
        client_tls=partial(_client_tls, sip),
    )
    for name, trunk in sip.trunks.items():
        server.add_trunk(name, trunk)
    return server


def _policies(sip: SipTable) -> dict[str, MediaPolicy]:
    media = sip.media or SipMediaTable()
    policies = {"": MediaPolicy(media.codecs, media.srtp, AddressSet.parse(media.networks))}
    for name, trunk in sip.trunks.items():
        policies[name] = MediaPolicy(trunk.codecs, trunk.srtp, AddressSet.parse(trunk.media_networks))
    return policies


def _agents(sip: SipTable, host: CallHost) -> dict[str, Agent]:
    agents = {}
    for name, trunk in sip.trunks.items():
        if trunk.agent:
            if trunk.agent not in host.agents.named:
                raise BadRequest(f"sip trunk {name}: agent: no agent {trunk.agent!r} is configured")
            agents[name] = host.agents.named[trunk.agent]
    return agents


def _server_tls(table: SipTlsTable) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(table.certificate, table.key)
    except (OSError, ssl.SSLError) as error:
        raise BadRequest(f"sip.tls: the certificate {table.certificate} cannot be read: {error}") from None
    return context


def _client_tls(sip: SipTable) -> ssl.SSLContext:
    """Return what checks the certificates of servers: those of trunks, beside the system's authorities."""
    context = ssl.create_default_context()
    for trunk in sip.trunks.values():
        if trunk.authorities is not None:
            context.load_verify_locations(trunk.authorities)
    return context


SIP = WayIn(
    "sip",
    _open,
    wire=RtpOpening,
    placed_calls=PlacedCalls(
        SipCallRequest,
        json_response(PlacedSipCall, 202, "Asterisk, or the gateway over SIP, makes the call."),
    ),
)
