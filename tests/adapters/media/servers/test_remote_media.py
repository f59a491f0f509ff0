"""What control knows of a call's media between reports of the media server."""

import socket
from collections.abc import Iterator
from uuid import UUID

import pytest

from vivavoce.adapters.audiosocket.wire import AudioSocketOpening
from vivavoce.adapters.media.call_media import CallerAudioOptions, CallMedia, MediaListener, MediaReport
from vivavoce.adapters.media.phone_media import PhoneCallOptions
from vivavoce.adapters.media.servers.link import close_descriptor
from vivavoce.adapters.media.servers.messages import ControlMessage, MediaMessage, message_to
from vivavoce.adapters.media.servers.remote_media import RemoteMedia
from vivavoce.adapters.playback.background import Awaited
from vivavoce.adapters.playback.heard_words import DiscardResult
from vivavoce.tts_engine.chunk import AudioChunk, Provenance

RATE = 8_000
NOTHING_LEFT = DiscardResult(utterance=0, cut_ms=500.0, words=(), text_stop=0, silent_at=0.0)


class Owner:
    """Fails the test for whatever ends the call."""

    def on_closed(self, reason: str) -> None:
        raise AssertionError(reason)

    def on_problem(self, text: str, *, is_internal: bool) -> None:
        raise AssertionError(text)

    def fail(self, error: Exception) -> None:
        raise error


class Listener:
    """Takes every event and keeps none."""

    def __getattr__(self, name: str) -> object:
        return lambda *values, **options: None


class ControlledCall:
    """A call whose messages are kept, on a clock that the test sets."""

    def __init__(self, sock: socket.socket) -> None:
        self.now = 100.0
        self.sent: list[ControlMessage] = []
        self.media = RemoteMedia(
            7,
            AudioSocketOpening(UUID(int=7), b""),
            sock,
            Owner(),
            lambda message, descriptor: self.sent.append(message),
            PhoneCallOptions(sample_rate=RATE, stalled_s=5.0),
            now=lambda: self.now,
        )
        self.media.set_listener(Listener())  # type: ignore[arg-type]

    def push(self, seconds: float) -> None:
        samples = round(seconds * RATE)
        silence = Provenance(None, None, 0.0, 0.0)
        chunk = AudioChunk(
            bytes(2 * samples), 0, (0, 3 * samples), (0, 0), (), silence, final=False, sample_rate=RATE
        )
        self.media.push(chunk, utterance=0)

    def report(self, pushes: int, queued_s: float) -> None:
        report = MediaReport(pushes=pushes, runs_dry_at=self.now + queued_s, at=self.now)
        self.media.receive(message_to(7, MediaListener.on_report, report))

    @property
    def lead_s(self) -> float:
        return self.media.lead_s(self.now)


@pytest.fixture
def call() -> Iterator[ControlledCall]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ControlledCall(ours)


def test_what_is_pushed_is_played_in_real_time(call: ControlledCall) -> None:
    call.push(0.5)
    assert call.lead_s == pytest.approx(0.5)
    call.now += 0.2
    assert call.lead_s == pytest.approx(0.3)
    call.now += 1.0
    assert call.lead_s == 0.0


def test_a_report_corrects_the_estimate_and_counts_what_it_has_not_seen(call: ControlledCall) -> None:
    call.push(0.5)
    call.push(0.3)
    call.report(pushes=1, queued_s=0.4)
    assert call.lead_s == pytest.approx(0.7)


def test_a_report_from_before_a_discard_does_not_bring_the_queue_back(call: ControlledCall) -> None:
    call.push(2.0)
    call.media.discard()
    assert call.lead_s == 0.0
    call.report(pushes=1, queued_s=1.9)  # was on its way
    assert call.lead_s == 0.0
    call.media.receive(message_to(7, MediaListener.on_discarded, NOTHING_LEFT, requested=True))
    call.push(0.4)
    call.report(pushes=2, queued_s=0.4)
    assert call.lead_s == pytest.approx(0.4)


def test_a_report_counts_again_once_each_discard_is_answered(call: ControlledCall) -> None:
    call.push(1.0)
    call.media.discard()
    call.media.discard()
    for left in (1, 0):
        call.media.receive(message_to(7, MediaListener.on_discarded, NOTHING_LEFT, requested=True))
        call.report(pushes=1, queued_s=0.25)
        assert call.lead_s == pytest.approx(0.0 if left else 0.25)


def test_speech_pushed_after_a_discard_of_the_media_server_names_it(call: ControlledCall) -> None:
    call.push(1.0)
    call.media.receive(message_to(7, MediaListener.on_discarded, NOTHING_LEFT, requested=False))
    assert call.lead_s == 0.0
    call.push(1.0)
    call.media.discard()
    *pushed, last = call.sent
    assert [each.arguments[-1] for each in pushed if isinstance(each, MediaMessage)] == [0, 1]
    assert last == message_to(7, CallMedia.discard)


def test_unchanged_options_of_the_callers_audio_are_not_sent_again(call: ControlledCall) -> None:
    call.media.set_caller_audio(CallerAudioOptions())
    assert call.sent == []


def test_another_media_server_is_told_what_the_caller_waits_for(call: ControlledCall) -> None:
    call.media.set_awaited(Awaited.CALLER)
    assert call.sent == []
    call.media.set_awaited(Awaited.PROGRAM)
    assert call.sent == [message_to(7, CallMedia.set_awaited, Awaited.PROGRAM)]
    again: list[ControlMessage] = []

    def send(message: ControlMessage, descriptor: int) -> None:
        again.append(message)
        close_descriptor(descriptor)

    call.media.reopen(send)
    assert message_to(7, CallMedia.set_awaited, Awaited.PROGRAM) in again
