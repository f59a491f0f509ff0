"""The utterance queue of one peer: limits, charges, options, and text after a barge-in."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import pytest

from shared.counted_work import counted_callbacks
from shared.dense_documents import dense_document
from shared.event_loop import until
from vivavoce.adapters.playback.background import Awaited
from vivavoce.adapters.ssml.document import BadSsml, SsmlDocument
from vivavoce.gateway.access.errors import RateLimited
from vivavoce.gateway.calls.api.messages import BadCallMessage
from vivavoce.gateway.calls.api.utterance_queue import MAX_WAITING_CHARACTERS, UtteranceQueue
from vivavoce.gateway.calls.call_options import CallSpeechOptions
from vivavoce.gateway.calls.events import SpeechDiscarded
from vivavoce.gateway.calls.text_feed import TextCommand, TextDelta
from vivavoce.gateway.calls.utterance_tracker import Turn, UtteranceOutcome
from vivavoce.tts_engine.errors import LanguageNotSpoken, VivavoceError


class FakeCall:
    """A call that reads each utterance to its end, or to the next barge-in, and records the text."""

    call_id = "fake"

    def __init__(self) -> None:
        self.spoken: list[str] = []
        self.voices: list[str | None] = []
        self.announced: list[tuple[int, str]] = []
        self.interrupted = asyncio.Event()
        self._turns = 0
        self._lock = asyncio.Lock()

    def begin_turn(self) -> Turn:
        self._turns += 1
        return Turn(self._turns - 1, self.interrupted)

    def awaiting(self, awaited: Awaited) -> AbstractContextManager[None]:
        return nullcontext()

    def announce_text(self, turn: Turn, text: str) -> None:
        self.announced.append((turn.number, text))

    def discard(self) -> SpeechDiscarded:
        self.interrupted.set()
        self.interrupted = asyncio.Event()
        return SpeechDiscarded(None, 0.0, "")

    def require_languages(self, document: SsmlDocument, voice: str | None) -> None:
        if "xx" in document.languages:
            raise LanguageNotSpoken(f"{voice} does not speak xx")

    async def speak(
        self, text: str | AsyncIterable[TextDelta], *, speech: CallSpeechOptions, turn: Turn
    ) -> UtteranceOutcome:
        async with self._lock:
            if turn.discarded.is_set():
                return UtteranceOutcome.DISCARDED
            self.voices.append(speech.voice)
            self.spoken.append("")
            async for delta in _iterate(text):
                if turn.discarded.is_set():
                    return UtteranceOutcome.DISCARDED
                self.spoken[-1] += delta.text if isinstance(delta, SsmlDocument) else "<flush>"
            return UtteranceOutcome.SPOKEN


class StuckCall(FakeCall):
    """A call on which no utterance ends."""

    async def speak(self, text: Any, **_: object) -> UtteranceOutcome:
        await asyncio.Event().wait()
        raise AssertionError


class FailingCall(FakeCall):
    """A call whose engine refuses every utterance before it has read any text."""

    async def speak(self, text: Any, **_: object) -> UtteranceOutcome:
        return UtteranceOutcome.FAILED


async def _iterate(text: str | AsyncIterable[TextDelta]) -> AsyncGenerator[TextDelta, None]:
    if isinstance(text, str):
        yield text
        return
    async for delta in text:
        yield delta


class Recorder:
    """Records the charges, failures and errors that a queue reports."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.failures: list[VivavoceError] = []
        self.errors: list[BaseException] = []

    def queue(self, call: FakeCall, charge: Callable[[int], None] | None = None) -> UtteranceQueue:
        return UtteranceQueue(
            call,  # type: ignore[arg-type]
            CallSpeechOptions("first"),
            charge=charge or self.charged.append,
            on_failed=self.failures.append,
            on_error=self.errors.append,
        )

    @asynccontextmanager
    async def settled_queue(
        self, call: FakeCall, charge: Callable[[int], None] | None = None
    ) -> AsyncIterator[UtteranceQueue]:
        """A queue that is closed when every task that the block began waits."""
        queue = self.queue(call, charge)
        yield queue
        await settle()
        await queue.aclose()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_text_that_is_refused_for_lack_of_room_is_not_charged() -> None:
    recorder = Recorder()

    async def test() -> None:
        queue = recorder.queue(StuckCall())
        with pytest.raises(BadCallMessage):
            queue.push("x" * (MAX_WAITING_CHARACTERS + 1))
        for _ in range(1_000):
            queue.push("Hm.")
            queue.end()
        with pytest.raises(BadCallMessage):
            queue.push("Hm.")
        await queue.aclose()

    run(test())
    assert recorder.charged == [3] * 1_000


def test_at_most_1000_utterances_wait() -> None:
    async def test() -> None:
        queue = Recorder().queue(StuckCall())
        with pytest.raises(BadCallMessage, match="1000 utterances"):
            for _ in range(1_001):
                queue.push("Hm.")
                queue.end()
        await queue.aclose()

    run(test())


def test_flushes_count_towards_the_limit_too() -> None:
    async def test() -> None:
        queue = Recorder().queue(StuckCall())
        with pytest.raises(BadCallMessage, match="characters are waiting"):
            for _ in range(MAX_WAITING_CHARACTERS + 1):
                queue.push(TextCommand.FLUSH)
        await queue.aclose()

    run(test())


def test_text_of_failed_utterances_no_longer_counts_as_waiting() -> None:
    recorder = Recorder()

    async def test() -> None:
        queue = recorder.queue(FailingCall())
        for _ in range(8):
            queue.push("word " * 12_000)
            queue.end()
            await settle()
        await queue.aclose()

    run(test())
    assert [str(error) for error in recorder.failures] == [
        "This could not be spoken; the server's log says why."
    ] * 8


def test_text_of_an_utterance_that_failed_is_dropped_and_not_charged() -> None:
    recorder = Recorder()

    async def test() -> None:
        queue = recorder.queue(FailingCall())
        queue.push("One")
        await settle()
        for _ in range(8):
            queue.push("word " * 12_000)
        queue.end()
        queue.push("Two.")
        await queue.aclose()

    run(test())
    assert recorder.charged == [3, 4]


def test_speech_options_apply_to_utterances_that_begin_later() -> None:
    call = FakeCall()

    async def test() -> None:
        async with Recorder().settled_queue(call) as queue:
            for voice in ("second", "third"):
                queue.push("Hm. ")
                queue.speech = CallSpeechOptions(voice)
                queue.push("And so on.")
                queue.end()

    run(test())
    assert call.voices == ["first", "second"]


def test_text_is_announced_with_its_turn_as_it_is_pushed() -> None:
    call = FakeCall()

    async def test() -> None:
        queue = Recorder().queue(call)
        for text in ("One ", "two."):
            queue.push(text)
        queue.end()
        queue.push("Three.")
        assert call.announced == [(0, "One "), (0, "two."), (1, "Three.")]
        assert queue.wrote(0) and queue.wrote(1) and not queue.wrote(2)
        await queue.aclose()

    run(test())


def test_a_discard_also_drops_utterances_whose_task_has_not_started() -> None:
    call = FakeCall()

    async def test() -> None:
        async with Recorder().settled_queue(call) as queue:
            queue.push("Never said.")
            queue.end()
            queue.discard()
            queue.push("Said.")
            queue.end()

    run(test())
    assert call.spoken == ["Said."]


def test_the_rest_of_an_utterance_that_another_party_interrupted_is_refused_once_and_dropped() -> None:
    call, recorder = FakeCall(), Recorder()

    async def test() -> None:
        async with recorder.settled_queue(call) as queue:
            queue.push("One ")
            await settle()
            call.discard()
            with pytest.raises(BadCallMessage, match=r"interrupted; .* up to the next end or discard"):
                queue.push("two ")
            queue.push(TextCommand.FLUSH)
            queue.push("three.")
            queue.end()
            queue.push("Four.")
            queue.end()

    run(test())
    assert call.spoken == ["One ", "Four."]
    assert recorder.charged == [4, 5]


def test_after_the_peer_s_own_discard_text_begins_a_new_utterance() -> None:
    call = FakeCall()

    async def test() -> None:
        async with Recorder().settled_queue(call) as queue:
            queue.push("One ")
            await settle()
            queue.discard()
            queue.push("Two.")

    run(test())
    assert call.spoken == ["One ", "Two."]


def test_an_utterance_that_is_complete_when_it_is_interrupted_needs_no_error() -> None:
    call = FakeCall()

    async def test() -> None:
        async with Recorder().settled_queue(call) as queue:
            queue.push("One.")
            queue.end()
            call.discard()
            queue.push("Two.")
            queue.end()

    run(test())
    assert call.spoken == ["Two."]


def test_the_server_s_own_text_is_spoken_uncharged_and_is_not_the_peer_s() -> None:
    call, recorder = FakeCall(), Recorder()

    async def test() -> None:
        async with recorder.settled_queue(call) as queue:
            queue.say("Welcome.")
            assert not queue.wrote(0)

    run(test())
    assert (call.spoken, call.announced, recorder.charged) == (["Welcome."], [(0, "Welcome.")], [])


def test_a_document_is_spoken_when_its_end_has_come_and_announced_without_markup() -> None:
    call = FakeCall()

    async def test() -> None:
        async with Recorder().settled_queue(call) as queue:
            for piece in ("<spe", "ak>One <mark name='a'/>", "two.</spe"):
                queue.push(piece)
            await settle()
            assert call.spoken == [] and not queue.wrote(0)
            queue.push("ak>")
            queue.push("<speak>Three.</speak>")
            queue.push(TextCommand.FLUSH)
            queue.push("Four.")
            queue.push("<speak>")  # inside plain text it is text
            queue.end()

    run(test())
    assert call.spoken == ["One two. Three.<flush> Four.<speak>"]
    assert call.announced == [(0, "One two."), (0, " Three."), (0, " Four."), (0, "<speak>")]


def test_a_faulty_document_is_refused_with_its_place_and_ends_its_utterance_only() -> None:
    call, recorder = FakeCall(), Recorder()

    async def test() -> None:
        async with recorder.settled_queue(call) as queue:
            queue.push("<speak>One.</speak>")
            with pytest.raises(BadSsml, match="line 1, column 20: mismatched tag"):
                queue.push("<speak>Two <b>now</speak>")
            queue.push("Dropped.")
            queue.push(TextCommand.FLUSH)
            queue.end()
            queue.push("<speak>Three")
            with pytest.raises(BadSsml, match="no element found"):
                queue.end()
            queue.push("Four.")
            queue.end()

    run(test())
    assert (call.spoken, recorder.failures) == (["One.", "Four."], [])


def test_a_document_that_is_interrupted_or_discarded_while_it_is_written_is_never_spoken() -> None:
    call = FakeCall()

    async def test() -> None:
        async with Recorder().settled_queue(call) as queue:
            queue.push("<speak>One")
            call.discard()
            with pytest.raises(BadCallMessage, match="interrupted"):
                queue.push(".</speak>")
            queue.end()
            queue.push("<speak>Two")
            queue.discard()
            queue.push("Three.")
            queue.end()

    run(test())
    assert call.spoken == ["Three."]


def test_an_answer_and_the_server_s_own_text_may_be_documents() -> None:
    call, recorder = FakeCall(), Recorder()

    async def test() -> None:
        async with recorder.settled_queue(call) as queue:
            queue.say("<speak>Welcome.</speak>")
            queue.answer(_tokens("<speak>", "One.</speak>"))
            queue.answer(_tokens("<speak>Two"))

    run(test())
    assert call.spoken == ["Welcome.", "One.", ""]
    assert [type(error) for error in recorder.failures] == [BadSsml]


async def _tokens(*tokens: str, closed: list[bool] | None = None) -> AsyncGenerator[str, None]:
    try:
        for token in tokens:
            yield token
    finally:
        if closed is not None:
            closed.append(True)


def test_an_answer_is_charged_token_by_token_and_closed_where_the_quota_ends() -> None:
    call, recorder, closed = FakeCall(), Recorder(), list[bool]()

    def charge(characters: int) -> None:
        if sum(recorder.charged) + characters > 8:
            raise RateLimited("too much", 3.0)
        recorder.charged.append(characters)

    async def test() -> None:
        async with recorder.settled_queue(call, charge) as queue:
            queue.answer(_tokens("One ", "two.", " Three.", closed=closed))

    run(test())
    assert (call.spoken, closed) == (["One two."], [True])
    assert [str(error) for error in recorder.failures] == ["too much"]


def test_a_fault_in_a_task_is_reported() -> None:
    recorder = Recorder()

    async def broken() -> AsyncGenerator[str, None]:
        yield "One."
        raise ArithmeticError("no words")

    async def test() -> None:
        async with recorder.settled_queue(FakeCall()) as queue:
            queue.answer(broken())

    run(test())
    assert [str(error) for error in recorder.errors] == ["no words"]


def test_a_long_document_is_read_in_slices_in_the_order_of_what_is_written() -> None:
    call, recorder = FakeCall(), Recorder()
    document = dense_document("<break/>a")
    parts = [document[begin : begin + 50_000] for begin in range(0, len(document), 50_000)]

    async def test() -> None:
        queue = recorder.queue(call)
        with counted_callbacks() as calls:
            for part in parts:
                queue.push(part)
            queue.push(" Behind it.")
            queue.end()
            queue.push("Another.")
            queue.end()
            await until(lambda: len(call.spoken) == 2)
            await settle()
        await queue.aclose()
        assert max(calls) < 30_000  # of over 500,000

    run(test())
    assert [spoken[-10:] for spoken in call.spoken] == ["Behind it.", "Another."]
    assert recorder.failures == []


def test_a_fault_of_a_long_document_is_reported_and_ends_its_utterance_only() -> None:
    call, recorder = FakeCall(), Recorder()

    async def test() -> None:
        queue = recorder.queue(call)
        queue.push(dense_document("<break/>a", ending="<b>"))
        queue.push("Dropped.")
        queue.end()
        queue.push("Four.")
        queue.end()
        await until(lambda: call.spoken)
        await settle()
        await queue.aclose()

    run(test())
    assert call.spoken == ["Four."]
    assert ["mismatched tag" in str(failure) for failure in recorder.failures] == [True]


def test_characters_behind_a_long_document_count_as_waiting() -> None:
    async def test() -> None:
        queue = Recorder().queue(FakeCall())
        queue.push(dense_document("<break/>a"))
        with pytest.raises(BadCallMessage, match="waiting to be spoken"):
            queue.push("a" * (MAX_WAITING_CHARACTERS - 100_000))
        await queue.aclose()

    run(test())
