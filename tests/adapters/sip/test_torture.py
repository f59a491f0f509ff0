"""The 49 messages of RFC 4475: each is answered as it says, or dropped, and none raises.

``rfc4475.json`` has their text, by the names of the RFC; each character is a byte.
"""

import json
from pathlib import Path

import pytest

from shared.sip.network import SipNetwork, SipPeer
from vivavoce.adapters.sip.headers import unescape
from vivavoce.adapters.sip.transactions import SipFlow
from vivavoce.gateway.calls.ways_in.sip.registrar import SipRegistrar

MESSAGES = json.loads((Path(__file__).parent / "rfc4475.json").read_text(encoding="ascii"))
# By what is allowed: statuses, of which the last response has one; none: no response.
ANSWERS: dict[tuple[int, ...], str] = {
    (
        200,
    ): "esc01 escnull lwsdisp longreq dblreq semiuri transports badbranch inv2543 cparam01 cparam02 regescrt",
    (481,): "wsinv",  # its To has the tag of a dialog
    (501,): "intmeth esc02",
    (405,): "mpart01",  # MESSAGE
    (): "unreason noreason scalarlg bigcode bcast",  # responses
    (400,): "badinv01 clerr ncl scalar02 quotbal ltgtruri lwsruri insuf multi01 mcl01 mismatch01",
    (400, 200): "lwsstart trws escruri baddate regbadct badaspec baddn",  # "should" or "may"
    (400, 501): "mismatch02",
    (400, 404): "unksm2",
    (505,): "badvers",
    (416,): "unkscm novelsc",
    (420,): "bext01",
    (415,): "invut",
    (401,): "regaut01",
    (200, 483): "zeromf",
    (400, 406): "sdp01",
}
CASES = [(name, allowed) for allowed, names in ANSWERS.items() for name in names.split()]


def test_every_message_has_an_answer_here() -> None:
    assert sorted(name for name, _ in CASES) == sorted(MESSAGES)
    assert len(MESSAGES) == 49


@pytest.mark.parametrize(("name", "allowed"), CASES)
def test_a_message_is_answered_as_the_rfc_says(name: str, allowed: tuple[int, ...]) -> None:
    network = SipNetwork()
    peer = SipPeer(network, "10.0.0.1", passwords={"user": "secret"} if name == "regaut01" else None)
    registrar = SipRegistrar(now=lambda: network.now)
    peer.on_register = lambda transaction: registrar.register(  # type: ignore[method-assign]
        transaction, _user_of(transaction.request.headers.get("to"))
    )
    peer.receive(MESSAGES[name].encode("latin-1"), SipFlow("udp", ("192.0.2.1", 5060)))
    network.run(0.1)
    statuses = [int(status) for status in network.names(peer.host)]
    assert (statuses[-1] in allowed) if allowed else statuses == []


def _user_of(address: str) -> str:
    user = address.partition("sip:")[2].partition("@")[0]
    return unescape(user)
