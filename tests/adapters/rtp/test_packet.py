"""RTP and RTCP on the wire, against bytes laid out by hand from RFC 3550."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.rtp.packet import RtpPacket, RtpProtocolError, encode_packet, is_rtcp, parse_packet
from vivavoce.adapters.rtp.rtcp import (
    Bye,
    ReceiverReport,
    ReportBlock,
    SenderReport,
    encode_bye,
    encode_sender_report,
    middle_of_ntp,
    parse_rtcp,
)

U16, U32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
PACKETS = st.builds(RtpPacket, st.integers(0, 127), U16, U32, U32, st.binary(max_size=400), st.booleans())


def test_a_packet_has_the_layout_of_rfc_3550() -> None:
    packet = RtpPacket(8, 0x0102, 0x03040506, 0x0708090A, b"sound", marker=True)
    data = bytes.fromhex("8088 0102 03040506 0708090a") + b"sound"
    assert encode_packet(packet) == data
    assert parse_packet(data) == packet


@given(PACKETS)
def test_a_packet_is_parsed_as_it_was_encoded(packet: RtpPacket) -> None:
    assert parse_packet(encode_packet(packet)) == packet


@given(PACKETS, st.lists(U32, max_size=15), st.lists(U32, max_size=4), st.integers(0, 255))
def test_sources_extension_and_padding_are_no_payload(
    packet: RtpPacket, sources: list[int], extension: list[int], padding: int
) -> None:
    header = bytearray(encode_packet(packet)[:12])
    header[0] = 0x80 | 0x20 * bool(padding) | 0x10 | len(sources)
    data = bytes(header) + struct.pack(f"!{len(sources)}I", *sources)
    data += struct.pack(f"!HH{len(extension)}I", 0xBEDE, len(extension), *extension) + packet.payload
    data += bytes(padding - 1) + bytes((padding,)) if padding else b""
    assert parse_packet(data) == packet


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex("8000 0102 03040506 070809"),  # 11 bytes
        bytes.fromhex("4000 0102 03040506 0708090a"),  # version 1
        bytes.fromhex("8100 0102 03040506 0708090a"),  # a source that is not there
        bytes.fromhex("9000 0102 03040506 0708090a bede 0001"),  # a word of extension that is not there
        bytes.fromhex("a000 0102 03040506 0708090a 00"),  # padding of 0 bytes
        bytes.fromhex("a000 0102 03040506 0708090a 02"),  # padding of more than there is
        bytes.fromhex("8000 0102 03040506 0708090a") + bytes(2048),
    ],
    ids=len,
)
def test_what_is_no_packet_is_refused(data: bytes) -> None:
    with pytest.raises(RtpProtocolError):
        parse_packet(data)


def test_a_sender_report_has_the_layout_of_rfc_3550() -> None:
    block = ReportBlock(0xAABBCCDD, 0.5, -1, 0x00010002, 7, 0x11223344, 0x00010000)
    data = encode_sender_report(SenderReport(0x01020304, 0.5, 5, 6, 7, (block,)), "abc")
    assert data == bytes.fromhex(
        "81c8 000c 01020304 83aa7e80 80000000 00000005 00000006 00000007"
        "aabbccdd 80ffffff 00010002 00000007 11223344 00010000"
        "81ca 0003 01020304 01 03 616263 000000"
    )
    assert is_rtcp(data)
    assert list(parse_rtcp(data)) == [SenderReport(0x01020304, 0.5, 5, 6, 7, (block,))]
    assert middle_of_ntp(0.5) == 0x7E808000


def test_a_bye_follows_a_report() -> None:
    assert list(parse_rtcp(encode_bye(9, "abc"))) == [ReceiverReport(9, ()), Bye((9,))]


def test_reports_before_a_broken_one_are_read() -> None:
    events = parse_rtcp(encode_bye(9, "abc") + b"\x80\xc8\x00\x01\x00\x00\x00\x00")
    assert [next(events), next(events)] == [ReceiverReport(9, ()), Bye((9,))]
    with pytest.raises(RtpProtocolError, match="too short"):
        next(events)


@given(st.binary(max_size=64))
def test_random_bytes_are_reports_or_refused(data: bytes) -> None:
    with suppress(RtpProtocolError):
        list(parse_rtcp(data))
