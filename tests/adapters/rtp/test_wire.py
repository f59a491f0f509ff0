"""A call over RTP in a media server: real sockets on loopback, and a clock that the test advances."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from shared.calls.rtp_phone import bind_pair
from shared.calls.rtp_stream import RtpSource
from vivavoce.adapters.media.call_media import CallerAudioOptions, CallMedia
from vivavoce.adapters.media.clock import Clock
from vivavoce.adapters.media.phone_media import PhoneCallOptions
from vivavoce.adapters.media.servers.messages import MediaMessage, OpenPhoneCall, PhoneCallControl, message_to
from vivavoce.adapters.media.servers.phone_call import PhoneCall
from vivavoce.adapters.rtp.codec import CODECS
from vivavoce.adapters.rtp.connection import RtpOptions
from vivavoce.adapters.rtp.packet import RtpPacket, encode_packet, parse_packet
from vivavoce.adapters.rtp.rtcp import Bye, SenderReport, encode_bye, parse_rtcp
from vivavoce.adapters.rtp.wire import RtpOpening
from vivavoce.tts_engine.chunk import AudioChunk, Provenance

SAMPLES = 160


class WiredCall:
    """A call whose phone is a pair of sockets; ``tick`` advances the time by 20 ms."""

    def __init__(self, silent_s: float | None = None) -> None:
        self.now = 100.0
        self.ticks = 0
        self.sent: list[MediaMessage] = []
        self.problems: list[str] = []
        self.phone, self.phone_reports = bind_pair()
        sock, spare = bind_pair()
        spare.close()  # the call takes the next port for its reports
        self.server = sock.getsockname()
        self._clock = Clock(phases=1, now=lambda: self.now)
        rtp = RtpOptions(CODECS["ulaw"], self.phone.getsockname())
        opening = OpenPhoneCall(1, RtpOpening(rtp), PhoneCallOptions(8_000, 5.0, silent_s=silent_s), (0, 0))
        self.call = PhoneCall(
            opening,
            opening.wire.open(opening.options, sock, self.problems.append, lambda: self.now),
            self._clock,
            send=self._send,
            detector=None,
            on_closed=lambda: None,
            now=lambda: self.now,
        )

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.ticks += 1
            self.now = 100.0 + self.ticks * 0.020 + 0.001
            self._clock.advance(self.now)

    def stall(self, ticks: int) -> None:
        """Let time pass without a tick."""
        self.ticks += ticks

    def received(self) -> list[RtpPacket]:
        """What has arrived at the phone."""
        return [parse_packet(data) for data in datagrams(self.phone)]

    def take_sent(self) -> list[MediaMessage]:
        sent, self.sent = self.sent, []
        return [message for message in sent if message.method != "on_report"]

    def _send(self, message: MediaMessage) -> int:
        self.sent.append(message)
        return 0


def datagrams(sock: socket.socket) -> list[bytes]:
    sock.setblocking(False)
    found = []
    while True:
        try:
            found.append(sock.recv(2048))
        except BlockingIOError:
            return found


@contextmanager
def wired_call(silent_s: float | None = None) -> Iterator[WiredCall]:
    call = WiredCall(silent_s)
    try:
        yield call
    finally:
        call.call.execute(message_to(1, PhoneCallControl.hang_up, "the test is over"))
        call.tick(2)
        call.phone.close()
        call.phone_reports.close()


def chunk(seconds: float) -> AudioChunk:
    samples = round(seconds * 24_000)
    return AudioChunk(b"\1\x10" * samples, 0, (0, samples), (0, 3), (), Provenance(None, None, 0, 0), False)


def test_silence_speech_and_a_discard_are_one_unbroken_stream() -> None:
    with wired_call() as call:
        call.tick(5)
        call.call.execute(message_to(1, PhoneCallControl.push_speech, chunk(1.0), 0, 0))
        call.tick(10)
        call.call.execute(message_to(1, CallMedia.discard))
        call.tick(10)
        packets = call.received()
        assert len(packets) == 25
        assert np.all(np.diff([packet.sequence for packet in packets]) % 2**16 == 1)
        assert np.all(np.diff([packet.timestamp for packet in packets]) % 2**32 == SAMPLES)
        assert [packet.marker for packet in packets] == [True] + 24 * [False]
        loud = [bool(np.any(np.frombuffer(packet.payload, "u1") != 0xFF)) for packet in packets]
        assert loud[:5] == [False] * 5 and loud[-9:] == [False] * 9


def test_packets_that_a_stall_skipped_leave_a_gap_in_the_timestamps_and_a_marker() -> None:
    with wired_call() as call:
        call.tick(5)
        call.stall(30)
        call.tick(5)
        packets = call.received()
        steps = np.diff([packet.timestamp for packet in packets]) % 2**32
        assert steps.tolist() == [SAMPLES] * 4 + [32 * SAMPLES] + [SAMPLES] * (len(packets) - 6)
        assert [index for index, packet in enumerate(packets) if packet.marker] == [0, 5]
        assert np.all(np.diff([packet.sequence for packet in packets]) % 2**16 == 1)


def test_reports_go_to_the_next_port_and_a_bye_from_there_ends_the_call() -> None:
    with wired_call() as call:
        source = RtpSource()
        call.phone.sendto(encode_packet(source.next(b"\xff" * SAMPLES)), call.server)
        call.tick(600)
        reports = [event for data in datagrams(call.phone_reports) for event in parse_rtcp(data)]
        assert reports and all(isinstance(report, SenderReport) for report in reports)
        reports_port = (call.server[0], call.server[1] + 1)
        call.phone_reports.sendto(encode_bye(source.ssrc, "phone"), reports_port)
        call.tick(6)
        (closed,) = call.take_sent()
        assert (closed.method, closed.arguments[0]) == ("on_closed", "the caller hung up")
        (ours,) = {packet.ssrc for packet in call.received()}
        *_, data = datagrams(call.phone_reports)  # a report may come before it
        assert Bye((ours,)) in parse_rtcp(data)


def test_the_callers_audio_is_forwarded_in_order_and_a_flood_from_elsewhere_is_read_past() -> None:
    with wired_call() as call:
        call.call.execute(message_to(1, CallMedia.set_caller_audio, CallerAudioOptions(is_forwarded=True)))
        source, stranger = RtpSource(), bind_pair()
        packets = [source.next(bytes([level]) * SAMPLES) for level in (0x10, 0x20, 0x30, 0x40)]
        for index in (0, 2, 1, 3):
            call.phone.sendto(encode_packet(packets[index]), call.server)
        call.tick()
        for _ in range(200):
            stranger[0].sendto(encode_packet(packets[0]), call.server)
        call.phone.sendto(encode_packet(source.next(b"\x50" * SAMPLES)), call.server)
        call.tick(5)
        heard = [message.arguments[0] for message in call.take_sent() if message.method == "on_caller_audio"]
        decode = CODECS["ulaw"].decode
        assert b"".join(heard) == b"".join(
            decode(bytes([level]) * SAMPLES) for level in (0x10, 0x20, 0x30, 0x40, 0x50)
        )
        (problem,) = call.problems
        assert "not the peer's" in problem
        for sock in stranger:
            sock.close()


def test_a_flood_of_the_peer_is_taken_in_small_parts_and_dropped_beyond_the_limit() -> None:
    with wired_call() as call:
        call.call.execute(message_to(1, CallMedia.set_caller_audio, CallerAudioOptions(is_forwarded=True)))
        source = RtpSource(packet_samples=10 * SAMPLES)
        seconds = 0.0
        for _ in range(20 * 50):
            for _ in range(4):
                call.phone.sendto(encode_packet(source.next(b"\x10" * 10 * SAMPLES)), call.server)
            call.tick()
            audio = [
                message.arguments[0] for message in call.take_sent() if message.method == "on_caller_audio"
            ]
            in_a_tick_s = sum(map(len, audio)) / 16_000
            assert in_a_tick_s <= 0.2
            seconds += in_a_tick_s
        assert 50 < seconds <= 30 + 1.5 * 20
        (problem,) = call.problems
        assert "1.5 s a second; the rest is dropped" in problem


def test_a_peer_that_sends_nothing_for_the_limit_is_given_up() -> None:
    with wired_call(silent_s=2.0) as call:
        call.phone.sendto(encode_packet(RtpSource().next(b"\xff" * SAMPLES)), call.server)
        call.tick(95)
        assert call.take_sent() == []
        call.tick(15)
        problem, closed = call.take_sent()
        assert (problem.method, problem.arguments) == ("on_problem", ("the caller has sent nothing for 2 s",))
        assert closed.method == "on_closed"
