"""The queue of transcripts: order, states, limits, delays, silence and drops."""

import math
from typing import Any

import pytest

from vivavoce.adapters.transcript_queue import (
    MAX_WAITING_CHARACTERS,
    MAX_WAITING_TRANSCRIPTS,
    TRANSITIONS,
    Transcript,
    TranscriptQueue,
    TranscriptQueueFull,
    TranscriptState,
    TranscriptVerb,
)


class NotedStream:
    """Notes what is pushed."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.notes)

    def push_text(self, text: str) -> None:
        self.notes.append(text)

    def flush(self) -> None:
        self.notes.append("|")

    def end_input(self) -> None:
        self.notes.append("end")

    def cancel(self) -> None:
        self.notes.append("cancelled")


def make_queue(**options: Any) -> tuple[TranscriptQueue[str], list[int]]:
    charged: list[int] = []
    return TranscriptQueue("options", charged.append, **options), charged


def open_first(queue: TranscriptQueue[str]) -> tuple[NotedStream, list[int]]:
    stream, pushed = NotedStream(), list[int]()
    queue.transcripts[0].open(stream, pushed.append)
    return stream, pushed


def test_text_waits_for_the_stream_and_goes_into_it_in_order_from_then_on() -> None:
    queue, charged = make_queue()
    for text in ("One ", "", "two "):
        queue.push(text)
    queue.flush()
    queue.flush()  # a second one in a row has no effect
    assert queue.waiting_characters == 8 and queue.transcripts[0].text == "One two "
    stream, pushed = open_first(queue)
    queue.push("three.")
    queue.flush()
    queue.complete()
    assert stream.notes == ["One ", "two ", "|", "three.", "|", "end"]
    assert charged == [4, 0, 4, 6] and pushed == [4, 4, 6]
    assert queue.waiting_characters == 0


def test_a_complete_transcript_is_ended_when_its_stream_opens_and_the_next_text_begins_another() -> None:
    queue, _ = make_queue()
    queue.push("One.")
    queue.complete(7)
    queue.push("Two.")
    assert [transcript.flush_id for transcript in queue.transcripts] == [7, None]
    assert open_first(queue)[0].notes == ["One.", "end"]
    assert not queue.transcripts[1].is_complete


def test_blanks_wait_for_text_and_a_flush_is_reported_without_any() -> None:
    queue, _ = make_queue()
    queue.push(" ")
    assert not queue.is_due and queue.next_transcript is None
    queue.push("x")
    assert queue.is_due
    queue.is_speaking = True
    assert not queue.is_due
    flushed, _ = make_queue()
    flushed.complete()
    assert not flushed.is_due
    flushed.complete(1)
    assert flushed.is_due and flushed.transcripts[0].is_blank


def test_waiting_characters_and_transcripts_are_bounded_and_the_refused_are_not_charged() -> None:
    queue, charged = make_queue()
    queue.push("x" * MAX_WAITING_CHARACTERS)
    with pytest.raises(TranscriptQueueFull, match=f"{MAX_WAITING_CHARACTERS + 1} characters wait in 1"):
        queue.push("x")
    assert charged == [MAX_WAITING_CHARACTERS]
    open_first(queue)
    queue.push("x")  # what is spoken does not count
    queue, _ = make_queue()
    for number in range(MAX_WAITING_TRANSCRIPTS):
        queue.complete(number)
    for refused in (lambda: queue.push("x"), lambda: queue.complete(0)):
        with pytest.raises(TranscriptQueueFull, match=str(MAX_WAITING_TRANSCRIPTS)):
            refused()


def test_the_open_transcript_is_complete_after_its_delay_unless_the_delay_is_changed() -> None:
    queue, _ = make_queue()
    queue.push("One")
    queue.complete_at(10.0)
    queue.complete_at(12.0)
    assert queue.deadline == 12.0
    queue.receive_time(11.9)
    assert queue.open_transcript is not None
    queue.receive_time(12.0)
    assert queue.open_transcript is None and not queue.input_ended and queue.deadline == math.inf
    queue.push("Two")
    queue.complete_at(20.0)
    queue.complete()
    assert queue.deadline == math.inf


def test_silence_ends_the_input_or_only_the_open_transcript() -> None:
    queue, _ = make_queue(max_silence_s=5.0)
    queue.received_at = 1.0
    queue.push("One")
    assert queue.deadline == 6.0
    queue.receive_time(5.9)
    assert not queue.input_ended
    queue.receive_time(6.0)
    assert queue.input_ended and queue.deadline == math.inf
    queue, _ = make_queue(max_silence_s=5.0)
    queue.ends_in_silence = False
    assert queue.deadline == math.inf
    queue.push("One")
    queue.receive_time(5.0)
    assert queue.open_transcript is None and not queue.input_ended and queue.deadline == math.inf


def test_a_drop_cancels_the_stream_and_leaves_nothing_to_speak() -> None:
    queue, _ = make_queue(max_silence_s=5.0)
    queue.push("One")
    queue.complete()
    queue.push("Two")
    queue.complete_at(1.0)
    stream, _ = open_first(queue)
    queue.drop()
    assert stream.notes[-1] == "cancelled"
    assert queue.input_ended and not queue.is_due and queue.next_transcript is None
    assert queue.deadline == math.inf and queue.waiting_characters == 0


WAYS: dict[TranscriptState, tuple[TranscriptVerb, ...]] = {
    TranscriptState.WRITTEN: (),
    TranscriptState.WAITING: (TranscriptVerb.COMPLETE,),
    TranscriptState.STREAMED: (TranscriptVerb.OPEN,),
    TranscriptState.FINISHING: (TranscriptVerb.OPEN, TranscriptVerb.COMPLETE),
    TranscriptState.DROPPED: (TranscriptVerb.DROP,),
}


@pytest.mark.parametrize("state", TranscriptState)
@pytest.mark.parametrize("verb", TranscriptVerb)
def test_a_transcript_follows_the_table(state: TranscriptState, verb: TranscriptVerb) -> None:
    transcript = Transcript("options")
    ways = {TranscriptState.WAITING: "c", TranscriptState.STREAMED: "o", TranscriptState.FINISHING: "co"}
    for step in ways.get(state, "d" if state is TranscriptState.DROPPED else ""):
        do(
            transcript,
            {"c": TranscriptVerb.COMPLETE, "o": TranscriptVerb.OPEN, "d": TranscriptVerb.DROP}[step],
        )
    assert transcript.state is state
    if verb in TRANSITIONS[state]:
        do(transcript, verb)
        assert transcript.state is TRANSITIONS[state][verb]
    else:
        with pytest.raises(ValueError, match=state.value):
            do(transcript, verb)


def do(transcript: Transcript[str], verb: TranscriptVerb) -> None:
    match verb:
        case TranscriptVerb.PUSH:
            transcript.push("x")
        case TranscriptVerb.COMPLETE:
            transcript.complete()
        case TranscriptVerb.OPEN:
            transcript.open(NotedStream(), lambda characters: None)
        case TranscriptVerb.DROP:
            transcript.drop()
