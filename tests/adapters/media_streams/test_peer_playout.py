"""``PeerPlayout`` against simulated peers that play, report marks and drop their queue."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.audio.playout_speech import chunk, speech, take_words
from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerMark, PeerMedia, PeerPlayout
from vivavoce.adapters.playback.playout import Playout
from vivavoce.adapters.playback.transport import Transport
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance, Word

RATE = 8_000
WORD_S = 0.25
CHUNK_WORDS = 2


class OnClear(Enum):
    """Treatment of pending marks when a peer drops its queue."""

    ECHO = "echo"  # Twilio
    FORGET = "forget"  # chan_websocket


class Peer:
    """Peer that plays a queue of audio and marks, 20 ms at a time, on the test's clock."""

    def __init__(self, on_clear: OnClear, delay_s: float) -> None:
        self.played = 0  # samples of speech
        self.reports: deque[tuple[float, str]] = deque()  # (arrival time, name)
        self._queue: deque[bytes | str] = deque()
        self._on_clear = on_clear
        self._delay_s = delay_s

    def take(self, outgoing: list[PeerMedia | PeerMark | PeerClear], now: float) -> None:
        for item in outgoing:
            match item:
                case PeerMedia(pcm):
                    assert len(pcm) % 320 == 0
                    self._queue.extend(pcm[start : start + 320] for start in range(0, len(pcm), 320))
                case PeerMark(name):
                    assert len(name) <= 24 and name.isascii()
                    self._queue.append(name)
                case PeerClear():
                    for waiting in self._queue:
                        if isinstance(waiting, str) and self._on_clear is OnClear.ECHO:
                            self.reports.append((now + self._delay_s, waiting))
                    self._queue.clear()

    def play_20_ms(self, now: float) -> None:
        self._report(now)
        if self._queue:
            self._queue.popleft()
            self.played += 160
        self._report(now + 0.02)

    @property
    def held_s(self) -> float:
        return sum(len(item) for item in self._queue if isinstance(item, bytes)) / 2 / RATE

    def _report(self, now: float) -> None:
        while self._queue and isinstance(self._queue[0], str):
            self.reports.append((now + self._delay_s, str(self._queue.popleft())))


class Line:
    """A playout and its peer on one virtual clock."""

    def __init__(
        self, on_clear: OnClear = OnClear.ECHO, delay_s: float = 0.0, playout: PeerPlayout | None = None
    ) -> None:
        self.now = 100.0
        self.playout = playout or PeerPlayout(sample_rate=RATE)
        self.peer = Peer(on_clear, delay_s)
        self._index = self._words = 0

    def push_words(self, count: int) -> None:
        """Push chunks of two words of 0.25 s each."""
        for _ in range(0, count, CHUNK_WORDS):
            samples = round(CHUNK_WORDS * WORD_S * SAMPLE_RATE)
            words = tuple(
                Word(str(number), number * WORD_S, (number + 1) * WORD_S, 2 * number, 2 * number + 1)
                for number in range(self._words, self._words + CHUNK_WORDS)
            )
            start = self._index * samples
            text = (0, 2 * self._words + 2 * CHUNK_WORDS)
            nothing = Provenance(None, None, 0.0, 0.0)
            pcm = b"\1\0" * samples
            self.playout.push(
                AudioChunk(pcm, self._index, (start, start + samples), text, words, nothing, False)
            )
            self._index += 1
            self._words += CHUNK_WORDS

    def new_utterance(self) -> None:
        self._index = self._words = 0

    def run(self, seconds: float, *, check: Callable[[], None] = lambda: None) -> None:
        for _ in range(round(seconds / 0.02)):
            while self.peer.reports and self.peer.reports[0][0] <= self.now:
                self.playout.mark_played(self.peer.reports.popleft()[1], self.now)
            self.playout.advance(self.now)
            self.peer.take(self.playout.due(self.now), self.now)
            self.peer.play_20_ms(self.now)
            self.now += 0.02
            check()


def test_all_speech_is_played_and_each_word_is_heard_once_in_order() -> None:
    line = Line()
    line.push_words(20)
    line.playout.finish()
    line.run(6.0)
    assert [heard.word.text for heard in take_words(line.playout)] == [str(number) for number in range(20)]
    assert line.peer.played == pytest.approx(20 * WORD_S * RATE, abs=160)
    assert line.playout.lead_s(line.now) == 0
    assert line.playout.runs_dry_at(line.now) == line.now


def test_a_peer_without_reports_is_not_asked_for_any_and_is_known_from_time() -> None:
    line = Line(playout=PeerPlayout(sample_rate=RATE, max_ahead_s=0.3, reports_marks=False))
    sent: list[PeerMedia | PeerMark | PeerClear] = []
    take = line.peer.take
    line.peer.take = lambda outgoing, now: (sent.extend(outgoing), take(outgoing, now))[1]  # type: ignore[method-assign]
    line.push_words(4)
    line.playout.finish()
    line.run(0.6, check=lambda: within(line.peer.held_s, 0.35))
    assert [heard.word.text for heard in take_words(line.playout)] == ["0", "1"]
    assert not line.playout.is_idle(line.now)
    line.run(0.46)
    assert [heard.word.text for heard in take_words(line.playout)] == ["2", "3"]
    assert line.playout.is_idle(line.now)
    assert {type(item) for item in sent} == {PeerMedia}
    line.new_utterance()
    line.push_words(8)
    line.run(0.6)
    discarded = line.playout.discard(line.now)
    assert len(discarded.words) == 2
    line.run(0.1)
    assert line.peer.held_s == 0


def test_the_peer_holds_at_most_max_ahead() -> None:
    line = Line()
    line.push_words(40)
    line.playout.finish()
    line.run(8.0, check=lambda: within(line.peer.held_s, 1.05))


def test_a_peer_that_holds_much_is_sent_whole_pieces() -> None:
    line = Line()
    line.push_words(40)
    line.playout.finish()
    sent: list[int] = []
    take = line.peer.take

    def count(outgoing: list[PeerMedia | PeerMark | PeerClear], now: float) -> None:
        sent.extend(len(item.pcm) for item in outgoing if isinstance(item, PeerMedia))
        take(outgoing, now)

    line.peer.take = count  # type: ignore[method-assign]
    line.run(11.0, check=lambda: within(0.75, line.peer.held_s + (line.now > 108.9)))
    assert line.peer.played == sum(sent) // 2 == pytest.approx(40 * WORD_S * RATE, abs=160)
    assert len(sent) <= 51 and set(sent[:-1]) == {3_200}


@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 9])
def test_a_peer_with_a_least_length_of_messages_gets_the_end_within_a_packet(chunks: int) -> None:
    line = Line(playout=PeerPlayout(sample_rate=RATE, min_media_ms=200))
    sent: list[PeerMedia] = []
    take = line.peer.take

    def take_and_keep(outgoing: list[PeerMedia | PeerMark | PeerClear], now: float) -> None:
        sent.extend(item for item in outgoing if isinstance(item, PeerMedia))
        take(outgoing, now)

    line.peer.take = take_and_keep  # type: ignore[method-assign]
    for _ in range(chunks):
        line.playout.push(chunk(speech(230)))
    line.playout.finish()
    line.run(2.2)
    assert line.playout.stats.underruns == 0 and line.playout.is_idle(line.now)
    assert all(len(media.pcm) >= 3_200 and len(media.pcm) % 320 == 0 for media in sent)
    spoken = 0.23 * chunks * RATE
    assert spoken <= sum(len(media.pcm) for media in sent) / 2 <= spoken + 160 + 8  # the resampler's end


def test_a_peer_with_a_least_length_of_messages_gets_a_shorter_utterance() -> None:
    playout = PeerPlayout(sample_rate=RATE, min_media_ms=200)
    playout.push(chunk(speech(50)))
    assert playout.due(1.0) == []
    playout.finish()
    (media, mark) = playout.due(1.0)
    assert isinstance(media, PeerMedia) and len(media.pcm) == 3_200 and isinstance(mark, PeerMark)
    playout.hold(1.1)
    playout.release(1.2)
    (clear, media, mark) = playout.due(1.2)
    assert isinstance(clear, PeerClear) and isinstance(media, PeerMedia) and len(media.pcm) == 3_200


def test_a_peer_that_sends_no_silence_always_has_audio_and_speech_does_not_wait_for_it() -> None:
    line = Line(OnClear.FORGET, delay_s=0.01, playout=PeerPlayout(sample_rate=RATE, fills_pauses=True))
    line.run(1.0)
    assert line.peer.played == pytest.approx(1.0 * RATE, abs=320)
    assert line.playout.is_idle(line.now)
    assert line.playout.discard(line.now).words == ()
    for _ in range(2):
        # Each word counts as heard from its middle on: no silence of 0.2 s came before the first.
        assert heard_after_s(line) == pytest.approx([0.125, 0.375, 0.625, 0.875], abs=0.07)
        assert line.playout.is_idle(line.now)
        assert line.playout.lead_s(line.now) == 0
    assert line.playout.stats.underruns == 0
    assert line.playout.stats.speech_packets == 100
    assert line.peer.played == pytest.approx(4.0 * RATE, abs=480)


def heard_after_s(line: Line) -> list[float]:
    """Speak four words; return when each was heard."""
    line.new_utterance()
    line.push_words(4)
    line.playout.finish()
    begun = line.now
    heard: list[float] = []
    line.run(1.5, check=lambda: heard.extend(line.now - begun for _ in take_words(line.playout)))
    return heard


def within(value: float, limit: float) -> None:
    assert value <= limit


@pytest.mark.parametrize("on_clear", OnClear)
@pytest.mark.parametrize("delay_s", [0.0, 0.04])
def test_a_barge_in_reports_the_words_heard_to_within_one_word(on_clear: OnClear, delay_s: float) -> None:
    for step in range(25):
        line = Line(on_clear, delay_s)
        line.push_words(16)
        line.playout.finish()
        line.run(0.1 + step * 0.14)
        cut = line.playout.discard(line.now)
        really_heard = sum((number + 0.5) * WORD_S * RATE <= line.peer.played for number in range(16))
        assert abs(len(cut.words) - really_heard) <= 1
        left_s = 16 * WORD_S - line.peer.played / RATE
        assert cut.cut_ms == pytest.approx(1000 * left_s, abs=65)


@pytest.mark.parametrize("on_clear", OnClear)
def test_marks_of_dropped_speech_do_not_affect_new_speech(on_clear: OnClear) -> None:
    line = Line(on_clear, delay_s=0.04)
    line.push_words(16)
    line.run(1.0)
    line.playout.discard(line.now)
    line.playout.take_heard_words()
    line.new_utterance()
    line.push_words(8)
    line.playout.finish()
    played_before = line.peer.played
    line.run(0.3)
    (heard,) = take_words(line.playout)
    assert (heard.utterance, heard.word.text) == (1, "0")
    line.run(3.0)
    assert [heard.word.text for heard in take_words(line.playout)] == [str(number) for number in range(1, 8)]
    assert line.peer.played - played_before == pytest.approx(8 * WORD_S * RATE, abs=160)


def test_no_clear_is_sent_if_the_peer_holds_nothing() -> None:
    line = Line()
    assert line.playout.discard(line.now).utterance == -1
    assert line.playout.due(line.now) == []
    line.push_words(2)
    line.playout.finish()
    line.run(2.0)
    assert line.playout.discard(line.now).cut_ms == 0
    assert line.playout.due(line.now) == []


def test_late_speech_is_counted_from_the_time_it_is_played() -> None:
    line = Line()
    line.push_words(2)
    line.run(3.0)
    line.push_words(2)
    line.run(0.2)
    assert [heard.word.text for heard in take_words(line.playout)] == ["0", "1", "2"]


def test_reports_of_dropped_or_unknown_marks_are_ignored() -> None:
    line = Line()
    line.push_words(8)
    dropped = [item.name for item in line.playout.due(line.now) if isinstance(item, PeerMark)]
    line.playout.discard(line.now)
    line.playout.due(line.now)
    line.new_utterance()
    line.push_words(8)
    line.run(0.1)
    lead_s = line.playout.lead_s(line.now)
    for name in (*dropped, "m99"):
        line.playout.mark_played(name, line.now)
    line.playout.advance(line.now)
    assert line.playout.lead_s(line.now) == lead_s
    assert lead_s == pytest.approx(8 * WORD_S - 0.1, abs=0.03)


def transports() -> list[Transport[object]]:
    return [Playout(start=100.0), PeerPlayout()]


@pytest.mark.parametrize("transport", transports(), ids=["we pace", "the peer paces"])
def test_both_playouts_satisfy_the_transport_protocol(transport: Transport[object]) -> None:
    assert transport.sample_rate == 8_000
    transport.discard(100.0)
    transport.finish()
    assert transport.take_heard_words() == ()
    assert transport.lead_s(100.0) == 0
    assert transport.runs_dry_at(100.0) == 100.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1.5), st.booleans()), max_size=8),
    st.sampled_from(OnClear),
)
def test_any_sequence_of_operations_reports_words_once_in_order_and_no_negative_lead(
    steps: list[tuple[int, float, bool]], on_clear: OnClear
) -> None:
    line = Line(on_clear, delay_s=0.03)
    heard: list[tuple[int, int]] = []
    for words, seconds, discards in steps:
        line.push_words(words)
        line.run(seconds, check=lambda: within(0.0, line.playout.lead_s(line.now)))
        heard += [(word.utterance, int(word.word.text)) for word in take_words(line.playout)]
        if discards:
            line.playout.discard(line.now)
            line.new_utterance()
            heard += [(word.utterance, int(word.word.text)) for word in take_words(line.playout)]
    assert heard == sorted(set(heard))


def test_the_playout_is_idle_when_the_peer_has_reported_its_last_mark() -> None:
    line = Line(delay_s=0.3)
    line.push_words(2)
    line.playout.finish()
    line.run(0.52)
    assert line.peer.played == 2 * WORD_S * RATE
    assert line.playout.lead_s(line.now) == 0
    assert not line.playout.is_idle(line.now)  # the report is on its way, and maybe the end of the speech
    line.run(0.36)
    assert line.playout.is_idle(line.now)


def test_a_lost_report_of_the_last_mark_does_not_keep_the_playout_busy() -> None:
    line = Line()
    line.push_words(2)
    line.playout.finish()
    line.playout.due(line.now)
    assert not line.playout.is_idle(line.now + 1.4)
    assert line.playout.is_idle(line.now + 1.6)


def test_a_full_peer_gets_no_speech_until_it_resumes_or_is_cleared() -> None:
    line = Line()
    line.push_words(8)
    line.run(0.24)
    line.playout.pause()
    line.run(2.0)
    assert line.peer.played == pytest.approx(1.2 * RATE, abs=320)  # the second that it held, and 0.2 s
    line.playout.resume()
    line.run(1.0)
    assert line.peer.played == pytest.approx(2.0 * RATE, abs=320)
    line.push_words(8)
    line.run(0.1)
    line.playout.pause()
    line.playout.discard(line.now)
    line.new_utterance()
    line.push_words(2)
    assert [type(command) for command in line.playout.due(line.now)][:2] == [PeerClear, PeerMedia]


def test_a_pause_of_the_writer_is_no_underrun() -> None:
    line = Line()
    line.playout.push(replace(chunk(speech(500)), awaits_text=True))
    line.run(2.0)
    assert line.playout.stats.underruns == 0
    line.playout.push(chunk(speech(500)))
    line.run(2.0)
    assert line.playout.stats.underruns == 1


def test_an_underrun_is_counted_once_and_not_between_utterances() -> None:
    line = Line()
    line.push_words(2)
    line.run(0.54)
    assert line.playout.stats.underruns == 0
    line.run(1.0)
    assert line.playout.stats.underruns == 1
    line.push_words(2)
    line.playout.finish()
    line.run(3.0)
    assert line.playout.stats.underruns == 1
    assert line.playout.stats.packets == 50
