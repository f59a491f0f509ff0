"""A call's caller and options: how it speaks, and what it does when its caller speaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, Self

from ...tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from ...tts_engine.stream_request import Delivery, StreamRequest
from ..access.access_control import Grant
from ..voice_registry import KeyVoices

# Seconds of speech kept ready in the playout: enough for a busy moment of the engine, and little to throw
# away when the caller interrupts.
LEAD_S: Final = 0.6
# A telephone holds about 60 ms of what it has received, and drops it when the call ends.
LINGER_S: Final = 0.06
# Seconds after which a phone call ends of which nothing arrives, because its peer may be frozen. A phone that
# is on hold, or sends no silence, is quiet for minutes.
SILENT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class CallSpeechOptions:
    """Voice, speed and pronunciations of an utterance."""

    voice: str | None = None  # id; None: the engine's default voice
    speed: float = 1.0  # factor
    seed: int = 0
    lexicon: LexiconFile | None = None  # of the writer's key, ahead of the server's
    keeps_speech: bool = True  # as of ``StreamRequest``
    # The id of a voice that the text names; raises UnknownVoice.
    resolve_voice: Callable[[str], str] = field(default=str, compare=False, repr=False)

    def for_grant(self, grant: Grant, voices: KeyVoices) -> Self:
        """Return these options for what the key of a grant has spoken. voices: those of the key."""
        return replace(
            self, lexicon=grant.lexicon, keeps_speech=grant.keeps_speech, resolve_voice=voices.resolve
        )

    def stream_request(self, listener_rate: int, trace_id: str, parent_span: str) -> StreamRequest:
        """Return what an utterance's stream is opened with; listener_rate: as of ``Delivery``, Hz."""
        return StreamRequest(
            self.voice,
            self.speed,
            self.seed,
            Delivery(listener_rate=listener_rate),
            () if self.lexicon is None else (self.lexicon.current(),),
            trace_id,
            parent_span,
            self.keeps_speech,
        )


class CallerSpeechAction(Enum):
    """What a call does when its caller begins to speak."""

    TELL = "tell"  # emit CallerSpeaking
    DISCARD = "discard"  # emit CallerSpeaking and discard what is playing


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How calls are spoken on."""

    lead_s: float  # speech kept ready in the playout
    speech: CallSpeechOptions
    caller_speech_action: CallerSpeechAction
    linger_s: float = LINGER_S  # from the last sound sent to a hang-up; 0 where the peer paces the playout


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a call, and what was called. Unknown fields are empty."""

    number: str = ""
    name: str = ""
    called: str = ""  # number or extension that was called
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class CallOwner:
    """Whose a call is. A phone call that comes in is no key's, unless a key names its agent."""

    key_id: str = ""  # of the key that placed it, or whose page it is; "": none
    agent: str = ""  # name of the agent that it was announced for; "": none


UNKNOWN_CALLER = Caller()
NO_OWNER = CallOwner()
