"""What happens on a call, as values, and how those who follow a call get them.

Events come from the clock, the socket and the agent, all on the event loop; a follower reads them at its own
pace from a bounded queue. One that does not read is dropped, never waited for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...tts_engine.chunk import Word

_MAX_EVENTS = 2_000  # about ten minutes of words; more is a follower that does not read
_MAX_AUDIO_BYTES = 160_000  # 5 s at 16 kHz; older audio is dropped first


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The first audio of an utterance is in the playout. Utterances of a call count from 0."""

    utterance: int


@dataclass(frozen=True, slots=True)
class WordHeard:
    """The middle of a word has been sent to the listener; its place is in the text of its utterance."""

    utterance: int
    word: Word


@dataclass(frozen=True, slots=True)
class SpeechFinished:
    """An utterance has been heard to its end, or failed; ``outcome`` is the word of ``call.Outcome``."""

    utterance: int
    outcome: str


@dataclass(frozen=True, slots=True)
class SpeechDiscarded:
    """Barge-in: ``cut_ms`` of speech were dropped; ``heard`` is the text up to the last word heard."""

    utterance: int
    cut_ms: float
    heard: str


@dataclass(frozen=True, slots=True)
class CallerSpeaking:
    """The caller began to speak."""


@dataclass(frozen=True, slots=True)
class CallerSilent:
    """The caller stopped speaking."""


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """The caller pressed a key of the phone."""

    digit: str


@dataclass(frozen=True, slots=True)
class CallerAudio:
    """What the caller said: s16le mono at ``sample_rate`` Hz. Only for followers that asked for it."""

    pcm: bytes
    sample_rate: int


@dataclass(frozen=True, slots=True)
class HungUp:
    """The call is over; nothing follows."""


CallEvent = (
    SpeechStarted
    | WordHeard
    | SpeechFinished
    | SpeechDiscarded
    | CallerSpeaking
    | CallerSilent
    | KeyPressed
    | CallerAudio
    | HungUp
)


class EventQueueOverrun(Exception):
    """The follower did not read its events."""


class EventSubscription:
    """Iterates over the events of one call until HungUp; raises Overrun if it did not keep up."""

    def __init__(self, *, wants_audio: bool) -> None:
        self.wants_audio = wants_audio
        self._events: deque[CallEvent] = deque()
        self._audio_bytes = 0
        self._overrun = self._over = False
        self._arrived = asyncio.Event()

    def put(self, event: CallEvent) -> None:
        """Queue an event."""
        if isinstance(event, CallerAudio):
            self._audio_bytes += len(event.pcm)
            self._drop_old_audio()
        elif len(self._events) >= _MAX_EVENTS:
            self._overrun = True
        if not self._overrun:
            self._events.append(event)
        self._arrived.set()

    def __aiter__(self) -> "EventSubscription":
        return self

    async def __anext__(self) -> CallEvent:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            if self._overrun:
                raise EventQueueOverrun(f"{_MAX_EVENTS} events were not read")
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, CallerAudio):
            self._audio_bytes -= len(event.pcm)
        self._over = isinstance(event, HungUp)
        return event

    def _drop_old_audio(self) -> None:
        while self._audio_bytes > _MAX_AUDIO_BYTES:
            oldest = next((event for event in self._events if isinstance(event, CallerAudio)), None)
            if oldest is None:
                return
            self._events.remove(oldest)
            self._audio_bytes -= len(oldest.pcm)


class CallEvents:
    """The events of one call and those who follow them."""

    def __init__(self) -> None:
        self._subscriptions: list[EventSubscription] = []
        self._listeners: list[Callable[[CallEvent], None]] = []
        self._over = False

    @property
    def has_subscribers(self) -> bool:
        """Whether anybody follows."""
        return bool(self._subscriptions)

    @property
    def wants_caller_audio(self) -> bool:
        """Whether any follower asked for the caller's audio."""
        return any(subscription.wants_audio for subscription in self._subscriptions)

    def emit(self, event: CallEvent) -> None:
        """Tell every follower."""
        self._over = self._over or isinstance(event, HungUp)
        for subscription in self._subscriptions:
            if subscription.wants_audio or not isinstance(event, CallerAudio):
                subscription.put(event)
        if not isinstance(event, CallerAudio):
            for listener in self._listeners:
                listener(event)

    def add_listener(self, listener: Callable[[CallEvent], None]) -> None:
        """Call ``watcher`` at once with every event but audio; it must neither block nor raise."""
        self._listeners.append(listener)

    @contextmanager
    def subscribe(self, *, wants_audio: bool = False) -> Iterator[EventSubscription]:
        """Follow from now on; a call that is over has HungUp as its only event."""
        subscription = EventSubscription(wants_audio=wants_audio)
        if self._over:
            subscription.put(HungUp())
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)
