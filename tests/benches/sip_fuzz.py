"""Structured fuzz of the SIP core: messages of RFC 4475, of real calls and answers to calls of ours, broken.

``PYTHONPATH=tests python -m benches.sip_fuzz 1000000`` prints how many messages were tried, how many were
answered and what was raised, which must be nothing.
"""

import json
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from shared.sip.network import OFFER, SipNetwork, SipPeer
from vivavoce.adapters.sip.digest import Credentials
from vivavoce.adapters.sip.headers import SipUri
from vivavoce.adapters.sip.message import SipRequest
from vivavoce.adapters.sip.outgoing import OutgoingSession
from vivavoce.adapters.sip.transactions import SipFlow

TESTS = Path(__file__).parents[1]
_STEP: Final = 50_000
TOKENS: Final = (
    b"\r\n",
    b"\r\n\r\n",
    b"\n ",
    b"\x00",
    b"\xff\xfe",
    b'"',
    b"\\",
    b"<",
    b">",
    b"<>",
    b";",
    b";;",
    b",",
    b"=",
    b"@",
    b":",
    b"::",
    b"[",
    b"]",
    b"[::1]",
    b"%",
    b"%00",
    b"%zz",
    b"?",
    b"&",
    b"/",
    b"*",
    b"-1",
    b"0",
    b"4294967296",
    b"99999999999999999999",
    b"65536",
    b"SIP/2.0",
    b"sip:",
    b"sips:",
    b"tel:1",
    b"branch=",
    b"z9hG4bK",
    b"tag=",
    b"rport",
    b"received=",
    b"INVITE",
    b"ACK",
    b"CANCEL",
    b"BYE",
    b"PRACK",
    b"100rel",
    b"Via: ",
    b"v:",
    b"From: ",
    b"Contact: *",
    b"Content-Length: 0",
    b"l: 99999",
    b"CSeq: 1 INVITE",
    b"Session-Expires: 1",
    b"Replaces: a;to-tag=b;from-tag=c",
    b"Refer-To: <sip:x>",
    b"v=0",
    b"m=audio 0 RTP/AVP 0",
    b"c=IN IP4 x",
    b"a=rtpmap:0 x/0",
    b"a=crypto:1 x inline:x",
    b"\xe4\xb8\xad",
)


class SipFuzzer:
    """Sends broken messages to one endpoint, and now and then lets time pass.

    Args:
        seed: of what is broken.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = SipNetwork()
        self.bob = SipPeer(self.network, "10.0.0.2")
        self.seeds = [text.encode("latin-1") for text in _torture().values()] + self._call()
        self.faults: Counter[str] = Counter()
        self.answers = 0
        self._invite: SipRequest | None = None  # of the last call that the endpoint makes
        self._calls: tuple[OutgoingSession, ...] = ()

    def _call(self) -> list[bytes]:
        """Return every message of a call with changes, a transfer and a key."""
        alice = SipPeer(self.network, "10.0.0.1")
        session = alice.call(self.bob)
        self.network.run(0.5)
        session.offer(OFFER)
        session.send_key("5")
        self.bob.calls[0].refer("<sip:carol@10.0.0.3>")
        self.network.run(0.5)
        session.notify_transfer(200, "OK")
        session.refresh()
        self.network.run(0.5)
        session.hang_up()
        self.network.run(0.5)
        return [sent.data for sent in self.network.sent]

    def run(self, count: int) -> None:
        """Try so many messages."""
        for number in range(count):
            answers = self._answers() if number % 3 == 0 else self.seeds
            data = self._mutate(self.random.choice(answers))
            try:
                self.bob.receive(data, SipFlow("udp", ("10.0.0.1", 5060)))
                if number % 64 == 0:
                    self.network.run(self.random.choice((0.1, 1.0, 40.0)))
                    self.answers += len(self.network.sent)
                    self.network.sent.clear()
                    self.bob.calls.clear()
            except Exception:
                self.faults[traceback.format_exc(limit=-3)] += 1

    def _answers(self) -> list[bytes]:
        """Return what a peer may answer to a call that the endpoint makes."""
        if self._invite is None or self.random.random() < 0.01:
            session = self.bob.call(
                SipPeer(SipNetwork(), "10.0.0.9"), credentials=Credentials("bob", "secret")
            )
            session.on_redirect = lambda addresses: self._follow(session, addresses)
            (self._invite,) = [
                sent.message for sent in self.network.sent[-1:] if isinstance(sent.message, SipRequest)
            ]
            self._calls = (*self._calls[-8:], session)
        draw, invite = self.random, self._invite
        if invite.method != "INVITE":
            return self.seeds
        headers = (
            ("contact", "<sip:alice@10.0.0.1>;q=0.7, <sip:carol@10.0.0.3;transport=tcp>;q=0.9"),
            ("require", "100rel"),
            ("rseq", str(draw.randrange(4))),
            ("record-route", "<sip:10.0.0.7;lr>"),
            ("session-expires", "90;refresher=uas"),
            ("min-se", "2000"),
            ("www-authenticate", 'Digest realm="x", nonce="y", qop="auth", algorithm=SHA-256'),
            ("proxy-authenticate", 'Digest realm="x", nonce="z", stale=true'),
        )
        chosen = draw.sample(headers, draw.randrange(len(headers)))
        status = draw.choice((100, 180, 183, 183, 200, 302, 302, 401, 407, 422, 486, 491, 503, 699))
        tag = draw.choice(("a", "b", ""))
        return [
            bytes(invite.response(status, *chosen, to_tag=tag, body=OFFER, content_type="application/sdp"))
        ]

    def _follow(self, session: OutgoingSession, addresses: list[SipUri]) -> bool:
        session.follow(replace(session.invite, target=addresses[0]), None)
        return True

    def _mutate(self, data: bytes) -> bytes:
        draw = self.random
        for _ in range(draw.randint(0, 4)):
            at = draw.randrange(len(data) + 1)
            end = min(len(data), at + draw.choice((0, 0, 1, 2, 8, 40)))
            match draw.randrange(5):
                case 0:
                    data = data[:at] + draw.choice(TOKENS) + data[end:]
                case 1:
                    data = data[:at] + data[end:]
                case 2:
                    data = data[:at] + data[at:end] * draw.choice((2, 3, 50)) + data[end:]
                case 3:
                    lines = data.split(b"\r\n")
                    lines.insert(draw.randrange(len(lines) + 1), draw.choice(lines))
                    data = b"\r\n".join(lines)
                case _:
                    other = draw.choice(self.seeds)
                    data = (
                        data[:at]
                        + other[draw.randrange(len(other)) :][: draw.choice((4, 40, 400))]
                        + data[end:]
                    )
        return data


def _torture() -> dict[str, str]:
    found: dict[str, str] = json.loads((TESTS / "adapters" / "sip" / "rfc4475.json").read_text("ascii"))
    return found


def main() -> None:
    """Fuzz, and print what was found."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    fuzzer = SipFuzzer(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    begun = time.perf_counter()
    for left in range(count, 0, -_STEP):
        fuzzer.run(min(left, _STEP))
        print(f"{count - max(0, left - _STEP)} tried, {fuzzer.faults.total()} tracebacks", flush=True)
    seconds = time.perf_counter() - begun
    print(
        f"{count} messages in {seconds:.0f} s, {fuzzer.answers} answers, {fuzzer.faults.total()} tracebacks"
    )
    for fault, times in fuzzer.faults.most_common(5):
        print(f"{times} times:\n{fault}")


if __name__ == "__main__":
    main()
