"""A phone call of a media server; its socket records what is written, and the test advances the clock."""

import gc
import struct
import weakref
from collections import deque
from uuid import UUID

import pytest

from vivavoce.adapters.audiosocket.wire import AudioSocketOpening
from vivavoce.adapters.media.call_media import CallerAudioOptions, CallMedia, MediaListener
from vivavoce.adapters.media.clock import Clock
from vivavoce.adapters.media.phone_media import PhoneCallOptions
from vivavoce.adapters.media.servers.messages import MediaMessage, OpenPhoneCall, PhoneCallControl, message_to
from vivavoce.adapters.media.servers.phone_call import PhoneCall
from vivavoce.adapters.playback.heard_words import HeardWord
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.tts_engine.chunk import AudioChunk, Provenance, Word

RATE = 24_000
PACKET_BYTES = 2 * RATE // 50
CALL_ID = struct.pack("!BH", 0x01, 16) + UUID(int=7).bytes


class FakeSocket:
    """A connection: ``written`` has what each send took, of at most ``room`` bytes if that is a number."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.incoming: deque[bytes] = deque()  # b"": the peer has closed
        self.room: int | None = None
        self.is_shut_down = self.is_closed = False

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *option: int) -> None:
        pass

    def recv(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        return self.incoming.popleft()

    def send(self, data: bytes) -> int:
        if self.room == 0:
            raise BlockingIOError
        taken = len(data) if self.room is None else min(self.room, len(data))
        self.written.append(data[:taken])
        if self.room is not None:
            self.room -= taken
        return taken

    def shutdown(self, how: int) -> None:
        self.is_shut_down = True

    def close(self) -> None:
        self.is_closed = True

    def messages(self) -> list[tuple[int, bytes]]:
        """All that was written, as messages."""
        data, messages = b"".join(self.written), []
        while data:
            kind, length = struct.unpack_from("!BH", data)
            messages.append((kind, data[3 : 3 + length]))
            data = data[3 + length :]
        return messages


class FakeDetector:
    """Takes any audio but digital silence for speech."""

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        return [VoiceActivityChange(any(pcm), 0.0)]


class PlayedCall:
    """A call at 24 kHz; ``messages`` are those to control. ``tick`` advances the time by 20 ms."""

    def __init__(self, stalled_s: float = 5.0, silent_s: float | None = None) -> None:
        self.now = 100.0
        self._ticks = 0
        self.sent: list[MediaMessage] = []
        self.closed = 0
        self.sock = FakeSocket()
        self._clock = Clock(phases=1, now=lambda: self.now)
        options = PhoneCallOptions(RATE, stalled_s, silent_s=silent_s)
        opening = OpenPhoneCall(1, AudioSocketOpening(UUID(int=7), CALL_ID), options, (0, 0))
        self.wire = opening.wire.open(options, self.sock, print, lambda: self.now)  # type: ignore[arg-type]
        self.call = PhoneCall(
            opening, self.wire, self._clock,
            send=self._send, detector=FakeDetector(), on_closed=self._on_closed, now=lambda: self.now,
        )  # fmt: skip

    def receive(self, kind: int, payload: bytes) -> None:
        self.sock.incoming.append(struct.pack("!BH", kind, len(payload)) + payload)
        self.tick()

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self._ticks += 1
            self.now = 100.0 + self._ticks * 0.020 + 0.001
            self._clock.advance(self.now)

    def push(self, seconds: float, utterance: int = 0, *, known_discards: int = 0) -> None:
        self.call.execute(
            message_to(1, PhoneCallControl.push_speech, chunk(seconds), utterance, known_discards)
        )

    def take_sent(self) -> list[MediaMessage]:
        """The messages to control since the last call, without the reports."""
        sent, self.sent = self.sent, []
        return [message for message in sent if message.method != "on_report"]

    def audible_packets(self) -> int:
        return sum(any(payload) for kind, payload in self.sock.messages() if kind == 0x13)

    def _send(self, message: MediaMessage) -> int:
        self.sent.append(message)
        return 0

    def _on_closed(self) -> None:
        self.closed += 1


WORD = Word("one", 0.0, 0.1, 0, 3)


def chunk(seconds: float) -> AudioChunk:
    samples = round(seconds * RATE)
    pcm = b"\1\1" * samples
    return AudioChunk(pcm, 0, (0, samples), (0, 3), (WORD,), Provenance(None, None, 0, 0), False)


def heard(utterance: int) -> MediaMessage:
    return message_to(1, MediaListener.on_words_heard, (HeardWord(utterance, WORD),))


def test_speech_is_played_and_reported() -> None:
    played = PlayedCall()
    played.push(0.2)
    played.call.execute(message_to(1, CallMedia.finish))
    played.tick(30)
    assert len(played.sock.written) == 30
    assert played.audible_packets() == 10
    assert played.take_sent() == [heard(0), message_to(1, MediaListener.on_played, 1)]


def test_a_discard_is_answered_with_what_was_heard_and_cut() -> None:
    played = PlayedCall()
    played.push(1.0, utterance=4)
    played.tick(10)
    played.call.execute(message_to(1, CallMedia.discard))
    (words, cut) = played.take_sent()
    assert words == heard(4)
    assert (cut.method, cut.options) == ("on_discarded", {"requested": True})
    (result,) = cut.arguments
    assert (result.utterance, result.words, result.text_stop) == (4, (WORD,), 3)
    assert result.cut_ms == pytest.approx(800)
    played.tick(10)
    assert played.audible_packets() == 10
    assert played.take_sent() == [message_to(1, MediaListener.on_played, 1)]


def test_speech_that_was_on_its_way_when_the_caller_interrupted_is_not_played() -> None:
    played = PlayedCall()
    played.call.execute(
        message_to(
            1, CallMedia.set_caller_audio, CallerAudioOptions(detects_speech=True, speech_discards=True)
        )
    )
    played.push(1.0)
    played.tick(5)
    played.receive(0x13, b"\1" * PACKET_BYTES)
    *_, speech, cut = played.take_sent()
    assert speech == message_to(1, MediaListener.on_caller_speech, True)
    assert (cut.method, cut.options) == ("on_discarded", {"requested": False})
    sounding = played.audible_packets()
    played.push(1.0, known_discards=0)
    played.tick(10)
    assert played.audible_packets() == sounding
    assert played.take_sent() == [message_to(1, MediaListener.on_played, 2)]
    played.push(0.1, utterance=2, known_discards=1)
    played.call.execute(message_to(1, CallMedia.finish))
    played.tick(10)
    assert played.take_sent() == [heard(2), message_to(1, MediaListener.on_played, 3)]


def test_audio_and_keys_of_the_caller_are_forwarded_as_asked() -> None:
    played = PlayedCall()
    played.receive(0x13, b"\1" * PACKET_BYTES)
    played.receive(0x03, b"5")
    assert played.take_sent() == [message_to(1, MediaListener.on_key, "5")]
    played.call.execute(message_to(1, CallMedia.set_caller_audio, CallerAudioOptions(is_forwarded=True)))
    played.receive(0x13, b"\1" * PACKET_BYTES)
    assert played.take_sent() == [message_to(1, MediaListener.on_caller_audio, b"\1" * PACKET_BYTES, RATE)]


def test_keys_are_those_of_the_interface_and_a_hook_flash_is_none() -> None:
    played = PlayedCall()
    for key in (b"a", b"!", b"D", b"#"):
        played.receive(0x03, key)
    assert played.take_sent() == [message_to(1, MediaListener.on_key, key) for key in "AD#"]


def test_audio_that_comes_at_once_is_taken_in_small_parts_without_loss() -> None:
    played = PlayedCall()
    played.call.execute(message_to(1, CallMedia.set_caller_audio, CallerAudioOptions(is_forwarded=True)))
    packets = [bytes((index,)) * PACKET_BYTES for index in range(150)]
    played.sock.incoming += [
        b"".join(struct.pack("!BH", 0x13, PACKET_BYTES) + packet for packet in packets[start : start + 17])
        for start in range(0, 150, 17)
    ]
    received: list[bytes] = []
    for _ in range(60):
        played.tick()
        audio = [
            message.arguments[0] for message in played.take_sent() if message.method == "on_caller_audio"
        ]
        assert sum(map(len, audio)) <= 6 * PACKET_BYTES
        received += audio
    assert b"".join(received) == b"".join(packets)


def test_a_caller_who_goes_on_sending_audio_too_fast_is_disconnected() -> None:
    played = PlayedCall()
    message = struct.pack("!BH", 0x13, PACKET_BYTES) + bytes(PACKET_BYTES)
    for _ in range(15 * 50):
        if not played.sock.incoming:
            played.sock.incoming.append(17 * message)
        played.tick()
    problem, closed = played.take_sent()
    assert problem.method == "on_problem" and "got more than 30 s of audio at once" in problem.arguments[0]
    assert closed.method == "on_closed" and played.sock.messages()[-1] == (0x00, b"")


def test_a_state_is_reported_once_a_second() -> None:
    played = PlayedCall()
    played.tick(120)
    reports = [message.arguments[0] for message in played.sent if message.method == "on_report"]
    assert [report.stats.packets for report in reports] == [50, 100]


def test_the_end_of_the_caller_is_reported_once_and_answered() -> None:
    played = PlayedCall()
    played.tick(3)
    played.receive(0x00, b"")
    (closed,) = played.take_sent()
    assert closed.method == "on_closed"
    reason, report = closed.arguments
    assert (reason, report.stats.packets) == ("the caller hung up", 3)
    assert played.sock.messages()[-1] == (0x00, b"")
    assert played.sock.is_shut_down and not played.sock.is_closed
    played.sock.incoming.append(b"")
    played.tick()
    assert played.sock.is_closed
    assert played.closed == 1
    played.tick(5)
    assert (played.take_sent(), played.closed) == ([], 1)


def test_a_connection_that_the_peer_does_not_close_is_closed_after_a_second() -> None:
    played = PlayedCall()
    played.call.execute(message_to(1, PhoneCallControl.hang_up, "enough"))
    played.tick(45)
    played.receive(0x13, bytes(PACKET_BYTES))  # dropped
    assert not played.sock.is_closed
    played.tick(10)
    assert played.sock.is_closed
    (closed,) = played.take_sent()
    assert (closed.method, closed.arguments[0]) == ("on_closed", "enough")
    assert [kind for kind, _ in played.sock.messages()] == [0x00]


def test_an_ended_call_is_freed_at_once_and_not_by_the_garbage_collector() -> None:
    played = PlayedCall()
    played.push(0.5)
    played.tick(3)
    call = weakref.ref(played.call)
    gc.disable()
    try:
        played.call.execute(message_to(1, PhoneCallControl.hang_up, "the server ended it"))
        played.sock.incoming.append(b"")
        played.tick()
        assert played.closed == 1
        del played.call
        assert call() is None
    finally:
        gc.enable()


def test_an_error_of_the_peer_ends_its_call() -> None:
    played = PlayedCall()
    played.sock.incoming.append(b"\x7f\x00\x01.")
    played.tick(2)
    problem, closed = played.take_sent()
    assert (problem.method, problem.options) == ("on_problem", {"is_internal": False})
    assert closed.method == "on_closed"
    assert closed.arguments[0] == problem.arguments[0]
    assert played.sock.messages()[-1] == (0x00, b"")


def test_a_fault_in_a_tick_ends_the_call_with_a_traceback() -> None:
    played = PlayedCall()
    played.tick(2)
    played.call._media.playout.due = None  # type: ignore[assignment,method-assign]
    played.tick(2)
    problem, closed = played.take_sent()
    assert (problem.method, problem.options) == ("on_problem", {"is_internal": True})
    assert "TypeError" in problem.arguments[0]
    assert (closed.method, closed.arguments[0]) == ("on_closed", "internal error")
    played.tick(60)
    assert played.sock.is_closed


def test_a_message_that_the_socket_takes_in_part_is_completed_before_the_next() -> None:
    played = PlayedCall()
    played.tick()
    played.sock.room = 100
    played.tick(2)
    played.sock.room = None
    played.tick(3)
    assert played.sock.messages() == [(0x13, bytes(PACKET_BYTES))] * 6


def test_a_peer_that_reads_late_loses_whole_packets_and_one_that_reads_nothing_is_closed() -> None:
    played = PlayedCall(stalled_s=0.2)
    played.tick(3)
    played.sock.room = 0
    played.tick(3 + 9)  # three packets wait, nine are dropped
    played.sock.room = None
    played.tick()
    assert played.wire.dropped == 9
    assert played.sock.messages() == [(0x13, bytes(PACKET_BYTES))] * 7
    played.sock.room = 0
    played.tick(3 + 9)
    assert not played.sock.is_closed
    played.tick()
    assert played.sock.is_closed
    problem, closed = played.take_sent()
    assert problem.method == "on_problem" and "0.2 s" in problem.arguments[0]
    assert (closed.method, closed.arguments[0]) == ("on_closed", "the peer stopped reading")


def receive_audio(played: PlayedCall, seconds: float) -> None:
    for _ in range(round(seconds * 50)):
        played.receive(0x13, bytes(PACKET_BYTES))


def test_a_caller_who_sends_nothing_is_disconnected_at_the_limit_that_is_set() -> None:
    played = PlayedCall(silent_s=10.0)
    receive_audio(played, 1.0)
    played.tick(10 * 50 - 2)
    assert played.take_sent() == []
    played.tick(4)
    problem, closed = played.take_sent()
    assert (problem.method, problem.arguments) == ("on_problem", ("the caller has sent nothing for 10 s",))
    assert closed.method == "on_closed"
    assert played.sock.messages()[-1] == (0x00, b"")


@pytest.mark.parametrize("spoken_s", [0.0, 1.0])
def test_a_caller_who_sends_nothing_is_served_without_a_limit(spoken_s: float) -> None:
    played = PlayedCall(stalled_s=5.0)
    receive_audio(played, spoken_s)
    played.tick(60 * 50)
    assert len(played.sock.written) == (60 + spoken_s) * 50
    assert played.take_sent() == []


def test_a_message_that_stays_incomplete_ends_the_call() -> None:
    played = PlayedCall(stalled_s=5.0)
    receive_audio(played, 1.0)
    played.sock.incoming.append(b"\x13\x01")
    played.tick(4 * 50)
    assert played.take_sent() == []
    played.tick(2 * 50)
    problem, _ = played.take_sent()
    assert (problem.method, problem.arguments) == ("on_problem", ("a message stayed incomplete for 5 s",))


def test_packets_that_arrive_together_are_told_apart_from_others_of_their_size() -> None:
    played = PlayedCall()
    receive_audio(played, 1.0)
    played.call.execute(message_to(1, CallMedia.set_caller_audio, CallerAudioOptions(is_forwarded=True)))
    packet = struct.pack("!BH", 0x13, PACKET_BYTES)
    keys = b"".join(struct.pack("!BHc", 0x03, 1, key) for key in (b"1", b"2"))
    played.sock.incoming += [2 * (packet + bytes(PACKET_BYTES)), keys, packet + bytes(PACKET_BYTES) + packet]
    played.tick(3)
    audio = [message for message in played.sent if message.method == "on_caller_audio"]
    assert [len(message.arguments[0]) for message in audio] == 3 * [PACKET_BYTES]
    assert [message.arguments[0] for message in played.sent if message.method == "on_key"] == ["1", "2"]
