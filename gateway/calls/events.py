"""Events of a call, and their distribution to listeners.

Legs, the clock, agents and peers cause events, all on the event loop's thread. Listeners are called
synchronously; one that forwards events to a slow socket queues them itself (``api.outbox.Outbox``).
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...adapters.answerer import AnswerDetected
from ...adapters.playback.playout import PlayoutStats
from ...tts_engine.chunk import Mark, Word
from .outgoing.states import OutgoingState


@dataclass(frozen=True, slots=True)
class TextWritten:
    """A piece of text of a turn, as it is written. Turns of a call count from 0 in the order they begin."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The first audio of an utterance is in the playout. Utterances of a call count from 0.

    A turn becomes an utterance when it has audio; one that is discarded or fails before never does.
    """

    utterance: int
    turn: int
    after_text_ms: float  # from the first text that the engine got to the first audio


@dataclass(frozen=True, slots=True)
class WordHeard:
    """The middle of a word has been sent to the listener; its position is in the text of its utterance."""

    utterance: int
    word: Word


@dataclass(frozen=True, slots=True)
class MarkHeard:
    """A mark of SSML has been reached: its time is in the audio of its utterance."""

    utterance: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class SpeechFinished:
    """The last audio of an utterance has been sent to the listener."""

    utterance: int
    outcome: str  # value of ``utterance_tracker.UtteranceOutcome``
    heard: str  # its text: all of it if it was spoken, else up to the last word heard


@dataclass(frozen=True, slots=True)
class SpeechDiscarded:
    """Result of a barge-in; emitted only if an utterance was cut."""

    utterance: int | None  # None: nothing was playing
    cut_ms: float  # speech that was dropped
    heard: str  # text of the utterance up to the last word heard
    words: tuple[Word, ...] = ()  # of the utterance, those that were heard
    marks: tuple[str, ...] = ()  # names of its marks that were heard
    heard_s: float = 0.0  # seconds of its audio that were heard


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
class HoldChanged:
    """The caller put the call on hold, and hears nothing; or is back. Speech waits meanwhile."""

    on_hold: bool


@dataclass(frozen=True, slots=True)
class OutgoingStateChanged:
    """A call that the gateway makes has come further."""

    state: OutgoingState
    sip: int | None = None  # status of SIP, if one is known


@dataclass(frozen=True, slots=True)
class PlayoutReport:
    """Counters of the playout so far, emitted once a second."""

    lead_ms: int  # speech that is ready and not yet played
    stats: PlayoutStats


@dataclass(frozen=True, slots=True)
class RecordingEnded:
    """A recording could not be begun, or ended by itself: the disk is full, for example."""

    error: str


@dataclass(frozen=True, slots=True)
class HungUp:
    """The call has ended; no event follows."""


@dataclass(frozen=True, slots=True)
class CallerAudio:
    """Audio of the caller, for listeners that asked for it."""

    pcm: bytes  # s16le mono
    sample_rate: int  # Hz


CallStateEvent = (
    TextWritten
    | SpeechStarted
    | WordHeard
    | MarkHeard
    | SpeechFinished
    | SpeechDiscarded
    | CallerSpeaking
    | CallerSilent
    | KeyPressed
    | HoldChanged
    | AnswerDetected
    | OutgoingStateChanged
    | PlayoutReport
    | RecordingEnded
    | HungUp
)
CallEvent = CallStateEvent | CallerAudio
Listener = Callable[[CallEvent], None]


class CallEvents:
    """The listeners of one call.

    Args:
        on_listeners_changed: called after a listener was added or removed, while the call is up.
    """

    def __init__(self, on_listeners_changed: Callable[[], None] = lambda: None) -> None:
        self._on_listeners_changed = on_listeners_changed
        self._listeners: dict[Listener, bool] = {}  # and whether each wants the caller's audio
        self._over = False

    @property
    def has_listeners(self) -> bool:
        """Whether an event would reach anything."""
        return bool(self._listeners)

    @property
    def wants_caller_audio(self) -> bool:
        """Whether any listener asked for the caller's audio."""
        return any(self._listeners.values())

    def emit(self, event: CallEvent) -> None:
        """Call every listener that the event is for."""
        if isinstance(event, HungUp):
            self._over = True
            self._on_listeners_changed = lambda: None  # else the call would be a cycle with its events
        for listener, wants_audio in tuple(self._listeners.items()):
            if wants_audio or not isinstance(event, CallerAudio):
                listener(event)

    def add_listener(self, listener: Listener, *, wants_audio: bool = False) -> None:
        """Call ``listener`` with every event from now on; it must neither block nor raise.

        If the call has ended, it is called once, with HungUp.
        """
        self._listeners[listener] = wants_audio
        self._on_listeners_changed()
        if self._over:
            listener(HungUp())

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling ``listener``; no error if it was not added."""
        self._listeners.pop(listener, None)
        self._on_listeners_changed()
