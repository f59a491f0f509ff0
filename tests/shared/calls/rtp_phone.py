"""A caller over RTP for tests: two UDP sockets; threads keep what arrives."""

import socket
import threading
import time

from shared.calls.rtp_stream import RtpSource
from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.adapters.rtp.packet import RtpPacket, encode_packet, parse_packet
from vivavoce.adapters.rtp.rtcp import encode_bye
from vivavoce.adapters.rtp.telephone_events import encode_key

PACKET_SAMPLES = 160


class RtpTestPhone:
    """Sends u-law to ``server`` and receives from it; ``reports`` has what came to the next port."""

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        self.server = server
        self.source = RtpSource()
        self.packets: list[RtpPacket] = []
        self.raw: list[bytes] = []
        self.arrived: list[float] = []
        self.reports: list[bytes] = []
        self._sock, self._report_sock = bind_pair()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._receive_packets, name="phone-rtp"),
            threading.Thread(target=self._receive_reports, name="phone-rtcp"),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()
        return host, port

    @property
    def heard(self) -> bytes:
        """All samples, s16le."""
        return b"".join(ulaw_decode(packet.payload) for packet in self.packets)

    def speak(self, pcm: bytes) -> None:
        """Send 8 kHz s16le in packets, at once."""
        for start in range(0, len(pcm), 2 * PACKET_SAMPLES):
            self.send(self.source.next(ulaw_encode(pcm[start : start + 2 * PACKET_SAMPLES])))

    def press(self, digit: str) -> None:
        for index in range(5):
            payload = encode_key(digit, duration=160 * (index + 1), is_end=index > 1)
            self.send(self.source.key(payload, self.source.timestamp, marker=index == 0))
        self.source.pause(5)

    def send(self, packet: RtpPacket) -> None:
        self.send_bytes(encode_packet(packet))

    def send_bytes(self, data: bytes) -> None:
        assert self.server is not None
        self._sock.sendto(data, self.server)

    def hang_up(self) -> None:
        assert self.server is not None
        bye = encode_bye(self.source.ssrc, "phone")
        self._report_sock.sendto(bye, (self.server[0], self.server[1] + 1))

    def close(self) -> None:
        self._closed = True
        for thread in self._threads:
            thread.join()
        self._sock.close()
        self._report_sock.close()

    def _receive_packets(self) -> None:
        while not self._closed:
            try:
                self.raw.append(self._sock.recv(2048))
                self.packets.append(parse_packet(self.raw[-1]))
            except TimeoutError:
                continue
            self.arrived.append(time.monotonic())

    def _receive_reports(self) -> None:
        while not self._closed:
            try:
                self.reports.append(self._report_sock.recv(2048))
            except TimeoutError:
                continue


def bind_pair() -> tuple[socket.socket, socket.socket]:
    """Two UDP sockets on loopback, on successive ports."""
    while True:
        first, second = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        first.bind(("127.0.0.1", 0))
        try:
            second.bind(("127.0.0.1", first.getsockname()[1] + 1))
        except (OSError, OverflowError):
            first.close()
            second.close()
            continue
        for sock in (first, second):
            sock.settimeout(0.05)
        return first, second
