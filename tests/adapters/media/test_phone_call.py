"""A phone call of a media server; its transport records what is written, and the test advances the clock."""

import asyncio
import socket
import struct
from collections.abc import Callable
from uuid import UUID

from vivavoce.adapters.media.call_media import CallerAudioOptions
from vivavoce.adapters.media.clock import Clock
from vivavoce.adapters.media.messages import (
    CallClosed,
    CallerSpeech,
    DiscardSpeech,
    FinishSpeech,
    HangUp,
    MediaMessage,
    OpenPhoneCall,
    PushSpeech,
    ReceivedAudio,
    ReceivedKey,
    SetCallerAudio,
    SpeechCut,
    SpeechPlayed,
    WordsHeard,
)
from vivavoce.adapters.media.phone_call import PhoneCall
from vivavoce.adapters.playback.heard_words import HeardWord
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.tts_engine.chunk import AudioChunk, Provenance, Word

RATE = 24_000
PACKET_BYTES = 2 * RATE // 50
CALL_ID = struct.pack("!BH", 0x01, 16) + UUID(int=7).bytes


class FakeTransport(asyncio.Transport):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock, "peername": ("127.0.0.1", 1)})
        self.written: list[bytes] = []
        self.unsent = 0
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


class FakeDetector:
    """Takes any audio but digital silence for speech."""

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        return [VoiceActivityChange(any(pcm), 0.0)]


class PlayedCall:
    """A call at 24 kHz; ``messages`` are those to control. ``tick`` advances the time by 20 ms."""

    def __init__(self, sock: socket.socket, stalled_s: float = 5.0) -> None:
        loop = asyncio.get_running_loop()
        self.messages: list[MediaMessage] = []
        self.closed = 0
        self.transport = FakeTransport(sock)
        self._now = loop.time()
        self._clock = Clock(phases=1, now=lambda: self._now)
        opening = OpenPhoneCall(1, CALL_ID, RATE, stalled_s)
        self.call = PhoneCall(
            opening, self._clock, send=self._send, make_detector=FakeDetector, on_closed=self._on_closed,
            now=lambda: self._now,
        )  # fmt: skip

    def connect(self) -> None:
        self.call.connection.connection_made(self.transport)

    def receive(self, kind: int, payload: bytes) -> None:
        self.call.connection.data_received(struct.pack("!BH", kind, len(payload)) + payload)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self._now += 0.020
            self._clock.advance(self._now)

    def push(self, seconds: float, utterance: int = 0, *, known_discards: int = 0) -> None:
        self.call.execute(PushSpeech(1, chunk(seconds), utterance, known_discards))

    def sent(self) -> list[MediaMessage]:
        sent, self.messages = self.messages, []
        return sent

    def audible_packets(self) -> int:
        return sum(any(packet[3:]) for packet in self.transport.written)

    def _send(self, message: MediaMessage) -> int:
        self.messages.append(message)
        return 0

    def _on_closed(self) -> None:
        self.closed += 1


WORD = Word("one", 0.0, 0.1, 0, 3)


def chunk(seconds: float) -> AudioChunk:
    samples = round(seconds * RATE)
    pcm = b"\1\1" * samples
    return AudioChunk(pcm, 0, (0, samples), (0, 3), (WORD,), Provenance(None, None, 0, 0), False)


def with_call(test: Callable[[PlayedCall], None], **arguments: float) -> None:
    async def run() -> None:
        with socket.socket() as sock:
            played = PlayedCall(sock, **arguments)
            test(played)
            await asyncio.sleep(0)
            played.call.connection.connection_lost(None)
            while not played.closed:
                await asyncio.sleep(0)

    asyncio.run(run())


def test_speech_pushed_before_the_connection_is_attached_is_played() -> None:
    def test(played: PlayedCall) -> None:
        played.push(0.2)
        played.call.execute(FinishSpeech(1))
        played.connect()
        played.tick(30)
        assert played.audible_packets() == 10
        assert played.sent()[:2] == [WordsHeard(1, played_words(0)), SpeechPlayed(1, 1)]

    with_call(test)


def played_words(utterance: int) -> tuple[HeardWord, ...]:
    return (HeardWord(utterance, WORD),)


def test_a_discard_is_answered_with_what_was_heard_and_cut() -> None:
    def test(played: PlayedCall) -> None:
        played.connect()
        played.push(1.0, utterance=4)
        played.tick(10)
        played.call.execute(DiscardSpeech(1))
        (heard, cut) = played.sent()
        assert heard == WordsHeard(1, played_words(4))
        assert isinstance(cut, SpeechCut) and cut.requested
        assert (cut.result.utterance, cut.result.words, cut.result.text_stop) == (4, (WORD,), 3)
        assert 700 <= cut.result.cut_ms <= 820
        sounding = played.audible_packets()
        played.tick(10)
        assert played.audible_packets() <= sounding + 1  # the faded edge
        assert played.sent() == [SpeechPlayed(1, 1)]

    with_call(test)


def test_speech_that_was_on_its_way_when_the_caller_interrupted_is_not_played() -> None:
    def test(played: PlayedCall) -> None:
        played.connect()
        played.call.execute(SetCallerAudio(1, CallerAudioOptions(detects_speech=True, speech_discards=True)))
        played.push(1.0)
        played.tick(5)
        played.receive(0x13, b"\1" * PACKET_BYTES)
        *_, speech, cut = played.sent()
        assert speech == CallerSpeech(1, True)
        assert isinstance(cut, SpeechCut) and not cut.requested
        sounding = played.audible_packets()
        played.push(1.0, known_discards=0)
        played.tick(10)
        assert played.audible_packets() <= sounding + 1
        assert played.sent() == [SpeechPlayed(1, 2)]
        played.push(0.1, utterance=2, known_discards=1)
        played.call.execute(FinishSpeech(1))
        played.tick(10)
        assert played.sent() == [WordsHeard(1, played_words(2)), SpeechPlayed(1, 3)]

    with_call(test)


def test_audio_and_keys_of_the_caller_are_forwarded_as_asked() -> None:
    def test(played: PlayedCall) -> None:
        played.connect()
        played.receive(0x13, b"\1" * PACKET_BYTES)
        played.receive(0x03, b"5")
        assert played.sent() == [ReceivedKey(1, "5")]
        played.call.execute(SetCallerAudio(1, CallerAudioOptions(is_forwarded=True)))
        played.receive(0x13, b"\1" * PACKET_BYTES)
        assert played.sent() == [ReceivedAudio(1, b"\1" * PACKET_BYTES, RATE)]

    with_call(test)


def test_the_end_of_the_connection_is_reported_once() -> None:
    def test(played: PlayedCall) -> None:
        played.connect()
        played.tick(3)
        played.receive(0x00, b"")
        played.call.connection.connection_lost(None)
        (closed,) = played.sent()
        assert isinstance(closed, CallClosed)
        assert (closed.reason, closed.report.stats.packets) == ("the caller hung up", 3)

    with_call(test)


def test_a_call_that_is_hung_up_before_the_connection_is_attached_ends() -> None:
    calls: list[PlayedCall] = []

    def test(played: PlayedCall) -> None:
        calls.append(played)
        played.call.execute(HangUp(1, "too late"))
        played.connect()

    with_call(test)
    (closed,) = calls[0].sent()
    assert isinstance(closed, CallClosed) and closed.reason == "too late"
    assert calls[0].transport.written[-1] == bytes(3)


def test_each_message_is_one_write_and_a_backlog_drops_whole_messages() -> None:
    def test(played: PlayedCall) -> None:
        transport, packet = played.transport, struct.pack("!BH", 0x13, PACKET_BYTES) + bytes(PACKET_BYTES)
        played.connect()
        played.tick(3)
        assert transport.written == [packet] * 3
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        transport.unsent = 5 * len(packet)
        played.tick(9)
        assert len(transport.written) == 3
        assert not transport.aborted
        transport.unsent = 0
        played.tick()
        assert len(transport.written) == 4
        transport.unsent = 5 * len(packet)
        played.tick(9)
        assert not transport.aborted  # the packet just written restarted the timeout
        played.tick()
        assert transport.aborted

    with_call(test, stalled_s=0.2)
