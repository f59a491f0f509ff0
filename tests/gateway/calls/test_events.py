"""Events of a call: delivery to listeners, and the events of the utterance tracker."""

from vivavoce.adapters.playback.heard_words import DiscardResult, HeardMark, HeardWord
from vivavoce.gateway.calls.events import (
    CallerAudio,
    CallEvent,
    CallEvents,
    HungUp,
    KeyPressed,
    MarkHeard,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    WordHeard,
)
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome, UtteranceTracker
from vivavoce.tts_engine.chunk import Mark, Word


def test_a_listener_gets_the_events_between_its_addition_and_its_removal() -> None:
    events, seen = CallEvents(), list[CallEvent]()
    events.emit(KeyPressed("0"))
    events.add_listener(seen.append)
    assert events.has_listeners
    events.emit(KeyPressed("1"))
    events.remove_listener(seen.append)
    events.emit(KeyPressed("2"))
    assert seen == [KeyPressed("1")]
    assert not events.has_listeners


def test_a_listener_added_after_the_end_gets_only_the_hangup() -> None:
    events, seen = CallEvents(), list[CallEvent]()
    events.emit(HungUp())
    events.add_listener(seen.append)
    assert seen == [HungUp()]


def test_the_caller_s_audio_goes_to_listeners_that_asked_for_it() -> None:
    events, with_audio, without = CallEvents(), list[CallEvent](), list[CallEvent]()
    events.add_listener(without.append)
    assert not events.wants_caller_audio
    events.add_listener(with_audio.append, wants_audio=True)
    assert events.wants_caller_audio
    events.emit(CallerAudio(b"\0\0", 8000))
    events.emit(HungUp())
    assert with_audio == [CallerAudio(b"\0\0", 8000), HungUp()]
    assert without == [HungUp()]


def test_a_listener_may_remove_itself_while_it_is_called() -> None:
    events, seen = CallEvents(), list[CallEvent]()

    def once(event: CallEvent) -> None:
        events.remove_listener(once)

    events.add_listener(once)
    events.add_listener(seen.append)
    events.emit(KeyPressed("1"))
    assert seen == [KeyPressed("1")]


class Source:
    def __init__(self, text: str) -> None:
        self.text = text


HELLO = Word("Hello", 0.0, 0.4, 0, 5)


def make_tracker() -> tuple[UtteranceTracker, list[CallEvent]]:
    events, seen = CallEvents(), list[CallEvent]()
    events.add_listener(seen.append)
    return UtteranceTracker(events), seen


def test_an_utterance_emits_its_start_its_words_and_its_end_when_played() -> None:
    tracker, seen = make_tracker()
    tracker.begin(Source("Hello."), turn=3, after_text_ms=80.0)
    tracker.add_heard([HeardWord(0, HELLO)])
    tracker.finish()
    tracker.end(UtteranceOutcome.SPOKEN)
    assert seen == [SpeechStarted(0, 3, 80.0), WordHeard(0, HELLO)]
    tracker.finish()
    tracker.finish()
    assert seen[2:] == [SpeechFinished(0, "spoken", "Hello.")]


def test_marks_are_emitted_between_words_and_a_mark_ends_the_utterance_before() -> None:
    tracker, seen = make_tracker()
    tracker.begin(Source("Hello"), 0, 0.0)
    tracker.end(UtteranceOutcome.SPOKEN)
    tracker.begin(Source("Hello"), 1, 0.0)
    end, begin = Mark("end", 0.4), Mark("begin", 0.0)
    tracker.add_heard([HeardWord(0, HELLO), HeardMark(0, end), HeardMark(1, begin), HeardWord(1, HELLO)])
    assert seen[2:] == [
        WordHeard(0, HELLO),
        MarkHeard(0, end),
        SpeechFinished(0, "spoken", "Hello"),
        MarkHeard(1, begin),
        WordHeard(1, HELLO),
    ]


def test_an_utterance_ends_with_the_first_word_of_the_next() -> None:
    tracker, seen = make_tracker()
    tracker.begin(Source("Hello"), 0, 0.0)
    tracker.end(UtteranceOutcome.FAILED)
    tracker.begin(Source("Hello"), 1, 0.0)
    tracker.add_heard([HeardWord(1, HELLO)])
    assert seen[2:] == [SpeechFinished(0, "failed", ""), WordHeard(1, HELLO)]


def test_a_failed_utterance_reports_the_text_up_to_its_last_word_played() -> None:
    tracker, seen = make_tracker()
    tracker.begin(Source("Hello there."), 0, 0.0)
    tracker.add_heard([HeardWord(0, HELLO)])
    tracker.end(UtteranceOutcome.FAILED)
    tracker.finish()
    assert seen[2:] == [SpeechFinished(0, "failed", "Hello")]


def test_an_utterance_without_audio_emits_nothing() -> None:
    tracker, seen = make_tracker()
    tracker.end(UtteranceOutcome.FAILED)
    tracker.finish()
    assert seen == []


def test_a_barge_in_reports_the_text_heard_and_drops_waiting_utterances() -> None:
    tracker, seen = make_tracker()
    tracker.begin(Source("Hello there, this is long."), 0, 0.0)
    tracker.end(UtteranceOutcome.SPOKEN)
    tracker.begin(Source("And this was never heard."), 1, 0.0)
    tracker.add_heard([HeardWord(0, HELLO)])
    discarded = tracker.discard(DiscardResult(0, 1500.0, (HELLO,), 5, 2.0, ("begin",)), tracker.begun)
    assert discarded == SpeechDiscarded(0, 1500.0, "Hello", (HELLO,), ("begin",))
    assert seen[2:] == [WordHeard(0, HELLO), discarded]
    tracker.end(UtteranceOutcome.DISCARDED)
    tracker.finish()
    assert len(seen) == 4


def test_a_barge_in_into_silence_emits_nothing() -> None:
    tracker, seen = make_tracker()
    assert tracker.discard(DiscardResult(-1, 0.0, (), 0, 2.0), tracker.begun) == SpeechDiscarded(
        None, 0.0, ""
    )
    assert seen == []
