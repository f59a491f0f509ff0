"""SIP as a way in."""

from .....adapters.rtp.wire import RtpOpening
from ....access.networks import AddressSet
from ...kits.rtp_calls import RtpCallServer, RtpCallSettings
from ..way_in import CallHost, OpenWayIn, WayIn
from .admission import SipAdmission
from .media import MediaPolicy
from .server import SipCallServer
from .settings import SipMediaTable


async def _open(host: CallHost) -> OpenWayIn:
    sip, settings = host.settings.sip, host.settings
    if not sip.is_on:
        return OpenWayIn()
    policy = RtpCallSettings(
        kind="sip",
        host=sip.host,
        ports=settings.rtp.ports,
        first_packet_s=0.0,
        silent_s=settings.calls.silent_s,
        call=host.call_settings,
    )
    rtp = RtpCallServer(media=host.media, services=host.services, agent=host.agents.phone, policy=policy)
    passwords = {user: password.get_secret_value() for user, password in sip.users.items()}
    admission = SipAdmission(lambda request, flow: "", AddressSet.parse(sip.peers), passwords)
    media = sip.media or SipMediaTable()
    policies = {"": MediaPolicy(media.codecs, media.srtp, AddressSet.parse(media.networks))}
    server = SipCallServer(rtp, admission, policies, {}, public_host=sip.public_host or "")
    await server.open(sip.host, sip.port, None)
    return OpenWayIn(server)


SIP = WayIn("sip", _open, wire=RtpOpening)
