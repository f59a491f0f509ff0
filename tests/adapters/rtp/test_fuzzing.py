"""Structured garbage on one RTP call: well-formed headers with random contents, in any order.

``FUZZ_CASES=50000 pytest tests/adapters/rtp/test_fuzzing.py`` runs more of them.
"""

import os
import random
import struct

from shared.calls.rtp_stream import PEER, RtpSource
from vivavoce.adapters.rtp.codec import CODECS
from vivavoce.adapters.rtp.connection import (
    RtpConnection,
    RtpEnd,
    RtpFaultSeen,
    RtpKey,
    RtpOptions,
    RtpPeerMoved,
)
from vivavoce.adapters.rtp.packet import encode_packet, parse_packet
from vivavoce.adapters.rtp.rtcp import encode_bye

CASES = int(os.environ.get("FUZZ_CASES", "600"))
STEPS = 60


def datagram(draw: random.Random, source: RtpSource) -> bytes:
    kind = draw.randrange(12)
    if kind < 4:
        return encode_packet(source.next(draw.randbytes(draw.choice((0, 1, 80, 160, 161, 1600, 1601)))))
    if kind == 4:  # any header, any number
        flags = draw.choice((0x80, 0x80 | draw.randrange(64), draw.randrange(256)))
        numbers = struct.pack(
            "!BBHII", flags, draw.randrange(256), draw.randrange(2**16), draw.randrange(2**32),
            draw.choice((source.ssrc, draw.randrange(2**32))),
        )  # fmt: skip
        return numbers + draw.randbytes(draw.randrange(40))
    if kind == 5:
        source.sequence = (source.sequence + draw.choice((1, -1, 20, -20, 149, 151, 3000, 40_000))) % 2**16
    if kind == 6:
        source.timestamp = (source.timestamp + draw.choice((-1, 160, -160, 80_000, 2**31, -(2**31)))) % 2**32
    if kind == 7:
        return encode_packet(source.key(draw.randbytes(draw.randrange(6)), draw.randrange(2**32)))
    if kind == 8:  # reports with random bodies
        words = draw.randrange(8)
        head = struct.pack("!BBH", 0x80 | draw.randrange(32), draw.randrange(199, 206), words)
        return head + draw.randbytes(4 * words + draw.choice((0, 0, 0, 3, -3 if words else 0)))
    if kind == 9:
        return encode_bye(draw.choice((source.ssrc, 5)), "x")
    if kind == 10:
        source.ssrc = draw.choice((1, 2, 3))
    if kind == 11:
        return draw.randbytes(draw.randrange(2100))
    return encode_packet(source.next(bytes(160)))


def test_any_datagrams_leave_a_call_that_plays_and_hears() -> None:
    for case in range(CASES):
        draw = random.Random(case)
        codec = CODECS[draw.choice(sorted(CODECS))]
        call = RtpConnection(RtpOptions(codec), draw)
        source = RtpSource(payload_type=codec.payload_type)
        now, history, samples = 0.0, [b"\x80"], 0
        for _ in range(STEPS):
            now += draw.choice((0.0, 0.02, 0.02, 0.3))
            data = draw.choice(history) if draw.random() < 0.1 else datagram(draw, source)
            history.append(data)
            address = PEER if draw.random() < 0.9 else ("203.0.113.7", 1)
            call.receive(data, address, now)
            assert all(
                isinstance(event, RtpKey | RtpEnd | RtpFaultSeen | RtpPeerMoved) for event in call.events()
            )
            audio = call.audio_due(now)
            assert len(audio) % 2 == 0
            samples += len(audio) // 2
            packet = parse_packet(call.encode_packet(bytes(codec.sample_rate // 25)))
            assert packet.ssrc != source.ssrc
            call.reports_due(now, now)
        # At most all that came, each packet with a second of silence before it, and the pauses.
        assert samples <= codec.sample_rate * (STEPS * 1.2 + now)
        assert len(call._buffer._waiting) <= 51
