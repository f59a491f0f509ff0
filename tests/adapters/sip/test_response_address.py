"""Where responses go over UDP, and what they say of the address that the request came from."""

import pytest

from shared.sip.network import SipNetwork, SipPeer
from vivavoce.adapters.sip.endpoint import RequestVerdict, SipEndpoint
from vivavoce.adapters.sip.headers import Via
from vivavoce.adapters.sip.message import SipHeaders, SipRequest, SipResponse, parse_message
from vivavoce.adapters.sip.transactions import SipFlow

CAME_FROM = SipFlow("udp", ("198.51.100.7", 40_000))  # a router, behind which the phone is


@pytest.mark.parametrize("is_admitted", [True, False])  # a challenge has no transaction
@pytest.mark.parametrize(
    ("sent_by", "port", "parameters"),
    [
        ("192.168.1.7:5070;rport", 40_000, {"rport": "40000", "received": "198.51.100.7"}),
        ("198.51.100.7:5070;rport", 40_000, {"rport": "40000", "received": "198.51.100.7"}),
        ("192.168.1.7:5070", 5070, {"received": "198.51.100.7"}),
        ("192.168.1.7", 5060, {"received": "198.51.100.7"}),
        ("198.51.100.7:5070", 5070, {}),
    ],
)
def test_a_response_goes_to_the_port_that_the_via_wants(
    sent_by: str, port: int, parameters: dict[str, str], is_admitted: bool
) -> None:
    network = SipNetwork()
    user = SipPeer(network, "10.0.0.1")
    user.admission = RequestVerdict.ADMITTED if is_admitted else RequestVerdict.CHALLENGE
    sent: list[tuple[bytes, SipFlow]] = []
    endpoint = SipEndpoint(
        user, lambda data, flow: sent.append((data, flow)), lambda flow: ("10.0.0.1", 5060), network.timers
    )
    pairs = (
        ("via", f"SIP/2.0/UDP {sent_by};branch=z9hG4bK1"),
        ("from", "<sip:anna@10.0.0.1>;tag=1"),
        ("to", "<sip:anna@10.0.0.1>"),
        ("call-id", "1"),
        ("cseq", "1 OPTIONS"),
    )
    endpoint.receive(bytes(SipRequest("OPTIONS", "sip:10.0.0.1", SipHeaders(pairs))), CAME_FROM)
    ((data, flow),) = sent
    assert flow == SipFlow("udp", ("198.51.100.7", port))
    response = parse_message(data)
    assert isinstance(response, SipResponse)
    assert response.status == (200 if is_admitted else 401)
    via = Via.parse(response.headers.get("via"))
    assert dict(via.parameters) == {"branch": "z9hG4bK1", **parameters}
